"""`olp-ray compare`."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console

from olp_ray.cli.options import out_option, runtime_options, scenario_options, with_seeds
from olp_ray.cli.output import COMPILING, deadlines, print_table, progress_bar, show_arrivals, show_replaced
from olp_ray.config.base import nearest
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.core.policies import build_policy
from olp_ray.errors import ConfigError
from olp_ray.report.metrics import METRICS
from olp_ray.report.tables import Fitted, comparison_table
from olp_ray.sweep.bound import USUAL
from olp_ray.sweep.compare import DEFAULT_POLICIES
from olp_ray.sweep.compare import compare as run_comparison
from olp_ray.sweep.compiling import compiles
from olp_ray.sweep.trial import Arrivals, OpenRouter


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
@click.option(
    "--bound", "with_bound", is_flag=True, help="Add the metric's hindsight bound and the regret (mode period)."
)
@click.option("--workers", type=int, metavar="N", help="Processes.  [one per CPU]")
@runtime_options
@out_option("compare")
def compare(
    scenario: ScenarioConfig,
    policies: tuple[str, ...],
    seeds: int | None,
    metric: str,
    reference: str | None,
    with_bound: bool,
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
      olp-ray compare --scenario scenarios/failures.yaml --load 1.2
      olp-ray compare --mode period --fleet 4xB24M40000 --rate 0.5 --requests 500 --bound

    Writes results.parquet (one row per run), decision_times.parquet, summary.json, comparison.png and latency.png to
    --out, and the tables of each run to --out/runs. What an earlier run wrote there is replaced.
    """
    policies = policies or DEFAULT_POLICIES
    reference = policies[0] if reference is None else reference
    _check(metric, METRICS, "--metric")
    _check(reference, policies, "--reference")
    if seeds is not None:
        scenario = with_seeds(scenario, range(seeds))
    with progress_bar("measuring what the fleet can serve") as bar:
        if compiles(scenario, [scenario.router.with_policy(name) for name in policies]):
            bar.say(COMPILING)

        def settled(arrivals: Arrivals) -> None:
            show_arrivals(arrivals, scenario.mode)
            bar.now("running policies")

        result = run_comparison(
            scenario,
            policies,
            out,
            workers=workers,
            open_router=open_router,
            metric=metric,
            bound=with_bound,
            on_arrivals=settled,
            tell=bar,
        )
    console = Console()
    table = comparison_table(
        result.runs,
        sort_by=metric,
        reference=reference,
        mode=scenario.mode,
        width=console.width,
        times=result.decision_times,
    )
    print_table(table.table)
    for line in [_names(scenario, policies, reference), *_notes(scenario, policies, table, with_bound, out)]:
        console.print(line, soft_wrap=True)
    show_replaced(result.replaced, out)
    console.print(f"Tables are in {out}. Open {result.figures[0]}", soft_wrap=True)


def _names(scenario: ScenarioConfig, policies: Sequence[str], reference: str) -> str:
    """What the short names in the table stand for."""
    line = (
        f"`vs reference` is the difference to {reference} in % of its mean, with the 95 % interval over paired seeds "
        "from two seeds on."
    )
    bare = [name for name in policies if ":" not in name]
    if bare:
        example = "online_lp" if "online_lp" in bare else bare[-1]
        preset = scenario.router.preset
        line += f" Where no preset is named it is `{preset}`: {example} is {example}:{preset}."
    return line


def _notes(scenario: ScenarioConfig, policies: Sequence[str], table: Fitted, with_bound: bool, out: str) -> list[str]:
    """What the table does not say itself."""
    objective = scenario.router.core_objective(scenario.mode)
    notes = [
        f"{deadlines(objective, scenario.mode)} Latencies are of the requests that were served; attainment (SLO met) "
        "counts all others as misses. "
        "Counts are means over seeds. " + rejection_note(scenario, policies)
    ]
    if not any(title.startswith("decide") for title in table.hidden):
        notes.append(
            "`decide` is the wall time of a router's call on this machine. Computing prices, or waiting for those of "
            "shards, is part of it, and the first calls of each process load compiled kernels."
        )
    if table.hidden:
        notes.append(
            f"No room here for: {', '.join(table.hidden)}. A terminal of {table.full_width} columns (or "
            f"COLUMNS={table.full_width}) shows them; all numbers are in {out}/results.parquet and "
            "decision_times.parquet."
        )
    if with_bound:
        notes.append(
            f"No schedule passes `bound`, computed with true lengths known beforehand: capacities added up over "
            f"{USUAL.grid_periods} periods and over equal devices. `regret` is the distance to it. "
            "`olp-ray bound` says by how much the bound can be loose."
        )
    if table.unbounded:
        notes.append(
            "* did not serve every request. Its mean is of those that it served and the bound's of all, so the two do "
            "not compare: it has no regret and stands below, whatever its mean. With `--rejects never` nothing is "
            "turned away for load."
        )
    return notes


def rejection_note(scenario: ScenarioConfig, policies: Sequence[str]) -> str:
    """Who of these policies rejects what; empty where none has a central queue."""
    if scenario.router.rejects is not None:
        return f"Every policy with a central queue rejects by `{scenario.router.rejects}`."
    by_rule: dict[str, list[str]] = {}
    for name in policies:
        config = scenario.router.with_policy(name)
        settings = config.settings(scenario.mode)
        if build_policy(config.policy, settings).holding:
            by_rule.setdefault(settings.rejects, []).append(f"`{name}`")
    late, nothing = by_rule.get("deadline", []), by_rule.get("never", [])
    parts = []
    if late or "max_wait" in by_rule:
        parts.append("a request that waited for the starvation bound is rejected where capacity can not hold it")
    if late:
        parts.append(f"{_listed(late)} also {'rejects' if len(late) == 1 else 'reject'} what is too late")
    if nothing:
        parts.append(f"{_listed(nothing)} {'serves' if len(nothing) == 1 else 'serve'} everything")
    if not parts:
        return ""
    text = "; ".join(parts)
    advice = " `--rejects never` serves everything." if set(by_rule) != {"never"} else ""
    return f"{text[0].upper()}{text[1:]}.{advice}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _check(name: str, valid: object, flag: str) -> None:
    if name not in valid:  # type: ignore[operator]
        raise ConfigError(f"command line: {flag}: {name!r} is unknown{nearest(name, valid)}")
