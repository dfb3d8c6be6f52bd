"""One decision of `online_lp`, from what waits and what devices hold to who starts where and who is turned away.

Notation: `core.policies.appraisal` for V, c, A; f is the share of the price that the gate charges.
    symbol   meaning                                                        shape    unit
    G, J     devices, waiting requests in order of arrival
    n        past arrivals
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from olp_ray.core.kernels.admission import fill
from olp_ray.core.kernels.appraisal import appraise, least_cost, volume
from olp_ray.core.kernels.compiler import kernel, part
from olp_ray.core.kernels.lengths import mean_length
from olp_ray.core.kernels.ordering import chosen, quantile, stable_order
from olp_ray.core.kernels.planning import any_room, begin, count_kv, empty_kv_tokens, may_hold, room_s, utilisation
from olp_ray.core.kernels.records import (
    ARRIVAL_S,
    CAME_BACK,
    KEPT,
    PREDICTED,
    PROMPT,
    Candidates,
    Fleet,
    Limits,
    Market,
    Plans,
    Ratios,
    Rules,
    Weights,
)
from olp_ray.core.kernels.rejection import passed, refuse
from olp_ray.core.kernels.worth import deadline_share, gate

MIN_VOLUMES = 50  # arrivals before the largest are told from the rest
TINY = np.finfo(np.float64).tiny
# typed: a literal among the arguments would have the kernel compiled once more for its value
PASS_OVER, NOTHING_KEPT = cast(bool, np.bool_(False)), cast(int, np.int64(0))


@part
def rules_of(numbers: np.ndarray) -> Rules:
    """`Rules` from all of its numbers, in order."""
    at = numbers
    weights = Weights(at[0], at[1], at[2], at[3], at[4], at[5], at[6] > 0)
    limits = Limits(int(at[7]), at[8], at[9], at[10], at[11])
    return Rules(
        weights,
        limits,
        *(at[12], at[13], at[14], at[15], at[16], at[17], at[18], at[19]),  # to level_ratio
        *(at[20], at[21], at[22], at[23]),  # guard and gate
        *(at[24], at[25], at[26]),  # starvation bound
        *(at[27], at[28], at[29], at[30] > 0),
    )


@kernel
def decide(
    rule_numbers: np.ndarray,
    market_of: tuple[Any, ...],
    fleet_of: tuple[Any, ...],
    known_of: tuple[Any, ...],
    columns: np.ndarray,
    weights: np.ndarray,
    uncached: np.ndarray,
    may_run: np.ndarray,
    past: np.ndarray,
    rotation: int,
    now_s: float,
    look: bool,
) -> tuple[np.ndarray, np.ndarray, int, float, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fields of `core.policies.online_lp.Decided`, in order.

    columns (7, J or more) are those of the queue, weights (J,) multiplies rewards, uncached is (1 or G, J), may_run
    (G, 1 or J) bool, past (n, 5) rows of `core.history`. Unless it is to look at everything, nothing is
    appraised where nothing may start.

    Records come as plain tuples, and rules as one array: to unpack them by name at this border takes longer than a look
    at a full fleet.
    """
    rules, market = rules_of(rule_numbers), Market(*market_of)
    known, plans = Ratios(*known_of), begin(Fleet(*fleet_of), now_s, rules.prefill_ahead_s, len(weights))
    count, devices = len(weights), len(plans.devices)
    refused, refuse_s = refuse(rules.limits, rules.weights, plans, columns, count, known)
    at_bound = passed(columns, count, rules.max_wait_s, now_s)
    left = count_of(refused, KEPT)
    reserved_by, reserved_steps = np.full(devices, -1), np.full(devices, math.inf)
    placed, order = np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=np.int64)
    open_to, output, length = np.zeros((devices, 0), dtype=np.bool_), np.empty(0), np.empty(0)
    if devices > 0 and (look or (left > 0 and (at_bound > 0 or any_room(plans)))):
        count_kv(plans)
        found = appraise(rules, market, plans, columns, weights, uncached, known, refused)
        prompt, output, length = lengths_of(found.requests)
        first = goes_first(rules, market, plans, columns[ARRIVAL_S], found.requests, past, known)
        allowed = may_hold(may_run, empty_kv_tokens(plans), prompt, length)
        placed, order, open_to = admit_all(
            rules, market, plans, found, first, allowed, refused, known, rotation, reserved_by, reserved_steps
        )
        left = count_of(refused, KEPT) - len(placed)
    wake_s = math.inf
    if left > 0:
        wake_s = min(room_s(plans, now_s), refuse_s)
        if at_bound < count:
            wake_s = min(wake_s, columns[ARRIVAL_S, at_bound] + rules.max_wait_s)
        for j in range(at_bound):
            if columns[CAME_BACK, j] > 0:
                wake_s = min(wake_s, now_s + plans.mean_step_s)  # its price counts from the next decision on
    turned_away = count - count_of(refused, KEPT)
    return placed, refused, turned_away, wake_s, order, open_to, output, length, reserved_by, reserved_steps


@part
def count_of(values: np.ndarray, value: int) -> int:
    """How often a value is there."""
    found = 0
    for at_hand in values:
        found += at_hand == value
    return found


@part
def lengths_of(requests: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prompt tokens, calibrated mean and calibrated median of each request, (J,) each."""
    prompt, output, length = np.empty(len(requests)), np.empty(len(requests)), np.empty(len(requests))
    for j in range(len(requests)):
        request = requests[j]
        prompt[j], output[j], length[j] = request.prompt_tokens, request.output_tokens, request.length_tokens
    return prompt, output, length


# -- who goes first -------------------------------------------------------------------------------------------------


@part
def goes_first(
    rules: Rules,
    market: Market,
    plans: Plans,
    arrival_s: np.ndarray,
    requests: np.ndarray,
    past: np.ndarray,
    known: Ratios,
) -> np.ndarray:
    """Requests at the starvation bound, except those of the largest volume in history, (J,) bool."""
    late = np.zeros(len(requests), dtype=np.bool_)
    any_late = False
    for j in range(len(requests)):
        bound_s = arrival_s[j] + rules.max_wait_s  # the sum that the wake is asked for at
        late[j] = bound_s <= plans.now_s + rules.max_wait_length_factor * requests[j].mean_life_s
        any_late |= late[j]
    if any_late and len(past) > MIN_VOLUMES and rules.max_wait_exempt_share > 0:
        largest = large_volume(rules, market, plans, past, known)
        for j in range(len(requests)):
            late[j] &= requests[j].volume <= largest
    return late


@part
def large_volume(rules: Rules, market: Market, plans: Plans, past: np.ndarray, known: Ratios) -> float:
    """Volume that only the exempt share of past arrivals exceeds."""
    volumes = np.empty(len(past))
    for i in range(len(past)):
        prompt = past[i, PROMPT]
        output = mean_length(past[i, PREDICTED], prompt, known)
        volumes[i] = volume(market.scarcity, plans, prompt, output, output * plans.mean_step_s)
    return quantile(volumes, 1.0 - rules.max_wait_exempt_share)


@part
def levels(key: np.ndarray, level_ratio: float, log_error: float) -> np.ndarray:
    """Requests whose keys are within the level ratio are equal, (J,); all of them while there are no prices."""
    found = np.zeros(len(key))
    for j in range(len(key)):
        if math.isnan(key[j]):
            return np.zeros(len(key))
        log_key = math.log(key[j]) if key[j] > 0 else -math.inf
        found[j] = np.floor(log_key / max(math.log(level_ratio), log_error))
    return found


@part
def ranked(rules: Rules, requests: np.ndarray, first: np.ndarray, known: Ratios) -> np.ndarray:
    """Queue indices: starvation bound first (longest wait first), then levels of the key, then arrival."""
    key, wait = np.empty(len(requests)), np.empty(len(requests))
    for j in range(len(requests)):
        key[j] = requests[j].key
    order = stable_order(-levels(key, rules.level_ratio, known.log_error))
    for i in range(len(order)):
        wait[i] = -requests[order[i]].waited_s if first[order[i]] else math.inf
    return order[stable_order(wait)]


# -- who starts -----------------------------------------------------------------------------------------------------


@kernel
def admit_all(
    rules: Rules,
    market: Market,
    plans: Plans,
    found: Candidates,
    first: np.ndarray,
    allowed: np.ndarray,
    refused: np.ndarray,
    known: Ratios,
    rotation: int,
    reserved_by: np.ndarray,
    reserved_steps: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Qualified requests by rank with reservations; then, on devices below the guard, the rest.

    Who was placed where, the order in which they were looked at, and where gate and guard would let each go if it were
    the first, (G, J).
    """
    kept = refused == KEPT
    order = chosen(ranked(rules, found.requests, first, known), kept)
    idle = below_guard(plans, rules.guard)
    any_idle = bool(idle.any())
    qualified, open_to = gate(found.starts, gate_factor(rules, found), allowed, first, any_idle)
    fits = chosen(order, qualified)
    set_load_prices(rules, market, plans)
    permit(found, open_to)
    level, kept_free = rules.remaining_quantile, reservations(rules, found)
    placed = fill(plans, level, known, found, fits, rotation, PASS_OVER, kept_free, reserved_by, reserved_steps)
    if len(fits) == len(order) or not any_idle:
        return placed, order, open_to
    rest = by_margin_per_price(found.starts, chosen(np.arange(len(kept)), kept & ~qualified))
    for g in range(len(idle)):
        for j in rest:
            open_to[g, j] = idle[g] and allowed[g, j]
    still_idle = below_guard(plans, rules.guard)
    for g in range(len(idle)):
        device = plans.devices[g]
        device.slots = min(device.slots, np.ceil(rules.guard * device.batch_slots))
        for j in rest:
            allowed[g, j] &= still_idle[g]
    permit(found, allowed)
    turn = rotation + len(placed)
    more = fill(plans, level, known, found, rest, turn, PASS_OVER, NOTHING_KEPT, reserved_by, reserved_steps)
    return np.concatenate((placed, more)), np.concatenate((fits, rest)), open_to


@part
def permit(found: Candidates, allowed: np.ndarray) -> None:
    """Note where each request may go, (G, J)."""
    for g in range(len(allowed)):
        for j in range(allowed.shape[1]):
            found.starts[g, j].allowed = allowed[g, j]


@part
def set_load_prices(rules: Rules, market: Market, plans: Plans) -> None:
    for g in range(len(plans.devices)):
        device = plans.devices[g]
        device.load_price = rules.load_weight * market.base_price / max(device.batch_slots, 1.0)


@part
def below_guard(plans: Plans, guard: float) -> np.ndarray:
    """Devices that the gate does not protect, (G,) bool."""
    found = np.empty(len(plans.devices), dtype=np.bool_)
    for g in range(len(found)):
        found[g] = utilisation(plans, g) < guard
    return found


@part
def mean_output(requests: np.ndarray) -> float:
    """Calibrated mean output tokens of a waiting request."""
    total = 0.0
    for j in range(len(requests)):
        total += requests[j].output_tokens
    return total / len(requests)


@part
def gate_factor(rules: Rules, found: Candidates) -> float:
    """f, 0 where there is no gate."""
    mean_tokens = mean_output(found.requests)
    share = deadline_share(rules.weights, rules.reward_window_s, rules.gate_horizon_s, mean_tokens)
    factor = rules.gate_scale * share
    return factor if factor > rules.gate_off else 0.0


@part
def reservations(rules: Rules, found: Candidates) -> int:
    """How many devices may be kept free; none where tokens make most of the reward, since waiting wastes them."""
    if not rules.reservation:
        return 0
    devices, count = found.starts.shape
    value = 0.0
    for g in range(devices):
        for j in range(count):
            value += found.starts[g, j].value
    if rules.weights.throughput * mean_output(found.requests) > value / (devices * count) / 2:
        return 0
    return max(1, int(np.rint(devices / 2)))


@part
def by_margin_per_price(starts: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """These requests, given in order of arrival: the most margin per price first."""
    ratio = np.empty(len(rest))
    for i in range(len(rest)):
        cost, value = least_cost(starts, rest[i]), -math.inf
        for g in range(len(starts)):
            value = max(value, starts[g, rest[i]].value)
        ratio[i] = (value - cost) / max(cost, TINY)
    return rest[stable_order(-ratio)]
