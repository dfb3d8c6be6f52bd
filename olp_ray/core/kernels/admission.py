"""The greedy pass that fills devices, with reservations for what fits nowhere yet (`core.admission`).

Notation
    symbol   meaning                                                        shape     unit
    G, J     devices, waiting requests
    s, n     prompt tokens and planned length of a candidate                (J,)      tokens
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel, part
from olp_ray.core.kernels.planning import admit, earliest_fit, fits, has_room, plan, utilisation
from olp_ray.core.kernels.records import Candidates, Plans, Ratios


@kernel
def fill(
    plans: Plans,
    level: float,
    known: Ratios,
    wanted: Candidates,
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
    devices = len(plans.devices)
    open_devices, opened = np.empty(devices, dtype=np.int64), 0
    for g in range(devices):
        if has_room(plans, g):
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
            device, request = plans.devices[g], wanted.requests[j]
            admit(plans, g, request.prompt_tokens, request.length_tokens)
            placed[count, 0], placed[count, 1] = j, g
            count += 1
            added_s[g, 0] += device.per_sequence_s + device.per_kv_token_s * request.mean_kv_tokens
            added_s[g, 1] += request.prompt_tokens / device.prefill_tokens_per_s
            if not has_room(plans, g):
                opened -= 1
                open_devices[k] = open_devices[opened]
        elif head_of_line:
            break
        elif wanted.requests[j].may_reserve and reservations > 0:
            g = _reserve(plans, level, known, wanted, j, reserved_by, reserved_steps)
            reservations -= g >= 0
    return placed[:count]


@part
def _best_device(
    plans: Plans,
    wanted: Candidates,
    j: int,
    open_devices: np.ndarray,
    reserved_steps: np.ndarray,
    added_s: np.ndarray,
    rotation: int,
) -> int:
    """Where among the open devices request j fits at the least net cost; -1: nowhere. Ties: the less used, then the
    first from `rotation` on."""
    request = wanted.requests[j]
    prompt, length = request.prompt_tokens, request.length_tokens
    best, least = -1, (0.0, 0.0, 0)
    for k in range(len(open_devices)):
        g = open_devices[k]
        device, start = plans.devices[g], wanted.starts[g, j]
        ends_in_time = length <= max(1.0, reserved_steps[g])
        if not (start.allowed and ends_in_time and fits(plans, g, prompt, length)):
            continue
        cost = start.cost - start.value
        cost += device.load_price * start.life_s * (device.kv_now / device.kv_tokens)
        cost += request.step_cost * added_s[g, 0]
        cost += request.wait_cost * added_s[g, 1]
        rank = (cost, utilisation(plans, g), (g - rotation) % len(plans.devices))
        if best < 0 or rank < least:
            best, least = k, rank
    return best


@part
def _reserve(
    plans: Plans,
    level: float,
    known: Ratios,
    wanted: Candidates,
    j: int,
    reserved_by: np.ndarray,
    reserved_steps: np.ndarray,
) -> int:
    """Keep the allowed device where request j fits first (then the one with less KV in use); -1: there is none."""
    best, least = -1, (math.inf, 0.0)
    for g in range(len(plans.devices)):
        if not wanted.starts[g, j].allowed or reserved_by[g] >= 0:
            continue
        plan(plans, g, level, known)
        steps = earliest_fit(plans, g, wanted.requests[j].prompt_tokens, wanted.requests[j].length_tokens)
        rank = (steps, plans.devices[g].kv_now / plans.devices[g].kv_tokens)
        if steps < math.inf and (best < 0 or rank < least):
            best, least = g, rank
    if best >= 0:
        reserved_by[best], reserved_steps[best] = j, least[0]
    return best
