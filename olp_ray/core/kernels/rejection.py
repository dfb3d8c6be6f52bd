"""Which waiting requests are turned away whatever prices say: the rules of `core.policies.rejection`.

Notation: that module's, for t1', t2', ell, tau and X.
    symbol   meaning                                                        shape    unit
    J        waiting requests, in order of arrival
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel, part
from olp_ray.core.kernels.lengths import mean_length
from olp_ray.core.kernels.planning import count_kv, has_room, utilisation
from olp_ray.core.kernels.records import (
    ARRIVAL_S,
    AT_DEADLINE,
    CAME_BACK,
    HOPELESS,
    KEPT,
    NEVER,
    OVERDUE,
    PREDICTED,
    PROMPT,
    SLO_E2E_S,
    SLO_TTFT_S,
    Limits,
    Plans,
    Ratios,
    Weights,
)

SLOW = 0.5  # a device that iterates at less than this share of its idle speed is busy


@part
def passed(columns: np.ndarray, count: int, wait_s: float, now_s: float) -> int:
    """How many of the requests, in order of arrival, have waited this long; columns as in `refuse`."""
    found = 0
    while found < count and columns[ARRIVAL_S, found] + wait_s <= now_s:
        found += 1
    return found


@part
def own_or(threshold_s: float, own_s: float) -> float:
    """The threshold of a request: its own, or where it has none (nan) the objective's."""
    return threshold_s if math.isnan(own_s) else own_s


@part
def last_start(weights: Weights, by_ttft_s: float, by_e2e_s: float) -> float:
    """Until when a start can earn something by deadline: both must be met, or one of those that count will do."""
    if weights.joint_deadlines:
        return min(by_ttft_s, by_e2e_s)
    if by_ttft_s == math.inf or by_e2e_s == math.inf:
        return min(by_ttft_s, by_e2e_s)
    return max(by_ttft_s, by_e2e_s)


@part
def is_busy(plans: Plans, guard: float) -> bool:
    """Whether every device takes no more now, or is at the guard: by what it holds, or by how much slower than when
    idle it iterates. Nothing has been admitted yet."""
    count_kv(plans)
    for g in range(len(plans.devices)):
        slow = plans.devices[g].idle_step_s <= SLOW * plans.devices[g].step_s
        if not (utilisation(plans, g) >= guard or slow) and has_room(plans, g):
            return False
    return True


@kernel
def refuse(
    limits: Limits, weights: Weights, plans: Plans, columns: np.ndarray, count: int, known: Ratios
) -> tuple[np.ndarray, float]:
    """KEPT, HOPELESS or OVERDUE for each request, int64 (J,), and when the next may be turned away.

    columns (7, J or more) are those of the queue. Bounds count as passed when they are reached. What came back
    from a lost device ran rather than waited: it is overdue only once a decision has offered it to the others. Where
    only its length makes a request hopeless, it may still start while a device is not busy.
    """
    refused, next_s = np.full(count, KEPT), math.inf
    if limits.rejects == NEVER:
        return refused, next_s
    overdue = passed(columns, count, limits.overdue_s, plans.now_s)
    if overdue < count:
        next_s = columns[ARRIVAL_S, overdue] + limits.overdue_s
    for j in range(overdue):
        if columns[CAME_BACK, j] > 0 and len(plans.devices) > 0:
            next_s = min(next_s, plans.now_s + plans.mean_step_s)
        else:
            refused[j] = OVERDUE
    if limits.rejects != AT_DEADLINE:
        return refused, next_s
    fastest_s = fastest_step_s(plans)
    look_at_load, busy = True, False
    for j in range(count):
        by_ttft_s, by_e2e_s = last_starts(limits, weights, fastest_s, columns, j, known)
        last_s = last_start(weights, by_ttft_s, by_e2e_s)
        if last_s > plans.now_s:
            next_s = min(next_s, last_s)
            continue
        if by_ttft_s > plans.now_s:
            if look_at_load:
                look_at_load, busy = False, is_busy(plans, limits.guard)
            if not busy:
                next_s = min(next_s, by_ttft_s)
                continue
        refused[j] = HOPELESS
    return refused, next_s


@part
def fastest_step_s(plans: Plans) -> float:
    """The shortest step time; 0 without devices."""
    found = math.inf if len(plans.devices) else 0.0
    for g in range(len(plans.devices)):
        found = min(found, plans.devices[g].step_s)
    return found


@part
def last_starts(
    limits: Limits, weights: Weights, fastest_s: float, columns: np.ndarray, j: int, known: Ratios
) -> tuple[float, float]:
    """Until when request j can meet its TTFT and its E2E threshold; inf: unweighted."""
    by_ttft_s, by_e2e_s = math.inf, math.inf
    arrival_s = columns[ARRIVAL_S, j]
    if weights.tail_ttft > 0:
        by_ttft_s = arrival_s + own_or(limits.ttft_threshold_s, columns[SLO_TTFT_S, j])
    if weights.tail_e2e > 0:
        length = mean_length(columns[PREDICTED, j], columns[PROMPT, j], known)
        by_e2e_s = arrival_s + own_or(limits.e2e_threshold_s, columns[SLO_E2E_S, j]) - length * fastest_s
    return by_ttft_s, by_e2e_s
