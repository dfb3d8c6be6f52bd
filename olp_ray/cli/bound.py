"""`olp-ray bound`."""

from __future__ import annotations

import dataclasses

import click
from rich.console import Console
from rich.table import Table

from olp_ray.cli.options import bound_options, out_option, with_seeds
from olp_ray.cli.output import deadlines, print_table, progress_bar, show_arrivals, show_replaced
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.core.hindsight import HindsightBound
from olp_ray.report.metrics import METRICS
from olp_ray.report.tables import show_number, shown_unit
from olp_ray.sweep.bound import BOUNDED, Effort, bound_metrics, check_bounded, scenario_bound
from olp_ray.sweep.outputs import claim_folder, write_summary
from olp_ray.sweep.trial import settle_arrivals

METRIC_HELP = (
    f"{', '.join(BOUNDED)}; may be given many times.  [all but finished; with a sim.horizon_s: attainment and finished]"
)


@click.command()
@bound_options
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help=METRIC_HELP)
@click.option("--seed", type=int, metavar="S", help="Where a trace starts, and every random draw.  [0]")
@click.option(
    "--grid", type=click.IntRange(min=1), default=16, show_default=True, metavar="N", help="Periods of a bucket."
)
@click.option(
    "--pooling", type=click.Choice(["classes", "fleet"]), default="classes", show_default=True,
    help="Whose capacities are added up: equal devices', or all.",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(min=1), default=60, show_default=True, metavar="N", help="Most rounds of the LP."
)
@click.option("--tolerance", type=click.FloatRange(min=0), default=1e-3, show_default=True, metavar="X")
@out_option("bound")
def bound(
    scenario: ScenarioConfig,
    metrics: tuple[str, ...],
    seed: int | None,
    grid: int,
    pooling: str,
    rounds: int,
    tolerance: float,
    out: str,
) -> None:
    """Bound what any schedule could have reached, knowing every request and its length beforehand.

    The bound is of the period model (mode period, the default here): rates are per period, an iteration is a period,
    and of a kind of device only its slots and KV tokens count. In timed mode there is none.

    `finished` needs a scenario file with a `sim: {horizon_s: N}` (--scenario): without an end, every request finishes.
    With one there is no bound of the means: they speak of what was served only.

    \b
    Examples:
      olp-ray bound --fleet 4xB24M40000 --rate 0.5 --requests 500
      olp-ray bound --fleet 4xB64M30000 --rate 0.5 --requests 500 --metric attainment --grid 8

    Writes summary.json to --out. `olp-ray compare --bound` puts bound and regret beside policies.
    """
    if seed is not None:
        scenario = with_seeds(scenario, [seed])
    metrics = metrics or bound_metrics(scenario)
    check_bounded(scenario, metrics)
    effort = Effort(grid, pooling, tolerance, rounds)  # type: ignore[arg-type]
    replaced = claim_folder(out, ())
    with progress_bar("measuring what the fleet can serve") as progress:
        arrivals = settle_arrivals(scenario, progress)
        show_arrivals(arrivals, scenario.mode)
        found: dict[str, HindsightBound] = {}
        for name in metrics:
            progress.now(f"bounding {name}")
            found[name] = scenario_bound(
                scenario, scenario.seeds[0], arrivals.rate, name, effort, lambda done: progress(done.round, rounds)
            )
    content = {"seed": scenario.seeds[0], "bounds": {name: dataclasses.asdict(b) for name, b in found.items()}}
    write_summary(out, scenario, arrivals, (), content)
    print_table(bound_table(found))
    Console().print(
        (deadlines(scenario.router.core_objective(scenario.mode), scenario.mode) + " " if "attainment" in found else "")
        + f"No schedule of these requests passes `bound`: they run once each, uninterrupted. Relaxed were capacities, "
        f"added up over {grid} periods and over {'equal' if pooling == 'classes' else 'all'} devices. `in hindsight` "
        "is a schedule built from the LP, so the best possible lies between the two, and `gap` is the most that the "
        f"bound can be loose by. A true LP optimum lies between `bound` and `LP so far`.",
        soft_wrap=True,
    )
    if any(device.kind for device in scenario.fleet.devices):
        Console().print("Of each kind of device only slots and KV tokens count: an iteration is a period.")
    show_replaced(replaced, out)
    Console().print(f"Numbers are in {out}/summary.json", soft_wrap=True)


def bound_table(found: dict[str, HindsightBound]) -> Table:
    """One row per metric."""
    table = Table("metric", title="Hindsight bounds", title_justify="left")
    for name in ("bound", "in hindsight", "gap", "LP so far", "rounds", "columns"):
        table.add_column(name, justify="right")
    for name, entry in found.items():
        unit = (
            " (share)"
            if name == "finished"
            else f" ({shown_unit(METRICS[name].unit, 'period')})"
            if METRICS[name].unit
            else ""
        )
        values = (show_number(v) for v in (entry.bound, entry.achieved))
        gap = f"{100 * entry.looseness:.2g} %"
        table.add_row(name + unit, *values, gap, show_number(entry.lp_value), str(entry.rounds), str(entry.columns))
    return table
