"""`olp-ray compare`."""

from __future__ import annotations

import click
from rich.console import Console

from olp_ray.cli.options import out_option, runtime_options, scenario_options, with_seeds
from olp_ray.cli.output import print_table, progress_bar, show_arrivals
from olp_ray.config.base import nearest
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.errors import ConfigError
from olp_ray.report.metrics import METRICS
from olp_ray.report.tables import comparison_table
from olp_ray.sweep.compare import DEFAULT_POLICIES
from olp_ray.sweep.compare import compare as run_comparison
from olp_ray.sweep.trial import OpenRouter


@click.command()
@scenario_options
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[:PRESET]",
    help=f"May be given many times.  [{', '.join(DEFAULT_POLICIES)}]",
)
@click.option("--seeds", type=int, metavar="N", help="Run seeds 0 to N-1.  [3]")
@click.option("--metric", default="attainment", show_default=True, help="Sort by this metric.")
@click.option("--reference", metavar="NAME", help="Policy that the others are compared with.  [the first one]")
@click.option("--workers", type=int, metavar="N", help="Processes.  [one per CPU]")
@runtime_options
@out_option
def compare(
    scenario: ScenarioConfig,
    policies: tuple[str, ...],
    seeds: int | None,
    metric: str,
    reference: str | None,
    workers: int | None,
    open_router: OpenRouter | None,
    out: str,
) -> None:
    """Compare policies over seeds: each meets the same requests.

    The table is sorted by --metric; beside it stands the difference to the reference with its 95 % confidence interval
    over paired seeds. Rejected, unfinished and never-started requests count as misses.

    \b
    Examples:
      olp-ray compare                        # generated chats on 4 x A100, under a minute
      olp-ray compare --trace trace.csv --fleet 4xa100-8b --load 1.0 --seeds 5 --out o
      olp-ray compare --policy round_robin --policy online_lp:attainment --metric attainment
      olp-ray compare --scenario scenario.yaml --load 1.2

    Writes results.parquet (one row per run), summary.json, comparison.png and latency.png to --out, and the tables of
    each run to --out/runs.
    """
    policies = policies or DEFAULT_POLICIES
    reference = policies[0] if reference is None else reference
    _check(metric, METRICS, "--metric")
    _check(reference, policies, "--reference")
    if seeds is not None:
        scenario = with_seeds(scenario, range(seeds))
    with progress_bar("measuring what the fleet can serve") as progress:
        result = run_comparison(
            scenario,
            policies,
            out,
            workers=workers,
            open_router=open_router,
            on_arrivals=show_arrivals,
            progress=progress,
        )
    print_table(comparison_table(result.runs, sort_by=metric, reference=reference))
    objective = scenario.router.core_objective(scenario.mode)
    Console().print(
        f"In time: TTFT below {objective.ttft_threshold_s:g} s and E2E below {objective.e2e_threshold_s:g} s. "
        "Latencies are of the requests that were served; `SLO met` counts all others as misses. "
        "Counts are means over seeds. "
        "Policies with the preset `attainment` reject what is too late, the others serve everything.",
        soft_wrap=True,
    )
    Console().print(f"Tables are in {out}. Open {result.figures[0]}", soft_wrap=True)


def _check(name: str, valid: object, flag: str) -> None:
    if name not in valid:  # type: ignore[operator]
        raise ConfigError(f"command line: {flag}: {name!r} is unknown{nearest(name, valid)}")
