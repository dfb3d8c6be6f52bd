"""What it costs that prices come one update late: lag 1, as the router has it, against lag 0.

    python -m benchmarks.ray_lag [--traces DIR] [--cells slot-0.5,...] [--seeds 3] [--periods 2000] [--write-page]

Lag 1 lets prices be computed beside admission, on other processes. Lag 0 can only be had in this benchmark: the tables
of an update are put into force as soon as its call returns, so every decision after it sees them.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import numpy as np

from benchmarks.quality.cells import CELLS, PeriodCell, period_workload
from benchmarks.results_page import records_table, replace_section
from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_router
from olp_ray.core.policies.online_lp import OnlineLP
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import InlinePricer, PriceScalars
from olp_ray.core.router import Router
from olp_ray.core.types import Event, PricesReady, PriceWork, Step
from olp_ray.report.metrics import summarise
from olp_ray.sim.simulate import simulate
from olp_ray.workload.predictors import parse_predictor
from olp_ray.workload.requests import make_requests

DEFAULT_CELLS = "slot-0.5,slot-0.6,kv-0.5,hetero-0.5,slot-shift"
METRICS = ("e2e_mean_s", "e2e_p99_s", "ttft_mean_s", "e2e_attainment", "ttft_attainment")


class LagZeroRouter(PricedRouter):
    """Computes price work within the call that asks for it, on the grid of now, and puts it into force at once."""

    def __init__(self, router: Router) -> None:
        super().__init__(router, InlinePricer())
        self._inline = InlinePricer()
        self._ready: list[PricesReady] = []

    def handle(self, now_s: float, events: Sequence[Event]) -> Step:
        policy = self.router.policy
        assert isinstance(policy, OnlineLP)
        due = now_s >= policy.prices.next_update_s() and self._ready
        taken = [*self._ready, *events] if due else events  # confirms what is in force already
        if due:
            self._ready = []
        step = self.router.handle(now_s, taken)
        if step.price_work is None:
            return step
        self._inline.submit(on_the_grid_of_now(step.price_work))
        self._ready = self._inline.collect()
        rows = {device_id: g for g, device_id in enumerate(policy.prices.device_ids)}
        for item in self._ready:
            policy.prices.tables[[rows[device_id] for device_id in item.device_ids]] = item.tables
        return dataclasses.replace(step, price_work=None)


def on_the_grid_of_now(work: PriceWork) -> PriceWork:
    scalars = PriceScalars(*work.scalars)._replace(next_grid=float(work.grid))
    return dataclasses.replace(work, next_grid=work.grid, scalars=np.array(scalars))


def run(cell: PeriodCell, seed: int, periods: int, lag: int, traces: Path | None) -> dict[str, float]:
    """Metrics of one simulation."""
    config, fleet = RouterConfig(), FleetConfig.parse(cell.fleet)
    settings = config.settings("period")
    predictor = parse_predictor(cell.predictor)
    requests = make_requests(period_workload(cell, periods, seed, traces), predictor, seed, rotate=False)
    core = build_router(config, fleet, "period", seed)
    router = PricedRouter(core, InlinePricer()) if lag else LagZeroRouter(core)
    lengths = predictor.learner()
    result = simulate(requests, fleet, "period", router, update_s=settings.online_lp.update_s, lengths=lengths)
    objective = settings.objective
    return summarise(
        result.requests,
        ttft_threshold_s=objective.ttft_threshold_s,
        e2e_threshold_s=objective.e2e_threshold_s,
        end_s=result.end_s,
        utilisation=result.utilisation,
    )


def compare(cell: PeriodCell, seeds: int, periods: int, traces: Path | None) -> dict[str, str]:
    """One row: each metric with lag 1, and by how much lag 0 changes it, paired over seeds."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        asked = [[pool.submit(run, cell, seed, periods, lag, traces) for lag in (1, 0)] for seed in range(seeds)]
        pairs = [[each.result() for each in pair] for pair in asked]
    row = {"cell": cell.name}
    for name in METRICS:
        one, zero = (np.array([pair[i][name] for pair in pairs]) for i in (0, 1))
        change = zero - one
        error = change.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else float("nan")
        row[name] = f"{one.mean():.4g} ({change.mean():+.3g} ± {error:.2g})"
    return row


@click.command()
@click.option("--traces", type=click.Path(path_type=Path, exists=True), help="Folder with azure2023_conv.csv.")
@click.option("--cells", default=DEFAULT_CELLS, show_default=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--periods", default=2000, show_default=True)
@click.option("--write-page", is_flag=True, help="Write the section of docs/results.md.")
def main(traces: Path | None, cells: str, seeds: int, periods: int, write_page: bool) -> None:
    """Measure and print."""
    rows = []
    for name in cells.split(","):
        cell = CELLS.get(name)
        if not isinstance(cell, PeriodCell):
            raise click.BadParameter(f"{name!r} is not a period cell", param_hint="--cells")
        rows.append(compare(cell, seeds, periods, traces))
        click.echo(rows[-1], err=True)
    lengths = "lengths of the conversation trace" if traces else "built-in lengths"
    text = (
        "## What it costs that prices come one update late\n\n"
        "The default preset with lag 1, and in brackets what lag 0 adds, mean over "
        f"{seeds} paired seeds ± one standard error; {periods} periods, {lengths} "
        "(`python -m benchmarks.ray_lag --write-page`). Attainments: more is better; the rest: less is better.\n\n"
        f"{records_table(rows)}"
    )
    click.echo(text)
    if write_page:
        replace_section("ray_lag", text)


if __name__ == "__main__":
    main()
