"""Until when residents stay, whether a candidate fits for its whole life, and the greedy pass that fills devices.

Notation
    symbol   meaning                                                        shape     unit     paper
    G, J     devices, waiting requests
    theta    tokens that a resident has decoded                             (G, R)    tokens   theta
    r        planned remaining decode iterations of a resident              (G, W)    steps    o-hat_j - theta
    kv       KV tokens of a resident now                                    (G, R)    tokens   m_j^mem
    s, n     prompt tokens and planned length of a candidate                (J,)      tokens   s_j, o-hat_j
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel
from olp_ray.core.kernels.records import DECODED, KNOWN_S, PREDICTED, PROMPT, STARTED, Plans, Ratios, Wanted

OVERRUN_SHARE = 0.15  # beyond every ratio seen, the mean of what is left, as a share of what has been decoded


@kernel
def bin_of(predicted: float, prompt_tokens: float, bin_edges: np.ndarray, prompt_edges: np.ndarray) -> int:
    """Index of the bin whose ratios speak for a prediction; edges as in `Ratios`."""
    row = np.searchsorted(bin_edges, predicted)
    edges = prompt_edges[row]
    return int(row * (len(edges) + 1) + np.searchsorted(edges, prompt_tokens))


@kernel
def bins_of_all(
    predicted: np.ndarray, prompt_tokens: np.ndarray, bin_edges: np.ndarray, prompt_edges: np.ndarray
) -> np.ndarray:
    """`bin_of` each prediction, int64 (n,)."""
    found = np.empty(len(predicted), dtype=np.int64)
    for i in range(len(found)):
        found[i] = bin_of(predicted[i], prompt_tokens[i], bin_edges, prompt_edges)
    return found


@kernel
def mean_lengths(predicted: np.ndarray, prompt_tokens: np.ndarray, known: Ratios) -> np.ndarray:
    """ell of new requests, (n,), unrounded."""
    found = predicted.copy()
    if known.known:
        for i in range(len(found)):
            part = np.searchsorted(known.ratio_edges, prompt_tokens[i])
            found[i] = max(predicted[i] * known.prompt_ratios[part], 1.0)
    return found


@kernel
def median_lengths(predicted: np.ndarray, prompt_tokens: np.ndarray, known: Ratios) -> np.ndarray:
    """n of new requests, (n,), whole tokens >= 1."""
    found = np.empty(len(predicted))
    for i in range(len(found)):
        median = 1.0
        if known.known:
            median = known.medians[bin_of(predicted[i], prompt_tokens[i], known.bin_edges, known.prompt_edges)]
        found[i] = max(np.rint(predicted[i] * median), 1.0)
    return found


@kernel
def remaining(decoded: float, predicted: float, prompt_tokens: float, level: float, known: Ratios) -> float:
    """Conditional quantile of the tokens that a resident has still to come; at least 1."""
    if not known.known:
        left = np.ceil(predicted) - decoded
        if left > 0:
            return max(left, 1.0)
    else:
        b = bin_of(predicted, prompt_tokens, known.bin_edges, known.prompt_edges)
        start, stop = known.starts[b], known.starts[b + 1]
        below = min(decoded / predicted, known.span - 0.5) + known.span * b
        at = min(max(np.searchsorted(known.lookup, below, side="right"), start), stop)
        if at < stop:
            at += max(int(np.ceil(level * (stop - at))) - 1, 0)
            return max(np.ceil(predicted * known.ratios[at]) - decoded, 1.0)
    return np.ceil(-math.log(1.0 - level) * max(OVERRUN_SHARE * decoded, 1.0))


@kernel
def remaining_of_all(
    decoded: np.ndarray, predicted: np.ndarray, prompt_tokens: np.ndarray, level: float, known: Ratios
) -> np.ndarray:
    """`remaining` of each entry, arrays of shape (n,)."""
    found = np.empty(len(decoded))
    for i in range(len(decoded)):
        found[i] = remaining(decoded[i], predicted[i], prompt_tokens[i], level, known)
    return found


@kernel
def decoded(held_by: np.ndarray, g: int, i: int, now_s: float, step_s: float) -> float:
    """theta of resident i of device g: last known tokens, carried on at the step time if it runs."""
    passed = max(now_s - held_by[KNOWN_S, g, i], 0.0) / step_s
    return held_by[DECODED, g, i] + held_by[STARTED, g, i] * passed


@kernel
def decoded_on(held_by: np.ndarray, g: int, residents: int, now_s: float, step_s: float) -> np.ndarray:
    """`decoded` of each resident of device g."""
    found = np.empty(residents)
    for i in range(residents):
        found[i] = decoded(held_by, g, i, now_s, step_s)
    return found


@kernel
def kv_held(
    held_by: np.ndarray, residents: np.ndarray, external: np.ndarray, now_s: float, step_s: np.ndarray
) -> np.ndarray:
    """KV tokens of the residents of each device and of external load, (G,)."""
    found = np.zeros(len(residents))
    for g in range(len(residents)):
        for i in range(residents[g]):
            found[g] += held_by[PROMPT, g, i] + decoded(held_by, g, i, now_s, step_s[g])
    return found + external


@kernel
def backlogs(tokens: np.ndarray, at_s: np.ndarray, rate: np.ndarray, now_s: float) -> np.ndarray:
    """Prompt tokens (G,) that are left of those of at_s, worked off at a rate per second; inf: at once."""
    found = np.zeros(len(tokens))
    for g in range(len(tokens)):
        if rate[g] < math.inf:
            found[g] = max(tokens[g] - rate[g] * max(now_s - at_s[g], 0.0), 0.0)
    return found


@kernel
def backlog_limits(rate: np.ndarray, ahead_s: float) -> np.ndarray:
    """Prompt tokens (G,) that keep prefill busy for ahead_s; inf where it takes no time."""
    found = np.full(len(rate), math.inf)
    for g in range(len(rate)):
        if rate[g] < math.inf:
            found[g] = rate[g] * ahead_s
    return found


@kernel
def takes_more(slots: float, occupied: float, backlog: float, backlog_limit: float) -> bool:
    """A slot is free, and the prompts sent already keep prefill busy no longer than it looks ahead."""
    return slots - occupied >= 1 and backlog <= backlog_limit


@kernel
def take_more(slots: np.ndarray, occupied: np.ndarray, backlog: np.ndarray, backlog_limit: np.ndarray) -> np.ndarray:
    """`takes_more` of each device, bool (G,)."""
    found = np.empty(len(slots), dtype=np.bool_)
    for g in range(len(slots)):
        found[g] = takes_more(slots[g], occupied[g], backlog[g], backlog_limit[g])
    return found


@kernel
def next_room(
    slots: np.ndarray, occupied: np.ndarray, backlog: np.ndarray, backlog_limit: np.ndarray, rate: np.ndarray
) -> float:
    """Seconds until the first device with a free slot and too many prompts has worked these off; inf: there is none."""
    found = math.inf
    for g in range(len(slots)):
        if slots[g] - occupied[g] >= 1 and backlog[g] > backlog_limit[g]:
            found = min(found, (backlog[g] - backlog_limit[g]) / rate[g])
    return found


@kernel
def _takes_more(plans: Plans, g: int) -> bool:
    return takes_more(plans.slots[g], plans.occupied[g], plans.backlog[g], plans.backlog_limit[g])


@kernel
def plan(plans: Plans, g: int, level: float, known: Ratios) -> None:
    """Plan device g's residents, unless that is done already."""
    if plans.planned[g] >= 0:
        return
    plans.planned[g] = 0
    for i in range(plans.residents[g]):
        theta, prompt = decoded(plans.held_by, g, i, plans.now_s, plans.step_s[g]), plans.held_by[PROMPT, g, i]
        left = remaining(theta, plans.held_by[PREDICTED, g, i], prompt - plans.padding[g], level, known)
        _insert(plans, g, left, prompt + theta)
    _set_peaks(plans, g)


@kernel
def _insert(plans: Plans, g: int, end: float, kv: float) -> None:
    """Among those that end at the same time, the last."""
    ends, held = plans.ends[g], plans.held[g]
    i = plans.planned[g]
    while i > 0 and ends[i - 1] > end:
        ends[i], held[i] = ends[i - 1], held[i - 1]
        i -= 1
    ends[i], held[i] = end, kv
    plans.planned[g] += 1


@kernel
def _set_peaks(plans: Plans, g: int) -> None:
    """Between two planned ends KV tokens only grow, so peaks are at the ends."""
    count, ends, held, left, peak = plans.planned[g], plans.ends[g], plans.held[g], plans.left[g], plans.peak[g]
    left[count] = 0.0
    for i in range(count - 1, -1, -1):
        left[i] = left[i + 1] + held[i]
    peak[0] = 0.0
    for i in range(count):
        peak[i + 1] = max(peak[i], left[i] + (count + 1 - i) * ends[i])


@kernel
def fits(plans: Plans, g: int, prompt_tokens: float, length_tokens: float) -> bool:
    """Whether a candidate could start now on device g, which is planned and takes more, and stay."""
    count, left = plans.planned[g], plans.left[g]
    capacity = plans.kv_tokens[g] - plans.external_kv_tokens[g]
    prompt = prompt_tokens + plans.padding[g]
    length = min(length_tokens, max(capacity - prompt, 1.0))
    before = np.searchsorted(plans.ends[g, :count], length)
    at_end = left[before] + (count + 1 - before) * length
    return max(plans.peak[g, before], at_end, left[0] + 1 + count) + prompt <= capacity


@kernel
def fits_of_all(
    plans: Plans, g: int, prompt_tokens: np.ndarray, length_tokens: np.ndarray, level: float, known: Ratios
) -> np.ndarray:
    """Which candidates could start now on device g and stay, bool (n,)."""
    found = np.zeros(len(prompt_tokens), dtype=np.bool_)
    if _takes_more(plans, g):
        plan(plans, g, level, known)
        for j in range(len(found)):
            found[j] = fits(plans, g, prompt_tokens[j], length_tokens[j])
    return found


@kernel
def admit(plans: Plans, g: int, prompt_tokens: float, length_tokens: float) -> None:
    """Add a candidate to the plan of device g, which is planned."""
    held = prompt_tokens + plans.padding[g]
    _insert(plans, g, length_tokens, held)
    _set_peaks(plans, g)
    plans.kv_now[g] += held
    plans.occupied[g] += 1
    plans.backlog[g] += prompt_tokens


@kernel
def earliest_fit(plans: Plans, g: int, prompt_tokens: float, length_tokens: float) -> float:
    """Steps until the candidate would fit on device g, which is planned, if nothing else came; at least 1, inf: never.

    A later start makes the candidate smaller at each resident's end, and leaves more of them behind it: each round
    moves the start to where the limits that it breaks would hold, or to the next end if that comes first.
    """
    count, left = plans.planned[g], plans.left[g]
    ends = plans.ends[g, :count]
    slots = plans.slots[g] - plans.external_slots[g]
    capacity = plans.kv_tokens[g] - plans.external_kv_tokens[g]
    prompt = prompt_tokens + plans.padding[g]
    length = min(length_tokens, max(capacity - prompt, 1.0))
    if prompt + 1 > capacity or slots < 1:
        return math.inf
    must_end = max(int(np.ceil(count + 1 - slots)), 0)
    start = max(ends[must_end - 1], 1.0) if must_end else 1.0
    while True:
        alive = np.searchsorted(ends, start, side="right")
        stop = np.searchsorted(ends, start + length)
        most = 0.0
        for i in range(alive, stop):
            most = max(most, left[i] + (count - i) * ends[i] + ends[i])
        fits_from = most + prompt - capacity
        at_end = left[stop] + (count - stop) * (start + length) + length + prompt
        if at_end > capacity:
            fits_from = max(fits_from, ends[stop] - length + 1)
        if fits_from <= start:
            return start
        start = min(fits_from, ends[alive])


@kernel
def utilisation(slots: float, kv_tokens: float, occupied: float, kv_now: float) -> float:
    """The fuller of the two resources, as a share; 1 for a device without capacity."""
    return 1.0 if slots <= 0 or kv_tokens <= 0 else max(occupied / slots, kv_now / kv_tokens)


@kernel
def utilisation_of_all(
    slots: np.ndarray, kv_tokens: np.ndarray, occupied: np.ndarray, kv_now: np.ndarray
) -> np.ndarray:
    """`utilisation` of each device, (G,)."""
    found = np.empty(len(slots))
    for g in range(len(slots)):
        found[g] = utilisation(slots[g], kv_tokens[g], occupied[g], kv_now[g])
    return found


@kernel
def fill(
    plans: Plans,
    level: float,
    known: Ratios,
    wanted: Wanted,
    order: np.ndarray,
    rotation: int,
    head_of_line: bool,
    reservations: int,
    reserved_by: np.ndarray,
    reserved_steps: np.ndarray,
) -> np.ndarray:
    """The pass of `core.admission.admit_in_order`: (placed, 2) queue and device indices, by rank.

    order is int64 queue indices by rank. reserved_by (G,) holds queue indices, -1: none; reserved_steps (G,) the steps
    until a reservation begins, inf: none; new ones are added to them.
    """
    devices = len(plans.slots)
    open_devices, opened = np.empty(devices, dtype=np.int64), 0
    for g in range(devices):
        if _takes_more(plans, g):
            plan(plans, g, level, known)
            open_devices[opened] = g
            opened += 1
    placed, count = np.empty((len(order), 2), dtype=np.int64), 0
    added_s = np.zeros((devices, 2))  # by this pass: to each iteration, and to the prefill queue
    for j in order:
        if opened == 0:
            break
        k = _best_device(plans, wanted, j, open_devices[:opened], reserved_steps, added_s, rotation + count)
        if k >= 0:
            g = open_devices[k]
            admit(plans, g, wanted.prompt_tokens[j], wanted.length_tokens[j])
            placed[count, 0], placed[count, 1] = j, g
            count += 1
            added_s[g, 0] += wanted.per_sequence_s[g] + wanted.per_kv_token_s[g] * wanted.mean_kv_tokens[j]
            added_s[g, 1] += wanted.prompt_tokens[j] / wanted.prefill_tokens_per_s[g]
            if not _takes_more(plans, g):
                opened -= 1
                open_devices[k] = open_devices[opened]
        elif head_of_line:
            break
        elif wanted.may_reserve[j] and reservations > 0:
            g = _reserve(plans, level, known, wanted, j, reserved_by, reserved_steps)
            reservations -= g >= 0
    return placed[:count]


@kernel
def _best_device(
    plans: Plans,
    wanted: Wanted,
    j: int,
    open_devices: np.ndarray,
    reserved_steps: np.ndarray,
    added_s: np.ndarray,
    rotation: int,
) -> int:
    """Where among the open devices request j fits at the least net cost; -1: nowhere. Ties: the less used, then the
    first from `rotation` on."""
    prompt, length = wanted.prompt_tokens[j], wanted.length_tokens[j]
    best, least = -1, (0.0, 0.0, 0)
    for k in range(len(open_devices)):
        g = open_devices[k]
        ends_in_time = length <= max(1.0, reserved_steps[g])
        if not (wanted.allowed[g, j] and ends_in_time and fits(plans, g, prompt, length)):
            continue
        cost = wanted.cost[g, j] - wanted.value[g, j]
        cost += wanted.load_price[g] * wanted.life_s[g, j] * (plans.kv_now[g] / plans.kv_tokens[g])
        cost += wanted.step_cost[j] * added_s[g, 0]
        cost += wanted.wait_cost[j] * added_s[g, 1]
        used = utilisation(plans.slots[g], plans.kv_tokens[g], plans.occupied[g], plans.kv_now[g])
        rank = (cost, used, (g - rotation) % len(plans.slots))
        if best < 0 or rank < least:
            best, least = k, rank
    return best


@kernel
def _reserve(
    plans: Plans,
    level: float,
    known: Ratios,
    wanted: Wanted,
    j: int,
    reserved_by: np.ndarray,
    reserved_steps: np.ndarray,
) -> int:
    """Keep the allowed device where request j fits first (then the one with less KV in use); -1: there is none."""
    best, least = -1, (math.inf, 0.0)
    for g in range(len(plans.slots)):
        if not wanted.allowed[g, j] or reserved_by[g] >= 0:
            continue
        plan(plans, g, level, known)
        steps = earliest_fit(plans, g, wanted.prompt_tokens[j], wanted.length_tokens[j])
        rank = (steps, plans.kv_now[g] / plans.kv_tokens[g])
        if steps < math.inf and (best < 0 or rank < least):
            best, least = g, rank
    if best >= 0:
        reserved_by[best], reserved_steps[best] = j, least[0]
    return best


@kernel
def expected_occupancy(
    held_by: np.ndarray,
    residents: np.ndarray,
    padding: np.ndarray,
    external_slots: np.ndarray,
    external_kv_tokens: np.ndarray,
    now_s: float,
    step_s: np.ndarray,
    bucket_s: float,
    buckets: int,
    levels: np.ndarray,
    known: Ratios,
) -> np.ndarray:
    """Slots and KV tokens in use per bucket, (G, 2, N), when residents end at these quantiles, each as often."""
    found = np.zeros((len(residents), 2, buckets))
    for g in range(len(residents)):
        bucket_steps = bucket_s / step_s[g]
        ending = np.zeros((2, buckets + 1))
        for level in levels:
            at_level = np.zeros((2, buckets + 1))
            for i in range(residents[g]):
                theta, prompt = decoded(held_by, g, i, now_s, step_s[g]), held_by[PROMPT, g, i]
                left = remaining(theta, max(held_by[PREDICTED, g, i], 1.0), prompt - padding[g], level, known)
                last = int(min(np.ceil(left / bucket_steps), buckets))
                at_level[0, last] += 1.0
                at_level[1, last] += prompt + theta
            ending += at_level / len(levels)
        alive, kv = 0.0, 0.0
        for h in range(buckets - 1, -1, -1):
            alive += ending[0, h + 1]
            kv += ending[1, h + 1]
            found[g, 0, h] = alive + external_slots[g]
            found[g, 1, h] = kv + alive * ((h + 1) * bucket_steps) + external_kv_tokens[g]
    return found
