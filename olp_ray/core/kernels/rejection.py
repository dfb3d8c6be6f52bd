"""Which waiting requests are turned away whatever prices say: the rules of `core.policies.rejection`.

Notation: that module's, for t1', t2', ell, tau and X.
    symbol   meaning                                                        shape    unit
    J        waiting requests, in order of arrival
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel
from olp_ray.core.kernels.holding import utilisation
from olp_ray.core.kernels.lengths import mean_lengths
from olp_ray.core.kernels.planning import count_kv, has_room
from olp_ray.core.kernels.records import (
    ARRIVAL_S,
    AT_DEADLINE,
    HOPELESS,
    KEPT,
    NEVER,
    OVERDUE,
    PREDICTED,
    PROMPT,
    SLO_E2E_S,
    SLO_TTFT_S,
    Fleet,
    Limits,
    Plans,
    Ratios,
    Weights,
)

SLOW = 0.5  # a device that iterates at less than this share of its idle speed is busy


@kernel
def passed(arrival_s: np.ndarray, wait_s: float, now_s: float) -> int:
    """How many of the requests, in order of arrival, have waited this long."""
    count = 0
    while count < len(arrival_s) and arrival_s[count] + wait_s <= now_s:
        count += 1
    return count


@kernel
def own_or(threshold_s: float, own_s: np.ndarray) -> np.ndarray:
    """A threshold of each request: its own, or where it has none (nan) the objective's."""
    found = own_s.copy()
    for j in range(len(found)):
        if math.isnan(found[j]):
            found[j] = threshold_s
    return found


@kernel
def last_start(weights: Weights, by_ttft_s: float, by_e2e_s: float) -> float:
    """Until when a start can earn something by deadline: both must be met, or one of those that count will do."""
    if weights.joint_deadlines:
        return min(by_ttft_s, by_e2e_s)
    if by_ttft_s == math.inf or by_e2e_s == math.inf:
        return min(by_ttft_s, by_e2e_s)
    return max(by_ttft_s, by_e2e_s)


@kernel
def is_busy(fleet: Fleet, plans: Plans, guard: float) -> bool:
    """Whether every device takes no more now, or is at the guard: by what it holds, or by how much slower than when
    idle it iterates. Nothing has been admitted yet."""
    count_kv(plans)
    for g in range(len(fleet.slots)):
        held = utilisation(plans.slots[g], plans.kv_tokens[g], plans.occupied[g], plans.kv_now[g]) >= guard
        slow = fleet.idle_step_s[g] <= SLOW * fleet.step_s[g]
        if not (held or slow) and has_room(plans, g):
            return False
    return True


@kernel
def refuse(
    limits: Limits,
    weights: Weights,
    fleet: Fleet,
    plans: Plans,
    columns: np.ndarray,
    count: int,
    known: Ratios,
    now_s: float,
) -> tuple[np.ndarray, float]:
    """KEPT, HOPELESS or OVERDUE for each request, int64 (J,), and when the next may be turned away.

    columns (6, J or more) are those of the queue. Bounds count as passed when they are reached. Where only its length
    makes a request hopeless, it may still start while a device is not busy.
    """
    refused, next_s = np.full(count, KEPT), math.inf
    if limits.rejects == NEVER:
        return refused, next_s
    arrival_s = columns[ARRIVAL_S, :count]
    overdue = passed(arrival_s, limits.overdue_s, now_s)
    refused[:overdue] = OVERDUE
    if overdue < count:
        next_s = arrival_s[overdue] + limits.overdue_s
    if limits.rejects != AT_DEADLINE:
        return refused, next_s
    by_ttft_s, by_e2e_s = last_starts(limits, weights, fleet.step_s, columns, count, known)
    look_at_load, busy = True, False
    for j in range(count):
        last_s = last_start(weights, by_ttft_s[j], by_e2e_s[j])
        if last_s > now_s:
            next_s = min(next_s, last_s)
            continue
        if by_ttft_s[j] > now_s:
            if look_at_load:
                look_at_load, busy = False, is_busy(fleet, plans, limits.guard)
            if not busy:
                next_s = min(next_s, by_ttft_s[j])
                continue
        refused[j] = HOPELESS
    return refused, next_s


@kernel
def last_starts(
    limits: Limits, weights: Weights, step_s: np.ndarray, columns: np.ndarray, count: int, known: Ratios
) -> tuple[np.ndarray, np.ndarray]:
    """Until when each request can meet its TTFT and its E2E threshold, (J,) each; inf: unweighted."""
    by_ttft_s, by_e2e_s = np.full(count, math.inf), np.full(count, math.inf)
    arrival_s = columns[ARRIVAL_S, :count]
    if weights.tail_ttft > 0:
        by_ttft_s = arrival_s + own_or(limits.ttft_threshold_s, columns[SLO_TTFT_S, :count])
    if weights.tail_e2e > 0:
        length = mean_lengths(columns[PREDICTED, :count], columns[PROMPT, :count], known)
        fastest_s = step_s.min() if len(step_s) else 0.0
        by_e2e_s = arrival_s + own_or(limits.e2e_threshold_s, columns[SLO_E2E_S, :count]) - length * fastest_s
    return by_ttft_s, by_e2e_s
