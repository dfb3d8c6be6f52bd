"""Many policies on one scenario: every policy meets the same requests, seed by seed, in parallel processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from olp_ray.config.scenario import ScenarioConfig
from olp_ray.errors import ConfigError
from olp_ray.report.plots import plot_comparison, plot_latency_cdfs
from olp_ray.sim.records import write_parquet
from olp_ray.sweep.outputs import write_summary
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


class Task(NamedTuple):
    """One run: a policy (as it was asked for) under one seed, and where its tables go."""

    policy: str
    scenario: ScenarioConfig
    seed: int
    rate: float | None
    folder: Path


@dataclass(frozen=True)
class Comparison:
    """runs has one row per policy and seed (policy, seed, metrics), in the order asked for."""

    runs: pd.DataFrame
    arrivals: Arrivals
    figures: tuple[Path, ...]


def compare(
    scenario: ScenarioConfig,
    policies: Sequence[str],
    out: str | Path,
    *,
    workers: int | None = None,
    open_router: OpenRouter | None = None,
    on_arrivals: Callable[[Arrivals], None] = lambda arrivals: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """Run every policy (`NAME` or `NAME:preset`) under every seed of the scenario; tables and figures go to `out`.

    `out` gets results.parquet (one row per run), summary.json, the figures, and the tables of each run under `runs/`.
    Runs go to `workers` processes, one per CPU by default; with `open_router` they stay in this process. on_arrivals
    is told the settled arrival rate, progress the (runs done, runs in all). A script that calls this needs the usual
    `if __name__ == "__main__":` guard of multiprocessing. Raises `ConfigError` for an unknown policy, before any run.
    """
    if len(set(policies)) < len(policies):
        raise ConfigError(f"policies {', '.join(policies)}: each may be given once")
    out = Path(out)
    scenarios = {p: scenario.model_copy(update={"router": scenario.router.with_policy(p)}) for p in policies}
    out.mkdir(parents=True, exist_ok=True)
    arrivals = settle_arrivals(scenario)
    on_arrivals(arrivals)
    tasks = [
        Task(policy, scenarios[policy], seed, arrivals.rate, out / "runs" / f"{policy.replace(':', '-')}-seed{seed}")
        for policy in policies
        for seed in scenario.seeds
    ]
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    progress(0, len(tasks))
    for task, metrics in _run_all(tasks, workers, open_router):
        rows[task.policy, task.seed] = {"policy": task.policy, "seed": task.seed, **metrics}
        progress(len(rows), len(tasks))
    runs = pd.DataFrame([rows[task.policy, task.seed] for task in tasks])
    return Comparison(runs, arrivals, _write(runs, tasks, scenario, arrivals, out))


def _run_all(
    tasks: Sequence[Task], workers: int | None, open_router: OpenRouter | None
) -> Iterable[tuple[Task, dict[str, float]]]:
    workers = min(workers or os.cpu_count() or 1, len(tasks))
    if open_router is not None or workers == 1:
        for task in tasks:
            yield task, run_task(task, open_router or inline_router)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(run_task, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def run_task(task: Task, open_router: OpenRouter = inline_router) -> dict[str, float]:
    """Simulate one run, write its tables, return its metrics."""
    run = run_seed(task.scenario, task.seed, task.rate, open_router=open_router)
    run.result.save(task.folder)
    return run.metrics


def _write(
    runs: pd.DataFrame, tasks: Sequence[Task], scenario: ScenarioConfig, arrivals: Arrivals, out: Path
) -> tuple[Path, ...]:
    write_parquet(runs, out / "results.parquet")
    write_summary(out, scenario, arrivals, {"runs": runs.to_dict("records")})
    first = {task.policy: task.folder / "requests.parquet" for task in reversed(tasks)}
    return (
        plot_comparison(out / "results.parquet", out / "comparison.png"),
        plot_latency_cdfs(dict(reversed(first.items())), out / "latency.png"),
    )
