"""How near shipped prices are to exact ones: the SAA dual of each update against its optimum by HiGHS.

    python -m benchmarks.exactness --traces DIR [--quick] [--write-page]

A whole run in period mode, prices warm-started as shipped. Every so many updates, the update's own batch (the samples
of all its rounds, so that their weights add up to one batch) and its own forecast of occupancy make a packing LP. The
dual value of the prices that came out of the update is compared with the LP's optimum, which no prices go below.

Gradient steps move the prices of the look-ahead only; those beyond are extrapolated, since what will arrive there is
not sampled. So the LP has the resources of the look-ahead, and what a life holds beyond it is paid at shipped prices.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from benchmarks.quality.arguments import read_cells
from benchmarks.quality.cells import CELLS, CONVERSATIONS, PeriodCell, period_workload
from benchmarks.results_page import records_table, replace_section
from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_router
from olp_ray.core.exact_prices import solve_packing
from olp_ray.core.packing import Packing
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import InlinePricer, PriceScalars, SampleColumn
from olp_ray.core.types import PricesReady, PriceWork
from olp_ray.core.update_packing import look_ahead, round_packing
from olp_ray.sim.simulate import simulate
from olp_ray.workload.predictors import parse_predictor
from olp_ray.workload.requests import make_requests

WORKLOADS = ("slot-0.5", "kv-0.5")
PRESETS = ("balanced", "e2e", "attainment")
GOAL = 0.05


class Measured(NamedTuple):
    """One update: dual values as multiples of the optimum, at its prices and at no prices (which is the reward of
    every sample started at once)."""

    update_id: int
    dual: float
    dual_at_zero: float


class Measuring:
    """A pricer that hands prices on unchanged and measures every `every`-th update whose grid does not move."""

    def __init__(self, every: int) -> None:
        self._pricer = InlinePricer()
        self._every = every
        self._work: PriceWork | None = None
        self.rows: list[Measured] = []

    def submit(self, work: PriceWork) -> None:
        self._pricer.submit(work)
        self._work = work

    def collect(self) -> list[PricesReady]:
        ready, work = self._pricer.collect(), self._work
        if work is not None and ready and work.grid == work.next_grid and work.update_id // 2 % self._every == 0:
            self.rows.append(measure(work, ready[0].tables))
        self._work = None
        return ready


def measure(work: PriceWork, tables: np.ndarray) -> Measured:
    """Compare the prices in `tables` (of all devices, on the work's own grid) with the optimum of its whole batch."""
    problem, prices = batch_packing(work, tables[:, :2, :-1])
    optimum = solve_packing(problem).objective
    at_zero = problem.dual_objective(np.zeros_like(prices))
    scale = max(optimum, np.finfo(float).tiny)
    return Measured(work.update_id, problem.dual_objective(prices) / scale, at_zero / scale)


def batch_packing(work: PriceWork, prices: np.ndarray) -> tuple[Packing, np.ndarray]:
    """The LP of an update over the resources of its look-ahead, and the shipped prices (G, 2, N) of these, raveled."""
    ahead = look_ahead(work)
    samples = work.samples.copy()
    samples[:, SampleColumn.WEIGHT] /= work.rounds
    samples[:, SampleColumn.ROUND] = 0
    one_more = PriceScalars(*work.scalars)._replace(lookahead_buckets=float(ahead + 1))
    cut = dataclasses.replace(
        work,
        samples=samples,
        scalars=np.array(one_more),
        occupied=work.occupied[:, :, : ahead + 1],
        capacity=work.capacity[:, :, : ahead + 1],
    )
    whole = round_packing(cut, 0)  # its last bucket holds all that follows
    resource, bucket = np.divmod(whole.row, ahead + 1)
    beyond = bucket == ahead
    paid = whole.coefficient[beyond] * prices[:, :, ahead].ravel()[resource[beyond]]
    value = whole.value - np.bincount(whole.option[beyond], weights=paid, minlength=len(whole.value))
    packing = Packing(
        capacity=whole.capacity.reshape(-1, ahead + 1)[:, :ahead].ravel(),
        value=value,
        group=whole.group,
        limit=whole.limit,
        row=(resource * ahead + bucket)[~beyond],
        option=whole.option[~beyond],
        coefficient=whole.coefficient[~beyond],
    )
    return packing, prices[:, :, :ahead].ravel()


def run(cell: PeriodCell, preset: str, periods: int, every: int, traces: Path | None, seed: int) -> list[Measured]:
    """One simulation; a list of measured updates."""
    frame = period_workload(cell, periods, seed, traces)
    requests = make_requests(frame, parse_predictor(cell.predictor), seed, rotate=False)
    fleet = FleetConfig.parse(cell.fleet)
    config = RouterConfig(preset=preset)
    pricer = Measuring(every)
    router = PricedRouter(build_router(config, fleet, "period", seed), pricer)
    simulate(requests, fleet, "period", router, update_s=config.settings("period").online_lp.update_s)
    return pricer.rows


def row(cell: str, preset: str, found: list[Measured]) -> dict[str, str]:
    excess = np.array([m.dual for m in found]) - 1.0
    zero = np.array([m.dual_at_zero for m in found]) - 1.0
    median, p95 = np.quantile(excess, [0.5, 0.95])
    return {
        "workload": cell,
        "preset": preset,
        "updates": str(len(found)),
        "excess, median": f"{100 * median:.2f} %",
        "excess, p95": f"{100 * p95:.2f} %",
        "excess, max": f"{100 * excess.max():.2f} %",
        "with no prices, median": f"{100 * np.median(zero):.2f} %",
        f"median within {GOAL:.0%}": "pass" if median <= GOAL else "**fail**",
    }


def report(rows: list[dict[str, str]], periods: int) -> str:
    settings = RouterConfig().online_lp
    return "\n\n".join(
        [
            "## Exactness of prices",
            "`python -m benchmarks.exactness --traces DIR --write-page` writes this section. Excess is the SAA dual of "
            f"an update at its shipped prices (K = {settings.rounds} steps of {settings.batch} samples, warm-started) "
            "over the exact optimum of the same batch and occupancy, less one; the last column but one shows what no "
            f"prices at all would give. Requests arrive for {periods} periods.",
            records_table(rows),
        ]
    )


@click.command()
@click.option(
    "--traces",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help=f"Folder with {CONVERSATIONS}. Without it lengths are generated.",
)
@click.option(
    "--periods",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="Requests arrive for so many periods.",
)
@click.option(
    "--every", type=click.IntRange(min=1), default=40, show_default=True, help="Measure one of so many updates."
)
@click.option("--quick", is_flag=True, help="A tenth of the periods, one workload and preset.")
@click.option("--write-page", is_flag=True, help="Write the section in docs/results.md.")
def main(traces: Path | None, periods: int, every: int, quick: bool, write_page: bool) -> None:
    """Print how far shipped prices are from exact ones, on some cells of `benchmarks.quality` and some presets.

    \b
    Examples:
      python -m benchmarks.exactness --quick
      python -m benchmarks.exactness --traces DIR --periods 5000
    """
    read_cells(",".join(WORKLOADS), traces)
    chosen = [(cell, preset) for cell in WORKLOADS for preset in PRESETS]
    if quick:
        chosen, periods = chosen[:1], max(1, periods // 10)
    rows = []
    for name, preset in chosen:
        cell = CELLS[name]
        assert isinstance(cell, PeriodCell)
        found = run(cell, preset, periods, every, traces, seed=101)
        if not found:
            raise click.UsageError(f"--every {every}: {periods} periods have no update to measure; expected less of it")
        rows.append(row(name, preset, found))
        click.echo(str(rows[-1]), err=True)
    text = report(rows, periods)
    click.echo(text)
    if write_page:
        replace_section("exactness", text)


if __name__ == "__main__":
    main()
