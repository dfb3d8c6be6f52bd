"""What every waiting request is worth and costs now on every device, and whom the price turns away at the bound.

Notation: `core.policies.appraisal` for F, L, V, c, e and A.
    symbol   meaning                                                        shape          unit
    G, J     devices, waiting requests
    u        prompt tokens that the device has not cached                   (1 or G, J)    tokens
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel
from olp_ray.core.kernels.holding import mean_step_s
from olp_ray.core.kernels.lengths import mean_lengths, median_lengths
from olp_ray.core.kernels.pricing import costs_from_now
from olp_ray.core.kernels.records import (
    ARRIVAL_S,
    KEPT,
    PREDICTED,
    PRICED_OUT,
    PROMPT,
    SLO_E2E_S,
    SLO_TTFT_S,
    Appraised,
    Fleet,
    Market,
    Ratios,
    Rules,
    Speeds,
)
from olp_ray.core.kernels.rejection import own_or
from olp_ray.core.kernels.worth import resource_shares, start_value, starts


@kernel
def appraise(
    rules: Rules,
    market: Market,
    fleet: Fleet,
    backlog: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    uncached: np.ndarray,
    known: Ratios,
    now_s: float,
) -> Appraised:
    """Worth and price of every waiting request.

    columns (6, J or more) are those of the queue, weights (J,) multiplies the reward, backlog (G,) is prompt tokens.
    """
    count, devices = len(weights), len(fleet.slots)
    prompt, predicted = columns[PROMPT, :count].copy(), columns[PREDICTED, :count]
    arrival_s = columns[ARRIVAL_S, :count]
    output = mean_lengths(predicted, prompt, known)
    waited_s = np.maximum(now_s - arrival_s, 0.0)
    e2e_threshold_s = own_or(rules.limits.e2e_threshold_s, columns[SLO_E2E_S, :count])
    ttft_threshold_s = own_or(rules.limits.ttft_threshold_s, columns[SLO_TTFT_S, :count])
    alike = len(uncached) == 1 and are_alike(fleet)
    looked_at = 1 if alike else devices
    found = starts(
        rules.weights,
        windows_s(rules, arrival_s),
        rules.urgency_s,
        mean_step_s(fleet.step_s),
        waited_s,
        output,
        weights,
        e2e_threshold_s,
        ttft_threshold_s,
        uncached,
        Speeds(fleet.step_s[:looked_at], backlog[:looked_at], fleet.prefill_tokens_per_s[:looked_at]),
    )
    cost = costs_from_now(market.tables, rules.bucket_s, uncached, found.life_s, output, market.prefill_price)
    volume = volumes(market.scarcity, fleet, prompt, output, found.mean_life_s)
    return Appraised(
        waited_s,
        output,
        weights,
        e2e_threshold_s,
        ttft_threshold_s,
        median_lengths(predicted, prompt, known),
        prompt,
        on_each_device(found.first_token_s, devices),
        on_each_device(found.life_s, devices),
        found.mean_life_s,
        on_each_device(found.value, devices),
        cost,
        volume,
        found.lost,
        keys(found.lost, cost, rules.regular_price, market.base_price, volume),
    )


@kernel
def windows_s(rules: Rules, arrival_s: np.ndarray) -> np.ndarray:
    """How long after its arrival latency still earns something, (J,): as `OnlineLPSettings.window_s`."""
    if rules.end_s == math.inf:
        return np.full(len(arrival_s), rules.reward_window_s)
    return np.maximum(rules.end_s - arrival_s, 0.0)


@kernel
def are_alike(fleet: Fleet) -> bool:
    """Whether a life takes as long on every device, so that worth has to be found for one only."""
    for g in range(len(fleet.step_s)):
        if fleet.step_s[g] != fleet.step_s[0] or fleet.prefill_tokens_per_s[g] < math.inf:
            return False
    return True


@kernel
def on_each_device(values: np.ndarray, devices: int) -> np.ndarray:
    """(G, J) of values (1 or G, J)."""
    if len(values) == devices:
        return values
    found = np.empty((devices, values.shape[1]))
    for g in range(devices):
        for j in range(values.shape[1]):
            found[g, j] = values[0, j]
    return found


@kernel
def volumes(
    scarcity: np.ndarray, fleet: Fleet, prompt: np.ndarray, output: np.ndarray, life_s: np.ndarray
) -> np.ndarray:
    """What lives take of a mean device, as one number each, (n,)."""
    shares = resource_shares(fleet.slots, fleet.kv_tokens, fleet.mean_added_s, prompt, output, life_s)
    found = np.empty(len(life_s))
    for i in range(len(life_s)):
        found[i] = scarcity[0] * shares[0, i] + scarcity[1] * shares[1, i] + scarcity[2] * shares[2, i]
    return found


@kernel
def least(values: np.ndarray) -> np.ndarray:
    """The smallest of values (G, J) over devices, (J,)."""
    found = values[0].copy()
    for g in range(1, len(values)):
        for j in range(len(found)):
            found[j] = min(found[j], values[g, j])
    return found


@kernel
def most(values: np.ndarray) -> np.ndarray:
    """The largest of values (G, J) over devices, (J,)."""
    found = values[0].copy()
    for g in range(1, len(values)):
        for j in range(len(found)):
            found[j] = max(found[j], values[g, j])
    return found


@kernel
def keys(lost: np.ndarray, cost: np.ndarray, regular_price: float, base_price: float, volume: np.ndarray) -> np.ndarray:
    """A / (min c + eps0 e), (J,); nan while there are no prices."""
    found = np.full(len(lost), math.nan)
    if base_price > 0:
        cheapest = least(cost)
        for j in range(len(lost)):
            found[j] = lost[j] / (cheapest[j] + regular_price * base_price * volume[j])
    return found


@kernel
def price_out(rules: Rules, found: Appraised, at_bound: int, refused: np.ndarray) -> None:
    """Mark, of the first requests that are at the starvation bound, those whose price exceeds everywhere what a fresh
    request like them is worth.

    Such a request would not be admitted if it came now: capacity can not hold the bound for it (paper Section 5).
    """
    for j in range(at_bound):
        if refused[j] != KEPT:
            continue
        refused[j] = PRICED_OUT
        for g in range(len(found.cost)):
            fresh = start_value(
                rules.weights,
                rules.reward_window_s,
                0.0,
                found.output_tokens[j],
                found.weight[j],
                found.e2e_threshold_s[j],
                found.ttft_threshold_s[j],
                found.first_token_s[g, j],
                found.life_s[g, j],
            )
            if not found.cost[g, j] > fresh:
                refused[j] = KEPT
