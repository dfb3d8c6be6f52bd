"""How good could anyone have been: hindsight bounds on short runs, with policies on the same requests beside them.

    python -m benchmarks.quality.bounds --traces DIR [--write-page]

Short, because the LP has a column for every start that may pay. True lengths are known to the bound and to nobody else.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from benchmarks.quality.arguments import read_cells
from benchmarks.quality.cells import CELLS, PeriodCell, period_workload
from benchmarks.quality.entries import SERVE, SHED, router_config
from benchmarks.quality.verdicts import show
from benchmarks.results_page import records_table, replace_section
from olp_ray.config import FleetConfig
from olp_ray.config.build import build_priced_router
from olp_ray.core.hindsight import hindsight_bound
from olp_ray.core.period_model import Metric, PeriodInstance
from olp_ray.report.metrics import summarise
from olp_ray.sim.simulate import simulate
from olp_ray.workload.predictors import parse_predictor
from olp_ray.workload.request import SimRequest
from olp_ray.workload.requests import make_requests

BOUNDED = ("slot-0.5", "kv-0.5", "slot-0.6", "kv-0.6", "slot-0.45", "kv-0.45")
BESIDE = ("central_fifo", "central_sjf", "on_time_sjf", "on_time_fifo", "sjf_reservation")
DRAIN_PERIODS = 1000  # how far after the last arrival the bound counts capacity; beyond it room is unlimited


class Question(NamedTuple):
    """What is bounded, the metric of a run that it bounds, our preset for it, and what policies reject."""

    bounded: Metric
    metric: str
    preset: str
    variant: str


QUESTIONS = (
    Question(Metric.MEAN_E2E, "e2e_mean_s", "e2e", SERVE),
    Question(Metric.ATTAINMENT, "attainment", "attainment", SERVE),
    Question(Metric.ATTAINMENT, "attainment", "attainment", SHED),
)


def policy_metrics(
    entry: str, variant: str, requests: list[SimRequest], fleet: FleetConfig, seed: int
) -> dict[str, float]:
    config = router_config(entry, variant)
    settings = config.settings("period")
    router = build_priced_router(config, fleet, "period", seed)
    result = simulate(requests, fleet, "period", router, update_s=settings.online_lp.update_s)
    return summarise(
        result.requests,
        ttft_threshold_s=settings.objective.ttft_threshold_s,
        e2e_threshold_s=settings.objective.e2e_threshold_s,
    )


def instance(requests: list[SimRequest], fleet: FleetConfig, periods: int) -> PeriodInstance:
    """The same requests for the bound; its thresholds are strict, those of the metrics are not."""
    objective = router_config("online_lp:attainment", SERVE).core_objective("period")
    devices = fleet.core_devices("period")
    return PeriodInstance(
        np.array([int(np.ceil(r.request.arrival_s)) for r in requests]),
        np.array([r.request.prompt_tokens for r in requests]),
        np.array([r.output_tokens for r in requests]),
        np.array([device.slots for device in devices]),
        np.array([device.kv_tokens for device in devices]),
        periods + DRAIN_PERIODS,
        ttft_threshold=objective.ttft_threshold_s + 1,
        e2e_threshold=objective.e2e_threshold_s + 1,
        drain=True,
    )


def rows_of_cell(cell: PeriodCell, periods: int, seed: int, traces: Path | None) -> list[dict[str, str]]:
    frame = period_workload(cell, periods, seed, traces)
    requests = make_requests(frame, parse_predictor(cell.predictor), seed, rotate=False)
    fleet = FleetConfig.parse(cell.fleet)
    bounds = {
        bounded: hindsight_bound(instance(requests, fleet, periods), bounded, max_rounds=25, tolerance=5e-3)
        for bounded in dict.fromkeys(question.bounded for question in QUESTIONS)
    }
    rows = []
    for bounded, metric, preset, variant in QUESTIONS:
        entry, found = f"online_lp:{preset}", bounds[bounded]
        mine = policy_metrics(entry, variant, requests, fleet, seed)
        beside = {name: policy_metrics(name, variant, requests, fleet, seed) for name in BESIDE}
        best = min(beside.items(), key=lambda item: item[1][metric] * (1 if bounded.is_cost else -1))
        rows.append(row(cell.name, variant, metric, (found.bound, found.achieved), best, (entry, mine)))
    return rows


def row(
    cell: str,
    variant: str,
    metric: str,
    hindsight: tuple[float, float],
    best: tuple[str, dict[str, float]],
    ours: tuple[str, dict[str, float]],
) -> dict[str, str]:
    """hindsight is the bound and what a schedule built from it reaches."""
    (pick, beside), (entry, mine) = best, ours
    return {
        "cell": cell,
        "variant": variant,
        "metric": metric,
        "bound": show(metric, hindsight[0]),
        "a schedule in hindsight": show(metric, hindsight[1]),
        "ours": f"{show(metric, mine[metric])} ({entry})",
        "best beside": f"{show(metric, beside[metric])} ({pick})",
        **{
            title: f"{show(name, beside[name])} → {show(name, mine[name])}"
            for name, title in (
                ("ttft_p99_s", "p99 TTFT"),
                ("max_wait_s", "max wait"),
                ("never_started", "never started"),
                ("rejected", "rejected"),
            )
        },
    }


def report(rows: list[dict[str, str]], periods: int) -> str:
    return "\n\n".join(
        [
            "## Hindsight bounds",
            "`python -m benchmarks.quality.bounds --traces DIR --write-page` writes this section: requests arrive for "
            f"{periods} periods, one seed; serve: nothing is rejected, shed: every policy rejects by the rule of the "
            "quality section, and a rejected request is a miss. No schedule passes the bound; the schedule in "
            "hindsight is one that was built from it, so the best possible lies between the two. Both know all "
            "lengths and arrivals beforehand.",
            records_table(rows),
        ]
    )


@click.command()
@click.option("--traces", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder of the traces.")
@click.option(
    "--periods",
    type=click.IntRange(min=1),
    default=1500,
    show_default=True,
    help="Requests arrive for so many periods.",
)
@click.option(
    "--cells", default=",".join(BOUNDED), show_default=True, help="Comma-separated names or patterns of period cells."
)
@click.option("--seed", type=click.IntRange(min=0), default=101, show_default=True)
@click.option("--write-page", is_flag=True, help="Write the section in docs/results.md.")
def main(traces: Path | None, periods: int, cells: str, seed: int, write_page: bool) -> None:
    """Print bounds and what policies reached.

    \b
    Example:
      python -m benchmarks.quality.bounds --cells slot-0.5 --periods 500
    """
    chosen = [cell for cell in read_cells(cells, traces) if isinstance(cell, PeriodCell)]
    if not chosen:
        period_cells = [name for name, cell in CELLS.items() if isinstance(cell, PeriodCell)]
        raise click.UsageError(f"--cells {cells!r}: expected period cells ({', '.join(period_cells)})")
    rows = []
    for cell in chosen:
        rows += rows_of_cell(cell, periods, seed, traces)
        click.echo(f"{cell.name} done", err=True)
    text = report(rows, periods)
    click.echo(text)
    if write_page:
        replace_section("bounds", text)


if __name__ == "__main__":
    main()
