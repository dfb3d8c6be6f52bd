"""Workloads of the paper's period model as arrays, what a start is worth to a metric, and whole schedules.

Here everything is known beforehand, true lengths included: this is for bounds, not for routing.

Notation
    symbol   meaning                                                         shape     unit      paper (Section 2)
    a, s, o  arrival, prompt tokens, true output tokens                      (n,)      periods, tokens   t_j, s_j, o_j
    B, M     batch slots and KV tokens of a device                           (G,)                B, M
    k        period of the start: the request runs in k .. k + o - 1 and holds s + (q - k) + 1 tokens in q (eq. 1)
    H        end: the first period that is not run any more                            periods   T + 1

TTFT is k - a and E2E is k + o - a. What has not started or finished at H counts as if it did then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from olp_ray.errors import WorkloadError


class Metric(StrEnum):
    """What a schedule is judged by; the first two are to be small, the others large."""

    MEAN_E2E = "mean_e2e"  # periods
    MEAN_TTFT = "mean_ttft"  # periods
    ATTAINMENT = "attainment"  # share of all requests inside both thresholds
    COMPLETED = "completed"  # share of all requests finished by H

    @property
    def is_cost(self) -> bool:
        return self in (Metric.MEAN_E2E, Metric.MEAN_TTFT)


@dataclass(frozen=True, slots=True, eq=False)
class PeriodInstance:
    """Whole numbers; thresholds in periods, inf switches one off.

    drain: the fleet goes on after H until all is served. The bound takes room after H as unlimited, so H should then
    be near the end of the run. Raises `WorkloadError` for wrong shapes or values outside their domain.
    """

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    slots: np.ndarray
    kv_tokens: np.ndarray
    horizon: int
    ttft_threshold: float = np.inf
    e2e_threshold: float = np.inf
    drain: bool = False

    def __post_init__(self) -> None:
        for name in ("prompt", "output"):
            if getattr(self, name).shape != self.arrival.shape:
                raise WorkloadError(f"{name}: expected shape {self.arrival.shape}, got {getattr(self, name).shape}")
        if self.slots.shape != self.kv_tokens.shape or not len(self.slots):
            raise WorkloadError("slots and kv_tokens: expected one number per device, at least one device")
        least = {"arrival": 0, "prompt": 0, "output": 1, "slots": 1, "kv_tokens": 1}
        for name, lowest in least.items():
            values = getattr(self, name)
            if len(values) and int(values.min()) < lowest:
                raise WorkloadError(f"{name}: the least is {values.min()}; expected >= {lowest}")
        if self.horizon < 1 or (len(self.arrival) and int(self.arrival.max()) >= self.horizon):
            raise WorkloadError(f"horizon is {self.horizon}; expected it after the last arrival")

    @property
    def requests(self) -> int:
        return len(self.arrival)

    def start_cost(self, metric: Metric, jobs: np.ndarray) -> np.ndarray:
        """Cost of starting each of `jobs` in each period 0 .. H - 1, (m, H); inf before its arrival. Rewards are
        negative costs."""
        start = np.arange(self.horizon)
        arrival = self.arrival[jobs][:, None]
        cost = self._cost(metric, start, arrival, self.output[jobs][:, None])
        return np.where(start >= arrival, cost, np.inf)

    def peak_kv(self, jobs: np.ndarray) -> np.ndarray:
        """Most KV tokens that a request holds before H (with `drain`: ever), by period of its start, (m, H)."""
        left = np.full(self.horizon, np.inf) if self.drain else self.horizon - np.arange(self.horizon)
        return self.prompt[jobs][:, None] + np.minimum(self.output[jobs][:, None], left)

    def never_cost(self, metric: Metric) -> np.ndarray:
        """Least cost of not starting before H, (n,)."""
        if metric.is_cost or self.drain:
            return self._cost(metric, np.array(self.horizon), self.arrival, self.output)
        return np.zeros(self.requests)

    def score(self, metric: Metric, start: np.ndarray) -> float:
        """The metric of a schedule; start is (n,), H or more where a request does not start in time."""
        never = self.never_cost(metric)
        cost = np.where(
            (start < self.horizon) | self.drain, self._cost(metric, start, self.arrival, self.output), never
        )
        return float(cost.mean()) if metric.is_cost else -float(cost.mean())

    def earns(self, metric: Metric, start: np.ndarray) -> np.ndarray:
        """Which requests of a schedule are better off than if they had not started before H, (n,) bool."""
        return self._cost(metric, start, self.arrival, self.output) < self.never_cost(metric)

    def _cost(self, metric: Metric, start: np.ndarray, arrival: np.ndarray, output: np.ndarray) -> np.ndarray:
        end = start + output
        match metric:
            case Metric.MEAN_E2E:
                return (end if self.drain else np.minimum(end, self.horizon)) - arrival
            case Metric.MEAN_TTFT:
                return np.broadcast_to(start - arrival, np.broadcast_shapes(start.shape, arrival.shape))
            case Metric.ATTAINMENT:
                inside = (start - arrival < self.ttft_threshold) & (end - arrival < self.e2e_threshold)
                if np.isfinite(self.e2e_threshold) and not self.drain:
                    inside &= end <= self.horizon
                return np.where(inside, -1.0, 0.0)
            case Metric.COMPLETED:
                return np.where(end <= self.horizon, -1.0, 0.0)


def list_schedule(instance: PeriodInstance, order: Sequence[int] | np.ndarray) -> np.ndarray:
    """Starts (n,) of a feasible schedule: each request in turn at the earliest period and device that hold it.

    Later requests fill gaps that earlier ones left. H where nothing before H fits. With `drain` periods go on.
    """
    end = instance.horizon
    if instance.drain:
        end += int(instance.output.sum()) + int(instance.output.max(initial=1))
    width = end + int(instance.output.max(initial=1))
    used = np.zeros((len(instance.slots), width), dtype=np.int64)
    kv = np.zeros((len(instance.slots), width), dtype=np.int64)
    starts = np.full(instance.requests, instance.horizon)
    for j in order:
        first = int(instance.arrival[j])
        found = [(k, g) for g in range(len(used)) if (k := _earliest(instance, j, g, used[g], kv[g], first, end)) < end]
        if found:
            k, g = min(found)
            output = int(instance.output[j])
            used[g, k : k + output] += 1
            kv[g, k : k + output] += instance.prompt[j] + 1 + np.arange(output)
            starts[j] = k
    return starts


def _earliest(instance: PeriodInstance, j: int, g: int, used: np.ndarray, kv: np.ndarray, first: int, end: int) -> int:
    """The first period from `first` on in which request j can start on device g; `end` if there is none before it."""
    output = int(instance.output[j])
    held = instance.prompt[j] + 1 + np.arange(output)
    past = np.arange(1, output + 1)  # how far a start must move to leave each period behind
    if held[-1] > instance.kv_tokens[g]:
        return end
    k = first
    while k < end:
        excess = np.clip(kv[k : k + output] + held - instance.kv_tokens[g], 0, past)  # a later start holds less there
        move = np.where(used[k : k + output] >= instance.slots[g], past, excess).max()
        if not move:
            return k
        k += int(move)
    return end
