"""Until when residents stay, and whether a candidate fits for its whole life.

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

from olp_ray.core.kernels.compiler import kernel, part
from olp_ray.core.kernels.holding import backlog, decoded, kv_on, mean
from olp_ray.core.kernels.lengths import remaining
from olp_ray.core.kernels.ordering import below, up_to
from olp_ray.core.kernels.records import DEVICE, ENDS, HELD, LEFT, PEAK, PREDICTED, PROMPT, Fleet, Plans, Ratios

PREFILL_MARGIN_S = 1e-6  # so that a wake for room in the prefill queue finds it


@kernel
def begin(fleet: Fleet, now_s: float, prefill_ahead_s: float, admissions: int) -> Plans:
    """What devices hold now, and nothing planned yet: most are full at most times, and are never asked for.

    There is room for so many admissions on each device. KV tokens are still to be counted, by `count_kv`: most looks
    end before anyone asks for them.
    """
    count, width = len(fleet.slots), admissions
    devices = np.zeros(count, dtype=DEVICE)
    for g in range(count):
        device = devices[g]
        device.batch_slots = fleet.slots[g]
        device.slots = 0.0 if fleet.draining[g] else fleet.slots[g]
        device.kv_tokens = fleet.kv_tokens[g]
        device.external_slots = fleet.external_slots[g]
        device.external_kv_tokens = fleet.external_kv_tokens[g]
        device.padding = fleet.padding[g]
        device.step_s = fleet.step_s[g]
        device.idle_step_s = fleet.idle_step_s[g]
        device.per_sequence_s = fleet.per_sequence_s[g]
        device.per_kv_token_s = fleet.per_kv_token_s[g]
        rate = fleet.prefill_tokens_per_s[g]
        device.prefill_tokens_per_s = rate
        device.backlog = backlog(fleet.backlog_tokens[g], fleet.backlog_at_s[g], rate, now_s)
        device.backlog_limit = rate * prefill_ahead_s if rate < math.inf else math.inf
        device.occupied = fleet.residents[g] + fleet.external_slots[g]
        device.residents = fleet.residents[g]
        device.planned = -1
        width = max(width, fleet.residents[g] + admissions)
    return Plans(
        devices,
        fleet.held_by,
        np.empty((4, count, width + 1)),
        fleet.mean_added_s,
        mean(fleet.slots),
        mean(fleet.kv_tokens),
        mean(fleet.step_s),
        now_s,
    )


@part
def has_room(plans: Plans, g: int) -> bool:
    """A slot is free, and the prompts sent already keep prefill busy no longer than it looks ahead."""
    device = plans.devices[g]
    return device.slots - device.occupied >= 1 and device.backlog <= device.backlog_limit


@kernel
def room(plans: Plans) -> np.ndarray:
    """`has_room` of each device, bool (G,)."""
    found = np.empty(len(plans.devices), dtype=np.bool_)
    for g in range(len(found)):
        found[g] = has_room(plans, g)
    return found


@part
def any_room(plans: Plans) -> bool:
    """Whether any device takes more now."""
    found = False
    for g in range(len(plans.devices)):
        found |= has_room(plans, g)
    return found


@part
def room_s(plans: Plans, now_s: float) -> float:
    """When the first device with a free slot has worked off enough prompts to take more; inf if none waits so."""
    wait_s = math.inf
    for g in range(len(plans.devices)):
        device = plans.devices[g]
        if device.slots - device.occupied >= 1 and device.backlog > device.backlog_limit:
            wait_s = min(wait_s, (device.backlog - device.backlog_limit) / device.prefill_tokens_per_s)
    return now_s + wait_s + PREFILL_MARGIN_S


@part
def count_kv(plans: Plans) -> None:
    """Fill in what each device holds now, before anything is admitted."""
    for g in range(len(plans.devices)):
        device = plans.devices[g]
        held = kv_on(plans.held_by, g, device.residents, plans.now_s, device.step_s)
        device.kv_now = held + device.external_kv_tokens


@part
def utilisation(plans: Plans, g: int) -> float:
    """The fuller of the two resources of a device, as a share; 1 without capacity."""
    device = plans.devices[g]
    if device.slots <= 0 or device.kv_tokens <= 0:
        return 1.0
    return max(device.occupied / device.slots, device.kv_now / device.kv_tokens)


@kernel
def utilisation_of_all(plans: Plans) -> np.ndarray:
    """`utilisation` of each device, (G,)."""
    found = np.empty(len(plans.devices))
    for g in range(len(found)):
        found[g] = utilisation(plans, g)
    return found


@part
def empty_kv_tokens(plans: Plans) -> np.ndarray:
    """KV tokens of each device while it holds nothing, less what block rounding may add to a request, (G,)."""
    found = np.empty(len(plans.devices))
    for g in range(len(found)):
        found[g] = plans.devices[g].kv_tokens - plans.devices[g].padding
    return found


@kernel
def plan(plans: Plans, g: int, level: float, known: Ratios) -> None:
    """Plan device g's residents, unless that is done already."""
    device = plans.devices[g]
    if device.planned >= 0:
        return
    device.planned = 0
    for i in range(device.residents):
        theta, prompt = decoded(plans.held_by, g, i, plans.now_s, device.step_s), plans.held_by[PROMPT, g, i]
        left = remaining(theta, plans.held_by[PREDICTED, g, i], prompt - device.padding, level, known)
        _insert(plans, g, left, prompt + theta)
    _set_peaks(plans, g)


@kernel
def _insert(plans: Plans, g: int, end: float, kv: float) -> None:
    """Among those that end at the same time, the last."""
    ends, held = plans.ahead[ENDS, g], plans.ahead[HELD, g]
    i = plans.devices[g].planned
    while i > 0 and ends[i - 1] > end:
        ends[i], held[i] = ends[i - 1], held[i - 1]
        i -= 1
    ends[i], held[i] = end, kv
    plans.devices[g].planned += 1


@kernel
def _set_peaks(plans: Plans, g: int) -> None:
    """Between two planned ends KV tokens only grow, so peaks are at the ends."""
    count, ends, held = plans.devices[g].planned, plans.ahead[ENDS, g], plans.ahead[HELD, g]
    left, peak = plans.ahead[LEFT, g], plans.ahead[PEAK, g]
    left[count] = 0.0
    for i in range(count - 1, -1, -1):
        left[i] = left[i + 1] + held[i]
    peak[0] = 0.0
    for i in range(count):
        peak[i + 1] = max(peak[i], left[i] + (count + 1 - i) * ends[i])


@kernel
def fits(plans: Plans, g: int, prompt_tokens: float, length_tokens: float) -> bool:
    """Whether a candidate could start now on device g, which is planned and takes more, and stay."""
    device, ends, left, peak = plans.devices[g], plans.ahead[ENDS, g], plans.ahead[LEFT, g], plans.ahead[PEAK, g]
    count, capacity = device.planned, device.kv_tokens - device.external_kv_tokens
    prompt = prompt_tokens + device.padding
    length = min(length_tokens, max(capacity - prompt, 1.0))
    before = below(ends[:count], length)
    at_end = left[before] + (count + 1 - before) * length
    return max(peak[before], at_end, left[0] + 1 + count) + prompt <= capacity


@kernel
def fits_of_all(
    plans: Plans, g: int, prompt_tokens: np.ndarray, length_tokens: np.ndarray, level: float, known: Ratios
) -> np.ndarray:
    """Which candidates could start now on device g and stay, bool (n,)."""
    found = np.zeros(len(prompt_tokens), dtype=np.bool_)
    if has_room(plans, g):
        plan(plans, g, level, known)
        for j in range(len(found)):
            found[j] = fits(plans, g, prompt_tokens[j], length_tokens[j])
    return found


@kernel
def admit(plans: Plans, g: int, prompt_tokens: float, length_tokens: float) -> None:
    """Add a candidate to the plan of device g, which is planned."""
    device = plans.devices[g]
    held = prompt_tokens + device.padding
    _insert(plans, g, length_tokens, held)
    _set_peaks(plans, g)
    device.kv_now += held
    device.occupied += 1
    device.backlog += prompt_tokens


@kernel
def earliest_fit(plans: Plans, g: int, prompt_tokens: float, length_tokens: float) -> float:
    """Steps until the candidate would fit on device g, which is planned, if nothing else came; at least 1, inf: never.

    A later start makes the candidate smaller at each resident's end, and leaves more of them behind it: each round
    moves the start to where the limits that it breaks would hold, or to the next end if that comes first.
    """
    device, left = plans.devices[g], plans.ahead[LEFT, g]
    count, ends = device.planned, plans.ahead[ENDS, g, : device.planned]
    slots = device.slots - device.external_slots
    capacity = device.kv_tokens - device.external_kv_tokens
    prompt = prompt_tokens + device.padding
    length = min(length_tokens, max(capacity - prompt, 1.0))
    if prompt + 1 > capacity or slots < 1:
        return math.inf
    must_end = max(int(np.ceil(count + 1 - slots)), 0)
    start = max(ends[must_end - 1], 1.0) if must_end else 1.0
    while True:
        alive = up_to(ends, start)
        stop = below(ends, start + length)
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
def too_small(
    may_run: np.ndarray, room: np.ndarray, prompt_tokens: np.ndarray, length_tokens: np.ndarray
) -> np.ndarray:
    """(G, J) bool: `View.too_small`; may_run is (G, 1 or J), room (G,) the KV tokens of the empty device."""
    devices, count = len(room), len(prompt_tokens)
    largest, held = np.full(count, -math.inf), np.zeros(count, dtype=np.bool_)
    for g in range(devices):
        for j in range(count):
            if may_run[g, j if may_run.shape[1] > 1 else 0]:
                largest[j] = max(largest[j], room[g])
                held[j] |= prompt_tokens[j] + length_tokens[j] <= room[g]
    found = np.zeros((devices, count), dtype=np.bool_)
    for g in range(devices):
        for j in range(count):
            exceeds = prompt_tokens[j] + length_tokens[j] > room[g]
            found[g, j] = exceeds and (held[j] or room[g] < largest[j])
    return found


@kernel
def may_hold(may_run: np.ndarray, room: np.ndarray, prompt_tokens: np.ndarray, length_tokens: np.ndarray) -> np.ndarray:
    """(G, J) bool: the device may run the request, and is not `too_small` for it."""
    found = ~too_small(may_run, room, prompt_tokens, length_tokens)
    for g in range(len(room)):
        for j in range(len(prompt_tokens)):
            found[g, j] &= may_run[g, j if may_run.shape[1] > 1 else 0]
    return found
