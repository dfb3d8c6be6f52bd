"""What every waiting request is worth and costs now on every device, and whom the price turns away at the bound.

Notation: `core.policies.appraisal` for F, L, V, c, e and A.
    symbol   meaning                                                        shape          unit
    G, J     devices, waiting requests
    u        prompt tokens that the device has not cached                   (1 or G, J)    tokens
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel, part
from olp_ray.core.kernels.lengths import mean_length, median_length
from olp_ray.core.kernels.pricing import cost_from_now
from olp_ray.core.kernels.records import (
    ARRIVAL_S,
    CAME_BACK,
    KEPT,
    NEVER,
    PREDICTED,
    PRICED_OUT,
    PROMPT,
    REQUEST,
    SLO_E2E_S,
    SLO_TTFT_S,
    START,
    Candidates,
    Market,
    Plans,
    Ratios,
    Rules,
)
from olp_ray.core.kernels.rejection import own_or, passed
from olp_ray.core.kernels.worth import resource_shares_of, start_value, urgency


@kernel
def appraise(
    rules: Rules,
    market: Market,
    plans: Plans,
    columns: np.ndarray,
    weights: np.ndarray,
    uncached: np.ndarray,
    known: Ratios,
    refused: np.ndarray,
) -> Candidates:
    """Worth and price of every waiting request; where it may go is not decided yet.

    columns (7, J or more) are those of the queue, weights (J,) multiplies the reward, uncached is (1 or G, J). refused
    (J,) is that of `refuse`, and gets whom the price turns away; those who are turned away do not count as late.
    """
    found = Candidates(
        describe(rules, columns, weights, known, plans.now_s), np.zeros((len(plans.devices), len(weights)), dtype=START)
    )
    looked_at = weigh(rules, plans, columns[ARRIVAL_S], uncached, found)
    for g in range(len(plans.devices)):
        for j in range(len(weights)):
            output, start = found.requests[j].output_tokens, found.starts[g, j]
            prompt = uncached[g if len(uncached) > 1 else 0, j]
            price = market.prefill_price
            start.cost = cost_from_now(market.tables[g], rules.bucket_s, prompt, start.life_s, output, price)
    if rules.limits.rejects != NEVER:
        price_out(rules, columns, found, passed(columns, len(weights), rules.max_wait_s, plans.now_s), refused)
    lose(rules, plans, columns[ARRIVAL_S], looked_at, urgency_of(rules, found.requests, refused), found)
    for j in range(len(weights)):
        request = found.requests[j]
        request.volume = volume(
            market.scarcity, plans, request.prompt_tokens, request.output_tokens, request.mean_life_s
        )
        request.key = key(found, j, rules.regular_price, market.base_price)
    return found


@part
def describe(rules: Rules, columns: np.ndarray, weights: np.ndarray, known: Ratios, now_s: float) -> np.ndarray:
    """What does not depend on devices, REQUEST (J,)."""
    found = np.zeros(len(weights), dtype=REQUEST)
    for j in range(len(weights)):
        prompt, predicted = columns[PROMPT, j], columns[PREDICTED, j]
        output = mean_length(predicted, prompt, known)
        request = found[j]
        request.prompt_tokens = prompt
        request.length_tokens = median_length(predicted, prompt, known)
        request.output_tokens = output
        request.waited_s = max(now_s - columns[ARRIVAL_S, j], 0.0)
        request.weight = weights[j]
        request.e2e_threshold_s = own_or(rules.limits.e2e_threshold_s, columns[SLO_E2E_S, j])
        request.ttft_threshold_s = own_or(rules.limits.ttft_threshold_s, columns[SLO_TTFT_S, j])
        request.mean_kv_tokens = prompt + output / 2
        request.step_cost = rules.weights.e2e * weights[j] * output
        request.wait_cost = (rules.weights.e2e + rules.weights.ttft) * weights[j]
        request.may_reserve = True
    return found


@part
def urgency_of(rules: Rules, requests: np.ndarray, refused: np.ndarray) -> float:
    """tau: the calm one while few of the requests that are kept wait past their TTFT threshold."""
    late = 0
    for j in range(len(requests)):
        late += refused[j] == KEPT and requests[j].waited_s > requests[j].ttft_threshold_s
    return rules.calm_urgency_s if late <= rules.calm_late_requests else rules.urgency_s


@part
def window_of(rules: Rules, arrival_s: float) -> float:
    """W of a request: rolling, or what a fixed end leaves."""
    return max(rules.end_s - arrival_s, 0.0) if rules.end_s < math.inf else rules.reward_window_s


@part
def weigh(rules: Rules, plans: Plans, arrival_s: np.ndarray, uncached: np.ndarray, found: Candidates) -> int:
    """Fill in V, F and L of each request on each device, and the mean of L; how many devices it had to look at."""
    devices, count = found.starts.shape
    looked_at = 1 if len(uncached) == 1 and are_alike(plans) else devices
    for j in range(count):
        request = found.requests[j]
        window_s, all_lives_s = window_of(rules, arrival_s[j]), 0.0
        for g in range(looked_at):
            start = found.starts[g, j]
            first_s = time_to_first_token(plans, g, uncached[g if len(uncached) > 1 else 0, j])
            life_s = first_s + request.output_tokens * plans.devices[g].step_s
            about = (request.waited_s, request.output_tokens, request.weight)
            limits = (request.e2e_threshold_s, request.ttft_threshold_s)
            start.first_token_s, start.life_s = first_s, life_s
            start.value = start_value(rules.weights, window_s, *about, *limits, first_s, life_s)
            all_lives_s += life_s
        request.mean_life_s = all_lives_s / looked_at
        for g in range(looked_at, devices):
            found.starts[g, j] = found.starts[0, j]
    return looked_at


@part
def lose(
    rules: Rules, plans: Plans, arrival_s: np.ndarray, looked_at: int, urgency_s: float, found: Candidates
) -> None:
    """Fill in A of each request, on that of the first `looked_at` devices where it is largest."""
    for j in range(len(found.requests)):
        request = found.requests[j]
        window_s, lost = window_of(rules, arrival_s[j]), -math.inf
        about = (request.waited_s, request.output_tokens, request.weight)
        limits = (request.e2e_threshold_s, request.ttft_threshold_s)
        for g in range(looked_at):
            lives = (found.starts[g, j].first_token_s, found.starts[g, j].life_s)
            lost = max(lost, urgency(rules.weights, window_s, urgency_s, plans.mean_step_s, *about, *limits, *lives))
        request.lost = lost


@part
def time_to_first_token(plans: Plans, g: int, uncached_tokens: float) -> float:
    """F on device g; 0 where prefill takes no time (the paper's decode-only model)."""
    device = plans.devices[g]
    if device.prefill_tokens_per_s == math.inf:
        return 0.0
    return (device.backlog + uncached_tokens) / device.prefill_tokens_per_s + device.step_s


@part
def are_alike(plans: Plans) -> bool:
    """Whether there are devices, and a life takes as long on all, so that worth has to be found for one only."""
    for g in range(len(plans.devices)):
        device = plans.devices[g]
        if device.step_s != plans.devices[0].step_s or device.prefill_tokens_per_s < math.inf:
            return False
    return len(plans.devices) > 0


@part
def volume(scarcity: np.ndarray, plans: Plans, prompt_tokens: float, output_tokens: float, life_s: float) -> float:
    """What a life takes of a mean device, as one number."""
    slots, kv_tokens, added_s = resource_shares_of(
        plans.mean_slots, plans.mean_kv_tokens, plans.mean_added_s, prompt_tokens, output_tokens, life_s
    )
    return scarcity[0] * slots + scarcity[1] * kv_tokens + scarcity[2] * added_s


@part
def least_cost(starts: np.ndarray, j: int) -> float:
    """min c of request j over devices."""
    found = math.inf
    for g in range(len(starts)):
        found = min(found, starts[g, j].cost)
    return found


@part
def key(found: Candidates, j: int, regular_price: float, base_price: float) -> float:
    """A / (min c + eps0 e) of request j; nan while there are no prices."""
    if not base_price > 0:
        return math.nan
    request = found.requests[j]
    return request.lost / (least_cost(found.starts, j) + regular_price * base_price * request.volume)


@part
def price_out(rules: Rules, columns: np.ndarray, found: Candidates, at_bound: int, refused: np.ndarray) -> None:
    """Mark, of the first requests that are at the starvation bound, those whose price exceeds everywhere what a fresh
    request like them is worth; but what came back from a lost device is offered to the others first.

    Such a request would not be admitted if it came now: capacity can not hold the bound for it (paper Section 5).
    """
    for j in range(at_bound):
        if refused[j] != KEPT or columns[CAME_BACK, j] > 0:
            continue
        refused[j] = PRICED_OUT
        request = found.requests[j]
        about = (request.output_tokens, request.weight, request.e2e_threshold_s, request.ttft_threshold_s)
        for g in range(len(found.starts)):
            start = found.starts[g, j]
            fresh = start_value(rules.weights, rules.reward_window_s, 0.0, *about, start.first_token_s, start.life_s)
            if not start.cost > fresh:
                refused[j] = KEPT
