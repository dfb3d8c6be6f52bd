"""One trial: a scenario becomes requests and a router, is simulated under each of its seeds, and becomes metrics.

The rate of arrivals is settled once for a scenario, before any seed runs, so that all seeds and policies meet the same
load.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from olp_ray.config import FleetConfig, Mode, RouterConfig
from olp_ray.config.build import build_priced_router, refuse_shards
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.core.explanation import Explanation
from olp_ray.core.priced_router import PricedRouter
from olp_ray.report.decision_times import summarise_calls
from olp_ray.report.metrics import summarise
from olp_ray.sim.observers import AskedRouter, PriceLog, TimedRouter
from olp_ray.sim.result import Result
from olp_ray.sim.simulate import saturation_rate, simulate
from olp_ray.workload.generators import generate
from olp_ray.workload.predictors import parse_predictor
from olp_ray.workload.request import SimRequest
from olp_ray.workload.requests import make_requests
from olp_ray.workload.traces import read_trace

# What a generated workload is when the scenario does not say: enough to fill the fleet, and more than it can serve.
GENERATED_REQUESTS = 2000
GENERATED_LOAD = 1.25

Missed = Sequence[tuple[int, Sequence[str]]]  # price updates that are lost: (update id, device ids)


class OpenRouter(Protocol):
    """Opens the router of one run."""

    def __call__(
        self, config: RouterConfig, fleet: FleetConfig, mode: Mode, seed: int, *, missed: Missed = ()
    ) -> AbstractContextManager[PricedRouter]: ...


Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Arrivals:
    """What the arrivals were rescaled to. rate None keeps a trace's own times; saturation is None unless it was needed.

    Both are in requests per second. saturation was measured on so many requests: other lengths, another saturation.
    """

    rate: float | None
    saturation: float | None
    measured_requests: int = 0


@dataclass(frozen=True)
class SeedRun:
    """One simulation: its tables and the metrics of `olp_ray.report.metrics.METRICS`.

    handle_times has one row per call of the router, by this machine's clock; prices is None unless asked for, with the
    timeline. answers are to what was asked of the router.
    """

    seed: int
    result: Result
    metrics: dict[str, float]
    handle_times: pd.DataFrame
    prices: pd.DataFrame | None
    answers: tuple[tuple[float, Explanation], ...] = ()

    @property
    def decision_time(self) -> dict[str, float]:
        """Wall time of the router's calls, as `olp_ray.report.decision_times` has it."""
        return summarise_calls(self.handle_times)


@dataclass(frozen=True)
class TrialOutcome:
    """All seeds of one scenario."""

    metrics: tuple[dict[str, float], ...]
    seeds: tuple[int, ...]

    def mean(self, name: str) -> float:
        """Mean of a metric over seeds."""
        return float(np.mean([metrics[name] for metrics in self.metrics]))

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per seed."""
        return [{"seed": seed, **metrics} for seed, metrics in zip(self.seeds, self.metrics, strict=True)]


@contextmanager
def inline_router(
    config: RouterConfig, fleet: FleetConfig, mode: Mode, seed: int, blocks: int | None = None, *, missed: Missed = ()
) -> Iterator[PricedRouter]:
    """A router whose prices are computed in this process, in `blocks` blocks of devices where that was asked for."""
    refuse_shards(config, blocks or 0)
    yield build_priced_router(config, fleet, mode, seed, blocks=blocks or 1, missed=missed)


def measures_load(scenario: ScenarioConfig) -> bool:
    """Whether the arrivals depend on what the fleet can serve."""
    if scenario.rate is not None or scenario.states_rates:
        return False
    return scenario.trace is None or scenario.load is not None


def settle_arrivals(scenario: ScenarioConfig, progress: Progress | None = None) -> Arrivals:
    """The rate that the scenario's `rate` or `load` means; measures the fleet's saturation throughput for a load."""
    if not measures_load(scenario):
        return Arrivals(scenario.rate, None)
    parse_predictor(scenario.predictor)  # not needed yet; a wrong name should not cost the time of measuring
    requests = scenario_requests(scenario.model_copy(update={"predictor": "perfect"}), 0, 1.0, rotate=False)
    saturation = saturation_rate(requests, scenario.fleet, scenario.mode, scenario.sim, progress)
    return Arrivals((scenario.load or GENERATED_LOAD) * saturation, saturation, len(requests))


def scenario_requests(
    scenario: ScenarioConfig, seed: int, rate: float | None, *, rotate: bool = True
) -> list[SimRequest]:
    """The requests of one seed, arriving at `rate` per second on average (None: at the trace's own times)."""
    predictor = parse_predictor(scenario.predictor)
    if scenario.trace is not None:
        return make_requests(
            _trace(scenario.trace),
            predictor,
            seed,
            count=scenario.requests,
            rate=rate,
            rotate=rotate,
            arrivals=scenario.arrivals,
        )
    frame = generate(
        scenario.workload,
        scenario.requests or GENERATED_REQUESTS,
        1.0 if rate is None else rate,
        seed,
        arrivals=scenario.arrivals,
        sessions=scenario.sessions,
        block_tokens=scenario.router.prefix_block_tokens,
    )
    think_times = scenario.sessions is not None  # are seconds: rescaling would stretch them
    return make_requests(frame, predictor, seed, rate=None if think_times else rate, rotate=False)


def run_seed(
    scenario: ScenarioConfig,
    seed: int,
    rate: float | None,
    *,
    open_router: OpenRouter = inline_router,
    timeline: bool = False,
    progress: Progress | None = None,
    questions: Sequence[tuple[float, str]] = (),
) -> SeedRun:
    """Simulate one seed. rate comes from `settle_arrivals`; progress is told (requests done, requests in all).

    questions are (time_s, request id); see `AskedRouter`.
    """
    settings = scenario.router.settings(scenario.mode)
    requests = scenario_requests(scenario, seed, rate)
    missed = scenario.sim.missed_updates
    prices = None
    with open_router(scenario.router, scenario.fleet, scenario.mode, seed, missed=missed) as router:
        if timeline:
            router.pricer = prices = PriceLog(router.pricer)
        asked = AskedRouter(router, questions)
        timed = TimedRouter(asked)
        result = simulate(
            requests,
            scenario.fleet,
            scenario.mode,
            timed,
            update_s=settings.online_lp.update_s,
            sim=scenario.sim,
            seed=seed,
            timeline=timeline,
            lengths=parse_predictor(scenario.predictor).learner(),
            progress=progress,
        )
        asked.finish()
    metrics = summarise(
        result.requests,
        ttft_threshold_s=settings.objective.ttft_threshold_s,
        e2e_threshold_s=settings.objective.e2e_threshold_s,
        end_s=result.end_s,
        utilisation=result.utilisation,
    )
    logged = None if prices is None else prices.frame()
    return SeedRun(seed, result, metrics, timed.frame(), logged, tuple(asked.answers))


def run_trial(scenario: ScenarioConfig) -> TrialOutcome:
    """Every seed of a scenario, one after the other."""
    rate = settle_arrivals(scenario).rate
    return TrialOutcome(tuple(run_seed(scenario, seed, rate).metrics for seed in scenario.seeds), scenario.seeds)


@functools.lru_cache(maxsize=1)
def _trace(path: str) -> pd.DataFrame:
    """A process that runs many trials reads its trace once."""
    return read_trace(path)
