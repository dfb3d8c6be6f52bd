"""One simulation per (cell, variant, entry, seed), run in parallel processes and remembered as one small file each.

A file is current while its key is: the digest of the cell, the router's settings, the seed, the length of the run, the
lengths drawn from, and the source code that can matter to it. Nothing is compared here.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import olp_ray
from benchmarks.quality.cells import Cell, PeriodCell, TimedCell, period_workload
from benchmarks.quality.entries import effective_variant, router_config
from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.report.metrics import summarise
from olp_ray.sim.result import Result
from olp_ray.sim.simulate import simulate
from olp_ray.sweep.trial import run_seed, settle_arrivals
from olp_ray.workload.predictors import parse_predictor
from olp_ray.workload.requests import make_requests

WAIT_LIMIT = 4.0  # E2E thresholds: the bound that the overload gate holds waits against, whatever the policy's own is
SOURCES = ("core", "sim", "workload", "report/metrics.py")
# what no baseline's outcome can depend on; the numbers in config count through the settings
ONLY_OURS = (
    "core/policies/online_lp*", "core/policies/price_updates.py", "core/policies/appraisal.py", "core/prices.py",
    "core/paper_prices.py", "core/exact_prices.py", "core/hindsight.py", "core/period_model.py", "core/packing.py",
    "core/history.py", "core/fairness.py", "core/policies/settings.py",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """periods is how long requests arrive in period cells; rate is settled before for timed cells."""

    cell: Cell
    variant: str
    entry: str
    seed: int
    periods: int
    traces: Path | None
    out: Path
    rate: float | None = None
    router: RouterConfig | None = None  # None: the entry's

    @property
    def config(self) -> RouterConfig:
        return self.router or router_config(self.entry, self.variant)

    @property
    def path(self) -> Path:
        name = f"{self.entry.replace(':', '-')}-s{self.seed}.json"
        return self.out / "runs" / self.cell.name / self.variant / name

    @property
    def key(self) -> str:
        timed = isinstance(self.cell, TimedCell)
        mode = "timed" if timed else "period"
        settings = self.config.settings(mode)
        known: dict[str, Any] = {
            "cell": dataclasses.asdict(self.cell),
            "policy": self.config.policy,
            "settings": _what_matters(self.config, settings),
            "seed": self.seed,
            "length": self.rate if timed else self.periods,
            "lengths": "trace" if self.traces else "built in",
            "code": code_version(self.entry),
        }
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def _what_matters(config: RouterConfig, settings: PolicySettings) -> dict[str, Any]:
    if config.policy.startswith("online_lp"):
        return dataclasses.asdict(settings)
    lp = settings.online_lp
    return {
        "objective": dataclasses.asdict(settings.objective),
        "aged_length_weight": settings.aged_length_weight,
        **{name: getattr(lp, name) for name in ("update_s", "remaining_quantile", "prefill_ahead_s")},
        **(
            {"rejects": settings.rejects, "max_wait_s": lp.max_wait_s, "guard": lp.guard}
            if settings.rejects != "never"
            else {}
        ),
    }


@functools.lru_cache(maxsize=2)
def _source_digest(ours: bool) -> str:
    package = Path(olp_ray.__file__).parent
    files = sorted(
        file for name in SOURCES for file in ([package / name] if "." in name else package.glob(f"{name}/**/*.py"))
    )
    digest = hashlib.sha256()
    for file in files:
        name = file.relative_to(package)
        if ours or not any(name.match(pattern) for pattern in ONLY_OURS):
            digest.update(str(name).encode() + file.read_bytes())
    return digest.hexdigest()[:10]


def code_version(entry: str) -> str:
    """Digest of the source files that the entry's outcome can depend on."""
    return _source_digest(entry.startswith("online_lp"))


def is_current(task: Task, any_version: bool = False) -> bool:
    """Whether the task's file is there and says what a run would say now (or, with any_version, said once)."""
    if not task.path.exists():
        return False
    return any_version or bool(json.loads(task.path.read_text())["key"] == task.key)


def run_task(task: Task) -> dict[str, Any]:
    """Simulate, write the file, return what is in it."""
    began = time.process_time()
    metrics = _period_metrics(task, task.cell) if isinstance(task.cell, PeriodCell) else _timed_metrics(task, task.cell)
    row = {
        "cell": task.cell.name,
        "variant": task.variant,
        "entry": task.entry,
        "seed": task.seed,
        "periods": task.periods if isinstance(task.cell, PeriodCell) else None,
        "key": task.key,
        "code": code_version(task.entry),
        "cpu_s": round(time.process_time() - began, 2),
        "max_wait_limit_s": WAIT_LIMIT * task.config.core_objective("timed" if task.rate else "period").e2e_threshold_s,
        "metrics": metrics,
    }
    task.path.parent.mkdir(parents=True, exist_ok=True)
    draft = task.path.with_suffix(".tmp")
    draft.write_text(json.dumps(row))
    draft.replace(task.path)
    return row


def _period_metrics(task: Task, cell: PeriodCell) -> dict[str, float]:
    frame = period_workload(cell, task.periods, task.seed, task.traces)
    predictor = parse_predictor(cell.predictor)
    requests = make_requests(frame, predictor, task.seed, rotate=False)
    fleet = FleetConfig.parse(cell.fleet)
    settings = task.config.settings("period")
    router = build_priced_router(task.config, fleet, "period", task.seed)
    lengths = predictor.learner()
    result = simulate(requests, fleet, "period", router, update_s=settings.online_lp.update_s, lengths=lengths)
    objective = settings.objective
    metrics = summarise(
        result.requests,
        ttft_threshold_s=objective.ttft_threshold_s,
        e2e_threshold_s=objective.e2e_threshold_s,
        end_s=result.end_s,
        utilisation=result.utilisation,
    )
    return metrics | in_time(result, float(task.periods))


def in_time(result: Result, end_s: float) -> dict[str, float]:
    """What was finished while requests still arrived: drained runs all produce the same tokens in the end."""
    table = result.requests
    done = table[table["finish_s"] <= end_s]
    return {
        "tokens_in_time_per_s": float(done["generated_tokens"].sum() / end_s),
        "finished_in_time": float(len(done) / max(1, len(table))),
    }


def scenario(cell: TimedCell, traces: Path, router: RouterConfig, seeds: Sequence[int]) -> ScenarioConfig:
    return ScenarioConfig(
        trace=str(traces / cell.trace),
        requests=cell.requests,
        load=cell.load,
        fleet=FleetConfig.parse(cell.fleet),
        predictor=cell.predictor,
        seeds=tuple(seeds),
        router=router,
    )


def _timed_metrics(task: Task, cell: TimedCell) -> dict[str, float]:
    assert task.traces is not None
    run = run_seed(scenario(cell, task.traces, task.config, [task.seed]), task.seed, task.rate)
    last_arrival_s = float(run.result.requests["arrival_s"].max())
    return run.metrics | in_time(run.result, last_arrival_s)


def settle_rate(cell: TimedCell, traces: Path, out: Path) -> float:
    """Arrivals per second that the cell's load means; measured once per trace and fleet, and kept."""
    path = out / "saturation" / f"{cell.trace}-{cell.fleet}-{cell.requests}.json"
    if not path.exists():
        saturation = settle_arrivals(scenario(cell, traces, RouterConfig(), [0])).saturation
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(saturation))
    return cell.load * float(json.loads(path.read_text()))


def plan(
    cells: Iterable[Cell], entries: dict[str, Sequence[str]], seeds: Sequence[int], periods: int,
    traces: Path | None, out: Path,
) -> list[Task]:  # fmt: skip
    """Tasks of all cells, variant -> entries; seed by seed, so that a stopped run has whole seeds."""
    tasks: dict[Path, Task] = {}
    for cell in cells:
        rate = None
        if isinstance(cell, TimedCell):
            assert traces is not None
            rate = settle_rate(cell, traces, out)
        for seed in seeds:
            for variant, names in entries.items():
                for entry in names:
                    task = Task(cell, effective_variant(entry, variant), entry, seed, periods, traces, out, rate)
                    tasks[task.path] = task
    return sorted(tasks.values(), key=lambda task: seeds.index(task.seed))


def run_all(tasks: Sequence[Task], workers: int, progress: Callable[[int, int, Task], None]) -> None:
    """Run tasks in `workers` processes; a failure stops the rest."""
    for done, task in enumerate(_run(tasks, workers), 1):
        progress(done, len(tasks), task)


def _run(tasks: Sequence[Task], workers: int) -> Iterator[Task]:
    if workers == 1:
        for task in tasks:
            run_task(task)
            yield task
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(run_task, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def read_runs(out: Path) -> pd.DataFrame:
    """All rows that were run: cell, variant, entry, seed, periods, code, max_wait_limit_s and the metrics."""
    rows = []
    for path in sorted(out.glob("runs/*/*/*.json")):
        row = json.loads(path.read_text())
        rows.append({**{k: v for k, v in row.items() if k != "metrics"}, **row["metrics"]})
    frame = pd.DataFrame(rows)
    return frame if len(frame) else pd.DataFrame(columns=["cell", "variant", "entry", "seed", "code", np.nan])
