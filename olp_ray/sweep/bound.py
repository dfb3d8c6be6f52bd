"""Hindsight bounds of a scenario: its requests and fleet as a period-model instance, and the metric to be bounded.

The mathematics is in `olp_ray.core.hindsight`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from olp_ray.config import nearest
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.core.hindsight import HindsightBound, Pooling, Progress, hindsight_bound
from olp_ray.core.period_model import Metric, PeriodInstance
from olp_ray.errors import ConfigError
from olp_ray.sweep.trial import scenario_requests
from olp_ray.workload.request import SimRequest

# metric of a run -> what the bound calls it; the means are those of a run that serves every request
BOUNDED: Mapping[str, Metric] = {
    "e2e_mean_s": Metric.MEAN_E2E,
    "ttft_mean_s": Metric.MEAN_TTFT,
    "attainment": Metric.ATTAINMENT,
    "finished": Metric.COMPLETED,
}
DRAIN_PERIODS = 1000  # how far after the last arrival the bound counts capacity; beyond it room is unlimited


class Effort(NamedTuple):
    """How hard the bound is tried: grid and pooling relax the LP, the others end its rounds."""

    grid_periods: int = 16
    pooling: Pooling = "classes"
    tolerance: float = 5e-3
    max_rounds: int = 25


USUAL = Effort()


def check_bounded(scenario: ScenarioConfig, metrics: Sequence[str]) -> None:
    """Raise `ConfigError` where a metric of this scenario has no hindsight bound."""
    if scenario.mode != "period":
        raise ConfigError(
            f"mode {scenario.mode}: the hindsight bound is a linear program over start times, so it needs iterations "
            "of one length, as in the period model; those of timed mode grow with the batch, so in timed mode there is "
            "none; add mode period, with a rate per period, or a load; of the fleet, slots and KV tokens count then"
        )
    for name in metrics:
        if name not in BOUNDED:
            raise ConfigError(f"metric {name!r} has no hindsight bound{nearest(name, BOUNDED)}")
        if name == "finished" and scenario.sim.horizon_s is None:
            raise ConfigError("metric 'finished' is bounded with a sim.horizon_s only; without one all finish")
        if BOUNDED[name].is_cost and scenario.sim.horizon_s is not None:
            raise ConfigError(f"metric {name!r} has no bound with a sim.horizon_s: it speaks of what was served only")


def bound_metrics(scenario: ScenarioConfig) -> tuple[str, ...]:
    """The metrics that have a bound in this scenario."""
    return ("attainment", "finished") if scenario.sim.horizon_s is not None else tuple(BOUNDED)[:3]


def scenario_bound(
    scenario: ScenarioConfig,
    seed: int,
    rate: float | None,
    metric: str,
    effort: Effort = USUAL,
    progress: Callable[[Progress], None] | None = None,
) -> HindsightBound:
    """The bound of one seed's requests, known beforehand with their true lengths; rate as for `run_seed`.

    Its value is per request: `finished` is a share. Raises `ConfigError` where there is no bound.
    """
    check_bounded(scenario, [metric])
    instance = period_instance(scenario, scenario_requests(scenario, seed, rate))
    return hindsight_bound(instance, BOUNDED[metric], progress=progress, **effort._asdict())


def period_instance(scenario: ScenarioConfig, requests: Sequence[SimRequest]) -> PeriodInstance:
    """Requests and fleet of the scenario as the bound takes them.

    Its thresholds are strict, those of the metrics are not: in whole periods that is one more.
    """
    arrival = np.array([math.ceil(r.request.arrival_s) for r in requests])
    if scenario.sim.horizon_s is None:
        horizon = int(arrival.max()) + DRAIN_PERIODS
    else:
        horizon = math.floor(scenario.sim.horizon_s)
    kept = arrival < horizon
    objective = scenario.router.core_objective("period")
    devices = scenario.fleet.core_devices("period")
    return PeriodInstance(
        arrival[kept],
        np.array([r.request.prompt_tokens for r in requests])[kept],
        np.array([r.output_tokens for r in requests])[kept],
        np.array([device.slots for device in devices]),
        np.array([device.kv_tokens for device in devices]),
        horizon,
        ttft_threshold=math.floor(objective.ttft_threshold_s) + 1,
        e2e_threshold=math.floor(objective.e2e_threshold_s) + 1,
        drain=scenario.sim.horizon_s is None,
    )
