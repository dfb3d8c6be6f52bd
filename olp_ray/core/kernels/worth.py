"""What a start is worth, what is lost by waiting, what a life takes of a device, and whom prices refuse.

Notation: `core.reward` for the symbols of a request; `core.policies.appraisal` for F, L, V and A.
    symbol   meaning                                                        shape         unit
    G, J     devices, requests
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel, part
from olp_ray.core.kernels.holding import mean
from olp_ray.core.kernels.records import Weights


@kernel
def start_value(
    weights: Weights,
    window_s: float,
    waited_s: float,
    output_tokens: float,
    weight: float,
    e2e_threshold_s: float,
    ttft_threshold_s: float,
    first_s: float,
    life_s: float,
) -> float:
    """V: reward of a start now (paper Section 3.1, a rolling window in place of the end T)."""
    ttft_s = waited_s + first_s
    e2e_s = waited_s + life_s
    value = weights.throughput * output_tokens
    value += weights.e2e * max(window_s - e2e_s, 0.0)
    value += weights.ttft * max(window_s - ttft_s, 0.0)
    value += weights.qps
    e2e_met, ttft_met = e2e_s < e2e_threshold_s, ttft_s < ttft_threshold_s
    if weights.joint_deadlines:
        by_deadline = (weights.tail_e2e + weights.tail_ttft) * (e2e_met and ttft_met)
    else:
        by_deadline = weights.tail_e2e * e2e_met + weights.tail_ttft * ttft_met
    return weight * (value + by_deadline)


@kernel
def start_values(weights: Weights, rows: np.ndarray) -> np.ndarray:
    """`start_value` of each column of rows (8, n), which holds its arguments in order, (n,)."""
    found = np.empty(rows.shape[1])
    for i in range(len(found)):
        found[i] = start_value(
            weights, rows[0, i], rows[1, i], rows[2, i], rows[3, i], rows[4, i], rows[5, i], rows[6, i], rows[7, i]
        )
    return found


@kernel
def _alive(slack_s: float, tick_s: float, urgency_s: float) -> float:
    return math.exp(-slack_s / urgency_s) if slack_s > -tick_s else 0.0


@kernel
def urgency(
    weights: Weights,
    window_s: float,
    urgency_s: float,
    tick_s: float,
    waited_s: float,
    output_tokens: float,
    weight: float,
    e2e_threshold_s: float,
    ttft_threshold_s: float,
    first_s: float,
    life_s: float,
) -> float:
    """A: what is lost by not starting now, over about `urgency_s`; 0 when nothing is left to lose.

    A deadline counts the more, the nearer its last useful start (one tick before the threshold) is.
    """
    slack_2 = ttft_threshold_s - tick_s - (waited_s + first_s)
    slack_1 = e2e_threshold_s - tick_s - (waited_s + life_s)
    by_deadline = 0.0
    if not weights.joint_deadlines or min(slack_1, slack_2) > -tick_s:
        by_deadline = weights.tail_ttft * _alive(slack_2, tick_s, urgency_s)
        by_deadline += weights.tail_e2e * _alive(slack_1, tick_s, urgency_s)
    steady = (weights.e2e + weights.ttft) * urgency_s
    held_back = (weights.qps + weights.throughput * output_tokens) * urgency_s / (window_s + urgency_s)
    return weight * (steady + held_back + by_deadline)


@part
def resource_shares_of(
    mean_slots: float,
    mean_kv_tokens: float,
    mean_added_s: np.ndarray,
    prompt_tokens: float,
    output_tokens: float,
    life_s: float,
) -> tuple[float, float, float]:
    """What a life takes of a mean device: slot seconds per slot, KV-token seconds per KV token, and seconds of
    iteration time added, as `Plans.mean_added_s` says."""
    per_sequence_s, per_kv_token_s, per_prompt_token_s = mean_added_s[0], mean_added_s[1], mean_added_s[2]
    held = prompt_tokens + output_tokens / 2
    added_s = per_prompt_token_s * prompt_tokens + output_tokens * (per_sequence_s + per_kv_token_s * held)
    return life_s / max(mean_slots, 1.0), held * life_s / max(mean_kv_tokens, 1.0), added_s


@kernel
def resource_shares(
    slots: np.ndarray,
    kv_tokens: np.ndarray,
    mean_added_s: np.ndarray,
    prompt_tokens: np.ndarray,
    output_tokens: np.ndarray,
    life_s: np.ndarray,
) -> np.ndarray:
    """`resource_shares_of` each life, (3, n)."""
    mean_slots, mean_kv_tokens = mean(slots), mean(kv_tokens)
    found = np.empty((3, len(life_s)))
    for i in range(len(life_s)):
        found[0, i], found[1, i], found[2, i] = resource_shares_of(
            mean_slots, mean_kv_tokens, mean_added_s, prompt_tokens[i], output_tokens[i], life_s[i]
        )
    return found


@part
def deadline_share(weights: Weights, window_s: float, horizon_s: float, mean_tokens: float) -> float:
    """Share of the reward at stake over `horizon_s` that deadlines make, in [0, 1]."""
    tail = weights.tail_e2e + weights.tail_ttft
    rest = horizon_s * (weights.e2e + weights.ttft) + (weights.qps + weights.throughput * mean_tokens) * horizon_s / (
        window_s + horizon_s
    )
    return tail / (tail + rest)


@part
def gate(
    starts: np.ndarray, factor: float, allowed: np.ndarray, first: np.ndarray, any_idle: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Who qualifies, (J,): worth more than that share of its price somewhere, or first; and where it may go, (G, J).

    starts are START (G, J). With a factor of 0 there is no gate, also for what is so late that a start earns nothing
    any more. With any device idle those that qualify may go wherever they are allowed, otherwise only where they are
    worth it.
    """
    qualified, open_to = first.copy(), np.zeros(starts.shape, dtype=np.bool_)
    for g in range(len(starts)):
        for j in range(len(first)):
            open_to[g, j] = factor == 0 or starts[g, j].value - factor * starts[g, j].cost > 0
            qualified[j] |= open_to[g, j]
    for g in range(len(starts)):
        for j in range(len(first)):
            open_to[g, j] = allowed[g, j] and (qualified[j] if any_idle else open_to[g, j] or first[j])
    return qualified, open_to
