"""A sweep on Ray Tune: a trial for each point of a space, into one results.parquet. The only file here with Ray.

Trials reuse their actors, so a trial costs its simulation and little more. A sweep that was interrupted goes on where
it stopped when it is run again with the same file and folder.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import ray
from ray import tune

from olp_ray.config.base import nearest
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.config.sweep import Axis, SweepConfig
from olp_ray.errors import ConfigError, RuntimeShellError
from olp_ray.report.metrics import METRICS
from olp_ray.sweep.results import PARAM, write_results
from olp_ray.sweep.space import Point, fixed_points, router_at
from olp_ray.sweep.trial import run_trial, settle_arrivals

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class SweepOutcome:
    """Where the results are, how many trials they hold, and what went wrong in those that failed."""

    results: Path
    trials: int
    failures: tuple[str, ...]


class SweepTrial(tune.Trainable):
    """One point of the space under every seed of the scenario."""

    def setup(self, config: dict[str, Any]) -> None:
        self._scenario = ScenarioConfig.model_validate_json(config["scenario"])
        self._objectives: list[str] = config["objectives"]
        self._point: Point = config["point"]

    def step(self) -> dict[str, Any]:
        router = router_at(self._scenario.router, self._point)
        outcome = run_trial(self._scenario.model_copy(update={"router": router}))
        means = {name: outcome.mean(name) for name in self._objectives}
        return {**means, "rows": outcome.rows(), "done": True}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True


def run_sweep(sweep: SweepConfig, out: str | Path, progress: Progress = lambda done, total: None) -> SweepOutcome:
    """Run (or go on with) a sweep and write `results.parquet` into `out`.

    progress is told (trials done, trials in all). A point that no router can have, or a folder with another sweep in
    it, raises `ConfigError` before anything runs; when every trial fails, `RuntimeShellError` says why the first did.
    """
    out = Path(out).resolve()
    for name in sweep.objectives:
        if name not in METRICS:
            raise ConfigError(f"objectives: {name!r} is no metric{nearest(name, METRICS)}")
    points = fixed_points(sweep)
    for point in points or ():
        router_at(sweep.scenario.router, point).settings(sweep.scenario.mode)
    _claim_folder(out, sweep)
    total = len(points) if points is not None else sweep.search.trials
    assert total is not None
    _Counter.tell = lambda done: progress(done, total)
    with _ray(sweep.workers):
        grid = _tuner(sweep, points, out).fit()
    return _collect(grid, sweep, out, total)


def _claim_folder(out: Path, sweep: SweepConfig) -> None:
    """Remember whose folder this is; resuming is only for the same sweep."""
    out.mkdir(parents=True, exist_ok=True)
    file, text = out / "sweep.json", sweep.model_dump_json(indent=1)
    if file.exists() and file.read_text() != text:
        raise ConfigError(f"{out}: holds the results of another sweep; choose another --out, or delete it")
    file.write_text(text)


@contextmanager
def _ray(workers: int | None) -> Iterator[None]:
    """The Ray that is there, or the cluster of RAY_ADDRESS, or a local one with a CPU for each trial at a time."""
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # with the new output, Tune prints tables whatever `verbose` says
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # failed trials are told by `_collect`
    if ray.is_initialized():
        yield
        return
    local: dict[str, Any] = {"num_cpus": workers or os.cpu_count() or 1, "include_dashboard": False}
    where = {} if os.environ.get("RAY_ADDRESS") else local
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **where)
    try:
        yield
    finally:
        ray.shutdown()


def _tuner(sweep: SweepConfig, points: list[Point] | None, out: Path) -> tune.Tuner:
    folder = out / "tune"
    if tune.Tuner.can_restore(str(folder)):
        return tune.Tuner.restore(str(folder), SweepTrial, resume_errored=True)
    config: dict[str, Any] = {
        "scenario": _settled(sweep.scenario).model_dump_json(),
        "objectives": list(sweep.objectives),
    }
    search, samples = None, 1
    if points is not None:
        config["point"] = tune.grid_search(points)
    else:
        assert sweep.search.trials is not None
        search, samples = _optuna(sweep), sweep.search.trials
    return tune.Tuner(
        SweepTrial,
        param_space=config,
        tune_config=tune.TuneConfig(
            search_alg=search,
            num_samples=samples,
            reuse_actors=True,
            max_concurrent_trials=sweep.workers,
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(out),
            verbose=0,
            callbacks=[_Counter()],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )


def _settled(scenario: ScenarioConfig) -> ScenarioConfig:
    """The scenario with its load as a rate, measured once for all trials, and a trace path that holds in any folder."""
    trace = None if scenario.trace is None else str(Path(scenario.trace).resolve())
    return scenario.model_copy(update={"trace": trace, "load": None, "rate": settle_arrivals(scenario).rate})


def _optuna(sweep: SweepConfig) -> Any:
    """Multi-objective search by Optuna's TPE; what it proposes depends on the order in which trials end."""
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {f"point/{key}": _distribution(axis) for key, axis in sweep.space.items()}
    ways = list(sweep.objectives.values())
    return OptunaSearch(space, metric=list(sweep.objectives), mode=ways, seed=sweep.search.seed)


def _distribution(axis: Axis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if axis.values is not None:
        return CategoricalDistribution(axis.values)
    assert axis.low is not None
    assert axis.high is not None
    return FloatDistribution(axis.low, axis.high, log=axis.log)


class _Counter(tune.Callback):
    """Tells how many trials are over.

    Tune pickles its callbacks for resuming, and a progress bar can not be pickled: it is kept on the class.
    """

    tell: ClassVar[Callable[[int], None]]

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        type(self).tell(sum(trial.is_finished() for trial in trials))


def _collect(grid: Any, sweep: SweepConfig, out: Path, total: int) -> SweepOutcome:
    failures = tuple(str(result.error).strip().splitlines()[-1] for result in grid if result.error is not None)
    done = [result for result in grid if result.error is None and "rows" in (result.metrics or {})]
    if len(done) + len(failures) < total:
        raise RuntimeShellError(f"interrupted after {len(done)} of {total} trials; run the same command again to go on")
    if not done:
        raise RuntimeShellError(f"all {len(failures)} trials failed; the first: {failures[0]}")
    rows: list[Mapping[str, Any]] = []
    for trial, result in enumerate(sorted(done, key=_order)):
        params = {PARAM + key: value for key, value in result.config["point"].items()}
        rows += [{"trial": trial, **params, **row} for row in result.metrics["rows"]]
    write_results(out / "results.parquet", rows, sweep.objectives)
    return SweepOutcome(out / "results.parquet", len(done), failures)


def _order(result: Any) -> tuple[list[float], float]:
    """Trials are numbered by their point; equal points in the order in which they ended."""
    return list(result.config["point"].values()), result.metrics["timestamp"]
