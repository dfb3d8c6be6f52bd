"""How good could anyone have been: a bound on any schedule of a period-model workload that is known beforehand.

The bound is the LP over start times with capacities added up over buckets of the time grid and over equal devices,
solved by column generation: HiGHS prices the buckets, then every request answers with its best start in *every*
period at those prices. What is returned is the Lagrangian value of the best prices found, which is a bound for any
prices >= 0; so it holds even if the LP was not solved to the end.

Covered are all schedules that keep slots and KV tokens in every period before H and run each request once, without
interruption. A policy whose engine preempted requests is not strictly covered (a restart can only add work, but a
preempted request has its first token early).

Notation
    symbol   meaning                                                               shape       paper
    j, k     request, period of its start
    C, h     device classes (equal devices), buckets of D periods
    x        share of request j that starts at k in class c                                    x_{j,g,k}
    p        price of one slot / one KV token in one period                        (C, 2, H)   p_i
    b        capacity of a bucket: D times the class's slots / KV tokens           (C, 2, N)   b_i
    y        cost of the best start of a request at prices p                       (n,)        y_j

Bound: sum of y minus b'p (weak duality; Section 3.2 with costs in place of rewards).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from olp_ray.core.period_model import Metric, PeriodInstance, list_schedule
from olp_ray.errors import WorkloadError

Pooling = Literal["classes", "fleet"]

CHUNK = 256  # requests that are priced at a time; bounds memory at CHUNK x H
STARTS = 4  # columns that a request may add per round
BLEND = 0.5  # weight of the best prices so far against the LP's newest, which jump about
REPAIRS = 3  # list schedules tried for `achieved`, in either order
EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Progress:
    """One round of column generation; both values are means over requests, in the metric's direction."""

    round: int
    bound: float
    lp_value: float
    columns: int


@dataclass(frozen=True, slots=True)
class HindsightBound:
    """No schedule is better than `bound` (below it for costs, above it for shares).

    lp_value is the optimum over the columns generated: the LP itself lies between the two. achieved is the metric of a
    feasible schedule built from the LP, so the true optimum lies between `bound` and `achieved`: that gap is all that
    the bound can be loose by. grid_periods and pooling are what was relaxed.
    """

    metric: Metric
    bound: float
    achieved: float
    lp_value: float
    grid_periods: int
    pooling: Pooling
    rounds: int
    columns: int

    @property
    def looseness(self) -> float:
        """|achieved - bound| / |achieved|: at most this share of the metric is slack of the bound."""
        return abs(self.achieved - self.bound) / max(abs(self.achieved), EPSILON)


def hindsight_bound(
    instance: PeriodInstance,
    metric: Metric,
    *,
    grid_periods: int = 16,
    pooling: Pooling = "classes",
    tolerance: float = 1e-3,
    max_rounds: int = 60,
    progress: Callable[[Progress], None] | None = None,
) -> HindsightBound:
    """Bound a metric from the good side. Needs memory for the columns and time for requests x H per round.

    pooling "classes" adds up equal devices only (nothing is lost by that: a solution may be averaged over them),
    "fleet" all of them. Stops when bound and LP agree to `tolerance`. Raises `WorkloadError` for no requests, or for
    `completed` with drain, where everything completes.
    """
    if not instance.requests:
        raise WorkloadError("a bound needs at least one request")
    if metric == Metric.COMPLETED and instance.drain:
        raise WorkloadError("with drain every request completes; there is nothing to bound")
    master = _Master(instance, metric, grid_periods, pooling)
    best, best_prices = -np.inf, np.zeros_like(master.capacity)
    newest, value = best_prices, np.inf
    count = rounds = 0
    while rounds < max_rounds:
        rounds += 1
        for prices in (BLEND * best_prices + (1 - BLEND) * newest, newest):
            found, added = master.respond(prices)
            if found > best:
                best, best_prices = found, prices
            if added:
                break
        if added or np.isinf(value):
            value, newest = master.solve()
        count = master.size
        if progress is not None:
            progress(Progress(rounds, master.mean(best), master.mean(value), count))
        if value - best <= tolerance * max(abs(value), EPSILON) or not added:
            break
    achieved = _achievable(instance, metric, master.mean_starts())
    return HindsightBound(metric, master.mean(best), achieved, master.mean(value), grid_periods, pooling, rounds, count)


def _achievable(instance: PeriodInstance, metric: Metric, lp_start: np.ndarray) -> float:
    """The best metric of a few list schedules, in the LP's order and by KV volume; each next one of either puts last
    what earned nothing."""
    volume = instance.output * (instance.prompt + instance.output / 2)
    scores = []
    for key in (lp_start, volume):
        order = key.argsort(kind="stable")
        for _ in range(REPAIRS):
            start = list_schedule(instance, order)
            scores.append(instance.score(metric, start))
            order = order[np.argsort(~instance.earns(metric, start)[order], kind="stable")]
    return min(scores) if metric.is_cost else max(scores)


class _Master:
    """The LP over the columns generated so far: (request, class, start) and "not before H" for each request."""

    def __init__(self, instance: PeriodInstance, metric: Metric, grid_periods: int, pooling: Pooling) -> None:
        self._instance, self._metric, self._grid = instance, metric, grid_periods
        limits = np.stack([instance.slots, instance.kv_tokens], axis=1)
        classes, member = np.unique(limits, axis=0, return_inverse=True)
        if pooling == "fleet":
            classes, member = limits.max(axis=0, keepdims=True), np.zeros(len(limits), dtype=np.int64)
        self._largest_kv = classes[:, 1]
        edges = np.append(np.arange(0, instance.horizon, grid_periods), instance.horizon)
        total = np.zeros((len(classes), 2))
        np.add.at(total, member.ravel(), limits.astype(np.float64))
        self.capacity = total[:, :, None] * np.diff(edges)  # b
        self._never = instance.never_cost(metric).astype(np.float64)
        self._columns = np.empty((0, 3), dtype=np.int64)  # request, class, start
        self._cost = np.empty(0)
        self._chosen = np.empty(0)

    @property
    def size(self) -> int:
        return len(self._columns)

    def mean(self, total: float) -> float:
        """A total cost as the metric."""
        mean = total / self._instance.requests
        return mean if self._metric.is_cost else -mean

    def respond(self, prices: np.ndarray) -> tuple[float, int]:
        """The Lagrangian value at these prices (C, 2, N), and how many columns that pay off were added."""
        instance = self._instance
        added, total = [], -float((self.capacity * prices).sum())
        per_period = np.repeat(prices, self._grid, axis=2)[:, :, : instance.horizon]
        for first in range(0, instance.requests, CHUNK):
            jobs = np.arange(first, min(first + CHUNK, instance.requests))
            cost = instance.start_cost(self._metric, jobs)
            least = self._never[jobs]
            for c in range(len(prices)):
                priced = cost + self._price_of_lives(jobs, per_period[c])
                priced[instance.peak_kv(jobs) > self._largest_kv[c]] = np.inf
                added.append(self._promising(jobs, c, priced))
                least = np.minimum(least, priced.min(axis=1))
            total += float(least.sum())
        return total, self._add(np.concatenate(added))

    def solve(self) -> tuple[float, np.ndarray]:
        """Optimum over the columns so far, and the prices of its buckets (C, 2, N)."""
        jobs, rows = self._instance.requests, self.capacity.size
        row, column, share = self._usage()
        kept = self._columns[:, 0]
        use = sparse.csr_matrix((share, (row, column)), shape=(rows, self.size + jobs))
        once = sparse.csr_matrix(
            (np.ones(self.size + jobs), (np.concatenate([kept, np.arange(jobs)]), np.arange(self.size + jobs))),
            shape=(jobs, self.size + jobs),
        )
        # the stubs of scipy do not know that linprog takes sparse matrices
        found = linprog(  # type: ignore[call-overload]
            np.concatenate([self._cost, self._never]),
            A_ub=use,
            b_ub=np.ones(rows),
            A_eq=once,
            b_eq=np.ones(jobs),
            method="highs",
        )
        if found.status != 0:
            raise WorkloadError(f"hindsight LP of {self.size} columns: {found.message}")
        self._chosen = found.x[: self.size]
        return float(found.fun), np.maximum(-found.ineqlin.marginals, 0.0).reshape(self.capacity.shape) / self.capacity

    def mean_starts(self) -> np.ndarray:
        """Mean start of each request in the last LP solution, (n,); H for what is not started."""
        instance = self._instance
        weight = np.bincount(self._columns[:, 0], self._chosen, minlength=instance.requests)
        start = np.bincount(self._columns[:, 0], self._chosen * self._columns[:, 2], minlength=instance.requests)
        return start + np.maximum(1.0 - weight, 0.0) * instance.horizon

    def _price_of_lives(self, jobs: np.ndarray, prices: np.ndarray) -> np.ndarray:
        """Price of each start, (m, H), by prefix sums of the prices per period (eq. 10)."""
        horizon = self._instance.horizon
        slot, kv, timed = np.zeros((3, horizon + 1))
        np.cumsum(prices[0], out=slot[1:])
        np.cumsum(prices[1], out=kv[1:])
        np.cumsum(prices[1] * np.arange(horizon), out=timed[1:])
        start = np.arange(horizon)
        stop = np.minimum(start + self._instance.output[jobs][:, None], horizon)
        prompt = self._instance.prompt[jobs][:, None]
        held = (prompt + 1 - start) * (kv[stop] - kv[:-1]) + timed[stop] - timed[:-1]
        return slot[stop] - slot[:-1] + held

    def _promising(self, jobs: np.ndarray, c: int, priced: np.ndarray) -> np.ndarray:
        """The best start of each bucket where it beats what the last LP pays for the request; the STARTS best."""
        grid, horizon = self._grid, self._instance.horizon
        padded = np.pad(priced, ((0, 0), (0, -horizon % grid)), constant_values=np.inf)
        by_bucket = padded.reshape(len(jobs), -1, grid)
        start = by_bucket.argmin(axis=2) + np.arange(by_bucket.shape[1]) * grid
        least = by_bucket.min(axis=2)
        order = np.argsort(least, axis=1, kind="stable")[:, :STARTS]
        chosen = np.take_along_axis(start, order, axis=1)
        gain = np.take_along_axis(least, order, axis=1) < self._never[jobs][:, None] - EPSILON
        row, _ = np.nonzero(gain)
        return np.stack([jobs[row], np.full(len(row), c), chosen[gain]], axis=1)

    def _add(self, columns: np.ndarray) -> int:
        """Append those that are new; returns how many."""
        before = self.size
        everything = np.concatenate([self._columns, columns])
        _, first = np.unique(everything, axis=0, return_index=True)
        self._columns = everything[np.sort(first)]
        fresh = self._columns[before:]
        cost = [
            self._instance.start_cost(self._metric, fresh[i : i + CHUNK, 0])[
                np.arange(len(fresh[i : i + CHUNK])), fresh[i : i + CHUNK, 2]
            ]
            for i in range(0, len(fresh), CHUNK)
        ]
        self._cost = np.concatenate([self._cost, *cost])
        return len(fresh)

    def _usage(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Share of each bucket's capacity that each column uses, as (row, column, share) of both resources."""
        instance, grid, buckets = self._instance, self._grid, self.capacity.shape[2]
        job, c, start = self._columns.T
        stop = np.minimum(start + instance.output[job], instance.horizon)
        spans = (stop - 1) // grid - start // grid + 1
        column = np.repeat(np.arange(self.size), spans)
        bucket = np.arange(len(column)) - np.repeat(np.cumsum(spans) - spans - start // grid, spans)
        low = np.maximum(start[column], bucket * grid)
        high = np.minimum(stop[column], (bucket + 1) * grid)
        periods = high - low
        kv = periods * (instance.prompt[job[column]] + 1 - start[column]) + periods * (low + high - 1) / 2
        row = c[column] * 2 * buckets + bucket
        share = np.concatenate([periods, kv])
        row = np.concatenate([row, row + buckets])
        return row, np.concatenate([column, column]), share / self.capacity.ravel()[row]
