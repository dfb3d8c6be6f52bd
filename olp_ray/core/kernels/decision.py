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
from olp_ray.core.kernels.appraisal import appraise, least, most, price_out, volumes
from olp_ray.core.kernels.compiler import kernel
from olp_ray.core.kernels.holding import utilisation
from olp_ray.core.kernels.lengths import mean_lengths
from olp_ray.core.kernels.ordering import chosen, quantile, stable_order
from olp_ray.core.kernels.planning import any_room, begin, count_kv, may_hold, room_s
from olp_ray.core.kernels.records import (
    ARRIVAL_S,
    KEPT,
    NEVER,
    PREDICTED,
    PROMPT,
    Appraised,
    Fleet,
    Limits,
    Market,
    Plans,
    Ratios,
    Rules,
    Wanted,
    Weights,
)
from olp_ray.core.kernels.rejection import passed, refuse
from olp_ray.core.kernels.worth import deadline_share, gate

MIN_VOLUMES = 50  # arrivals before the largest are told from the rest
TINY = np.finfo(np.float64).tiny
# typed: a literal among the arguments would have the kernel compiled once more for its value
PASS_OVER, NOTHING_KEPT = cast(bool, np.bool_(False)), cast(int, np.int64(0))


@kernel
def rules_of(numbers: np.ndarray) -> Rules:
    """`Rules` from all of its numbers, in order."""
    at = numbers
    weights = Weights(at[0], at[1], at[2], at[3], at[4], at[5], at[6] > 0)
    limits = Limits(int(at[7]), at[8], at[9], at[10], at[11])
    return Rules(
        weights,
        limits,
        *(at[12], at[13], at[14], at[15], at[16], at[17]),  # to level_ratio
        *(at[18], at[19], at[20], at[21]),  # guard and gate
        *(at[22], at[23], at[24]),  # starvation bound
        *(at[25], at[26], at[27], at[28] > 0),
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

    columns (6, J or more) are those of the queue, weights (J,) multiplies rewards, uncached is (1 or G, J), may_run
    (G, 1 or J) bool, past (n, 5) rows of `core.history`. Unless it is to look at everything, nothing is
    appraised where nothing may start.

    Records come as plain tuples, and rules as one array: to unpack them by name at this border takes longer than a look
    at a full fleet.
    """
    rules, market = rules_of(rule_numbers), Market(*market_of)
    fleet, known = Fleet(*fleet_of), Ratios(*known_of)
    count, devices = len(weights), len(fleet.slots)
    plans = begin(fleet, now_s, rules.prefill_ahead_s, count)
    refused, refuse_s = refuse(rules.limits, rules.weights, fleet, plans, columns, count, known, now_s)
    at_bound = passed(columns[ARRIVAL_S, :count], rules.max_wait_s, now_s)
    left = count_of(refused, KEPT)
    reserved_by, reserved_steps = np.full(devices, -1), np.full(devices, math.inf)
    placed, order = np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=np.int64)
    open_to, output, length = np.zeros((devices, 0), dtype=np.bool_), np.empty(0), np.empty(0)
    if devices > 0 and (look or (left > 0 and (at_bound > 0 or any_room(plans)))):
        count_kv(plans)
        found = appraise(rules, market, fleet, plans.backlog, columns, weights, uncached, known, now_s)
        output, length = found.output_tokens, found.length_tokens
        if rules.limits.rejects != NEVER:
            price_out(rules, found, at_bound, refused)
        first = goes_first(rules, market, fleet, columns[ARRIVAL_S, :count], found, past, known, now_s)
        allowed = may_hold(may_run, fleet.kv_tokens - fleet.padding, found.prompt_tokens, length)
        placed, order, open_to = admit_all(
            rules, market, fleet, plans, found, first, allowed, refused, known, rotation, reserved_by, reserved_steps
        )
        left = count_of(refused, KEPT) - len(placed)
    wake_s = math.inf
    if left > 0:
        wake_s = min(room_s(plans, fleet.prefill_tokens_per_s, now_s), refuse_s)
        if at_bound < count:
            wake_s = min(wake_s, columns[ARRIVAL_S, at_bound] + rules.max_wait_s)
    turned_away = count - count_of(refused, KEPT)
    return placed, refused, turned_away, wake_s, order, open_to, output, length, reserved_by, reserved_steps


@kernel
def count_of(values: np.ndarray, value: int) -> int:
    """How often a value is there."""
    found = 0
    for at_hand in values:
        found += at_hand == value
    return found


# -- who goes first -------------------------------------------------------------------------------------------------


@kernel
def goes_first(
    rules: Rules,
    market: Market,
    fleet: Fleet,
    arrival_s: np.ndarray,
    found: Appraised,
    past: np.ndarray,
    known: Ratios,
    now_s: float,
) -> np.ndarray:
    """Requests at the starvation bound, except those of the largest volume in history, (J,) bool."""
    late = np.zeros(len(arrival_s), dtype=np.bool_)
    any_late = False
    for j in range(len(arrival_s)):
        bound_s = arrival_s[j] + rules.max_wait_s  # the sum that the wake is asked for at
        late[j] = bound_s <= now_s + rules.max_wait_length_factor * found.mean_life_s[j]
        any_late |= late[j]
    if any_late and len(past) > MIN_VOLUMES and rules.max_wait_exempt_share > 0:
        largest = large_volume(rules, market, fleet, past, known)
        for j in range(len(arrival_s)):
            late[j] &= found.volume[j] <= largest
    return late


@kernel
def large_volume(rules: Rules, market: Market, fleet: Fleet, past: np.ndarray, known: Ratios) -> float:
    """Volume that only the exempt share of past arrivals exceeds."""
    prompt, mean_step_s = past[:, PROMPT].copy(), fleet.step_s.mean()
    output = mean_lengths(past[:, PREDICTED].copy(), prompt, known)
    volume = volumes(market.scarcity, fleet, prompt, output, output * mean_step_s)
    return quantile(volume, 1.0 - rules.max_wait_exempt_share)


@kernel
def levels(key: np.ndarray, level_ratio: float, log_error: float) -> np.ndarray:
    """Requests whose keys are within the level ratio are equal, (J,); all of them while there are no prices."""
    found = np.zeros(len(key))
    for j in range(len(key)):
        if math.isnan(key[j]):
            return np.zeros(len(key))
        log_key = math.log(key[j]) if key[j] > 0 else -math.inf
        found[j] = np.floor(log_key / max(math.log(level_ratio), log_error))
    return found


@kernel
def ranked(level: np.ndarray, first: np.ndarray, waited_s: np.ndarray) -> np.ndarray:
    """Queue indices: starvation bound first (longest wait first), then levels of the key, then arrival."""
    order = stable_order(-level)
    wait = np.empty(len(order))
    for i in range(len(order)):
        wait[i] = -waited_s[order[i]] if first[order[i]] else math.inf
    return order[stable_order(wait)]


# -- who starts -----------------------------------------------------------------------------------------------------


@kernel
def admit_all(
    rules: Rules,
    market: Market,
    fleet: Fleet,
    plans: Plans,
    found: Appraised,
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
    order = chosen(ranked(levels(found.key, rules.level_ratio, known.log_error), first, found.waited_s), kept)
    idle = below_guard(plans, rules.guard)
    any_idle = bool(idle.any())
    qualified, open_to = gate(found.value, found.cost, gate_factor(rules, found), allowed, first, any_idle)
    fits = chosen(order, qualified)
    wanted = candidates(rules, market, fleet, found, open_to)
    level, kept_free = rules.remaining_quantile, reservations(rules, found)
    placed = fill(plans, level, known, wanted, fits, rotation, PASS_OVER, kept_free, reserved_by, reserved_steps)
    if len(fits) == len(order) or not any_idle:
        return placed, order, open_to
    rest = by_margin_per_price(found, chosen(np.arange(len(kept)), kept & ~qualified))
    for g in range(len(idle)):
        for j in rest:
            open_to[g, j] = idle[g] and allowed[g, j]
    still_idle = below_guard(plans, rules.guard)
    for g in range(len(idle)):
        plans.slots[g] = min(plans.slots[g], np.ceil(rules.guard * fleet.slots[g]))
        for j in rest:
            allowed[g, j] &= still_idle[g]
    wanted = candidates(rules, market, fleet, found, allowed)
    turn = rotation + len(placed)
    more = fill(plans, level, known, wanted, rest, turn, PASS_OVER, NOTHING_KEPT, reserved_by, reserved_steps)
    return np.concatenate((placed, more)), np.concatenate((fits, rest)), open_to


@kernel
def below_guard(plans: Plans, guard: float) -> np.ndarray:
    """Devices that the gate does not protect, (G,) bool."""
    found = np.empty(len(plans.slots), dtype=np.bool_)
    for g in range(len(found)):
        used = utilisation(plans.slots[g], plans.kv_tokens[g], plans.occupied[g], plans.kv_now[g])
        found[g] = used < guard
    return found


@kernel
def gate_factor(rules: Rules, found: Appraised) -> float:
    """f, 0 where there is no gate."""
    mean_tokens = found.output_tokens.mean()
    share = deadline_share(rules.weights, rules.reward_window_s, rules.gate_horizon_s, mean_tokens)
    factor = rules.gate_scale * share
    return factor if factor > rules.gate_off else 0.0


@kernel
def reservations(rules: Rules, found: Appraised) -> int:
    """How many devices may be kept free; none where tokens make most of the reward, since waiting wastes them."""
    tokens = rules.weights.throughput * found.output_tokens.mean()
    if not rules.reservation or tokens > found.value.mean() / 2:
        return 0
    return max(1, int(np.rint(len(found.value) / 2)))


@kernel
def by_margin_per_price(found: Appraised, rest: np.ndarray) -> np.ndarray:
    """These requests, given in order of arrival: the most margin per price first."""
    cheapest, best, ratio = least(found.cost), most(found.value), np.empty(len(rest))
    for i in range(len(rest)):
        cost = cheapest[rest[i]]
        ratio[i] = (best[rest[i]] - cost) / max(cost, TINY)
    return rest[stable_order(-ratio)]


@kernel
def candidates(rules: Rules, market: Market, fleet: Fleet, found: Appraised, allowed: np.ndarray) -> Wanted:
    """What the greedy pass has to know of the requests."""
    weights = rules.weights
    return Wanted(
        found.prompt_tokens,
        found.length_tokens,
        allowed,
        np.ones(len(found.weight), dtype=np.bool_),
        found.cost,
        found.value,
        found.life_s,
        rules.load_weight * market.base_price / np.maximum(fleet.slots, 1.0),
        fleet.per_sequence_s,
        fleet.per_kv_token_s,
        fleet.prefill_tokens_per_s,
        found.prompt_tokens + found.output_tokens / 2,
        weights.e2e * found.weight * found.output_tokens,
        (weights.e2e + weights.ttft) * found.weight,
    )
