"""Many policies on one scenario: every policy meets the same requests, seed by seed, in parallel processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from olp_ray.config import Mode
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.errors import ConfigError
from olp_ray.report.metrics import METRICS
from olp_ray.report.plots import USUAL as DRAWN_ALWAYS
from olp_ray.report.plots import plot_comparison, plot_latency_cdfs
from olp_ray.sim.records import write_parquet
from olp_ray.sweep.bound import USUAL, check_bounded, scenario_bound
from olp_ray.sweep.compiling import waits
from olp_ray.sweep.outputs import claim_folder, write_summary
from olp_ray.sweep.parallel import Tell, run_jobs
from olp_ray.sweep.trial import Arrivals, OpenRouter, inline_router, run_seed, settle_arrivals

DEFAULT_POLICIES = (
    "round_robin",
    "least_outstanding",
    "central_fifo",
    "sjf_reservation",
    "on_time_sjf:attainment",
    "online_lp",
    "online_lp:e2e",
    "online_lp:attainment",
)
FIGURES = ("comparison.png", "latency.png")


class Task(NamedTuple):
    """One run: a policy (as it was asked for) under one seed, and where its tables go."""

    policy: str
    scenario: ScenarioConfig
    seed: int
    rate: float | None
    folder: Path


class Outcome(NamedTuple):
    """What a task's process sends back."""

    metrics: dict[str, float]
    decision_time: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """runs has one row per policy and seed (policy, seed, metrics), in the order asked for.

    With a bound, runs has two more columns: `bound`, the hindsight bound of the asked metric under that seed, and
    `regret`, by how much the run is worse, NaN where the two do not speak of the same requests. decision_times has
    policy, seed and the wall times of `olp_ray.report.decision_times`. replaced counts the files of an earlier
    comparison that made way.
    """

    runs: pd.DataFrame
    decision_times: pd.DataFrame
    arrivals: Arrivals
    figures: tuple[Path, ...]
    replaced: int


def compare(
    scenario: ScenarioConfig,
    policies: Sequence[str],
    out: str | Path,
    *,
    workers: int | None = None,
    open_router: OpenRouter | None = None,
    metric: str = "attainment",
    bound: bool = False,
    on_arrivals: Callable[[Arrivals], None] = lambda arrivals: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    tell: Tell = lambda done, total: None,
) -> Comparison:
    """Run every policy (`NAME` or `NAME:preset`) under every seed of the scenario; tables and figures go to `out`.

    `out` gets results.parquet (one row per run), decision_times.parquet, summary.json, the figures, and the tables of
    each run under `runs/`; what an earlier comparison wrote there is replaced. Runs go to `workers` processes, one per
    CPU by default; with `open_router` they stay in this process. metric is drawn beside the usual ones; with bound its
    hindsight bound is computed too. on_arrivals is told the settled arrival rate, progress the (jobs done, jobs in
    all), tell the same in parts, while measuring and while running. A script that calls this needs the usual
    `if __name__ == "__main__":` guard of multiprocessing. Raises `ConfigError` for an unknown policy or a metric
    without a bound, before any run.
    """
    if len(set(policies)) < len(policies):
        raise ConfigError(f"policies {', '.join(policies)}: each may be given once")
    if bound:
        check_bounded(scenario, [metric])
    out = Path(out)
    scenarios = {p: scenario.model_copy(update={"router": scenario.router.with_policy(p)}) for p in policies}
    names = {(p, s): f"runs/{p.replace(':', '-')}-seed{s}" for p in policies for s in scenario.seeds}
    tables = [f"{folder}/{table}.parquet" for folder in names.values() for table in ("requests", "decisions")]
    files = ("results.parquet", "decision_times.parquet", *FIGURES, *tables)
    replaced = claim_folder(out, files)
    arrivals = settle_arrivals(scenario, tell)
    on_arrivals(arrivals)
    tasks = [Task(p, scenarios[p], seed, arrivals.rate, out / folder) for (p, seed), folder in names.items()]
    jobs: list[Callable[[Tell], Any]] = [functools.partial(run_task, task, open_router=open_router) for task in tasks]
    if bound:
        jobs += [functools.partial(_bound_of, scenario, seed, arrivals.rate, metric) for seed in scenario.seeds]
    results: dict[int, Any] = {}
    progress(0, len(jobs))
    order = waits([task.scenario.router for task in tasks], scenario.mode)
    for index, result in run_jobs(jobs, 1 if open_router is not None else workers, tell, order):
        results[index] = result
        progress(len(results), len(jobs))
    runs, times = (
        pd.DataFrame([{"policy": t.policy, "seed": t.seed, **results[i][part]} for i, t in enumerate(tasks)])
        for part in range(2)
    )
    if bound:
        by_seed = {seed: results[len(tasks) + i] for i, seed in enumerate(scenario.seeds)}
        runs = with_regret(runs, metric, by_seed)
    write_parquet(runs, out / "results.parquet")
    write_parquet(times, out / "decision_times.parquet")
    content = {
        "runs": runs.to_dict("records"),
        "decision_times": times.to_dict("records"),
        "bounded": metric if bound else None,
    }
    write_summary(out, scenario, arrivals, files, content)
    figures = _figures(tasks, metric, scenario.mode, out, bound)
    return Comparison(runs, times, arrivals, figures, replaced)


def run_task(task: Task, tell: Tell, *, open_router: OpenRouter | None = None) -> Outcome:
    """Simulate one run, write its tables, return its numbers."""
    run = run_seed(task.scenario, task.seed, task.rate, open_router=open_router or inline_router, progress=tell)
    run.result.save(task.folder)
    return Outcome(run.metrics, run.decision_time)


def with_regret(runs: pd.DataFrame, metric: str, bounds: dict[int, float]) -> pd.DataFrame:
    """runs with the bound of its seed and the regret against it, both in the metric's unit, in every row.

    A mean latency speaks of the served requests and its bound of all of them, so a run that did not serve all has no
    regret in it. bounds has shares per request where the metric counts requests.
    """
    bound = runs["seed"].map(bounds) * (runs["requests"] if metric == "finished" else 1.0)
    if METRICS[metric].better == "higher":
        regret = bound - runs[metric]
    else:
        regret = (runs[metric] - bound).where(runs["finished"] == runs["requests"])
    return runs.assign(bound=bound, regret=regret)


def _bound_of(scenario: ScenarioConfig, seed: int, rate: float | None, metric: str, tell: Tell) -> float:
    found = scenario_bound(scenario, seed, rate, metric, progress=lambda done: tell(done.round, USUAL.max_rounds))
    return found.bound


def _figures(tasks: Sequence[Task], metric: str, mode: Mode, out: Path, bound: bool) -> tuple[Path, ...]:
    seeds = list(dict.fromkeys(task.seed for task in tasks))
    title = f"seed {seeds[0]}" + (f", the first of {len(seeds)}" if len(seeds) > 1 else "")
    first = {task.policy: task.folder / "requests.parquet" for task in reversed(tasks)}
    drawn = tuple(dict.fromkeys((*DRAWN_ALWAYS, metric)))
    return (
        plot_comparison(out / "results.parquet", out / FIGURES[0], drawn, mode, metric if bound else None),
        plot_latency_cdfs(dict(reversed(first.items())), out / FIGURES[1], mode, title),
    )
