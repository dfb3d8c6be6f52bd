"""Global greedy admission: requests in a given order, devices by a given cost, feasibility by the forecast.

The one loop that every policy with a central queue goes through. What the order and the cost are is the policy's
business; whether something fits is the forecast's.

Notation
    symbol   meaning                                              shape     unit
    J, G     candidates in order of rank, devices
    c        cost of a candidate on a device                      (G, J)    reward
    n        planned length of a candidate                        (J,)      steps
    r        steps until a reservation on a device begins         (G,)      steps

Ties between devices: cost, then utilisation, then index rotated by the number of admissions so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from olp_ray.core.forecast import Forecast


@dataclass(frozen=True, slots=True)
class Crowding:
    """What an admission makes dearer for those that follow it to the same device, in reward.

    Admitting j adds step_added_s[g, j] to each iteration of g and wait_added_s[g, j] to the prefill queue there; k then
    loses step_cost[k] and wait_cost[k] for each such second.
    """

    step_added_s: np.ndarray  # (G, J)
    wait_added_s: np.ndarray  # (G, J)
    step_cost: np.ndarray  # (J,)
    wait_cost: np.ndarray  # (J,)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Requests in order of rank. index maps back to the queue; allowed says where model, stage and gate permit."""

    index: np.ndarray  # (J,)
    prompt_tokens: np.ndarray  # (J,)
    length_tokens: np.ndarray  # (J,)
    allowed: np.ndarray  # (G, J) bool
    cost: np.ndarray  # (G, J)
    load_cost: np.ndarray  # (G, J): added in proportion to the KV share in use
    may_reserve: np.ndarray  # (J,) bool
    crowding: Crowding | None = None


@dataclass(slots=True)
class Admission:
    """What the greedy pass did: placements in order of rank, and the reservations it made (device -> steps)."""

    placed: list[tuple[int, int]] = field(default_factory=list)  # (queue index, device index)
    reserved: dict[int, tuple[int, float]] = field(default_factory=dict)  # device -> (queue index, r)
    rotation: int = 0


def plain_candidates(
    index: np.ndarray,
    prompt_tokens: np.ndarray,
    length_tokens: np.ndarray,
    allowed: np.ndarray,
    *,
    may_reserve: bool = False,
) -> Candidates:
    """Candidates that no device is dearer for; all of them, or none, may reserve."""
    nothing = np.zeros(allowed.shape)
    return Candidates(index, prompt_tokens, length_tokens, allowed, nothing, nothing, np.full(len(index), may_reserve))


def admit_in_order(
    forecast: Forecast,
    candidates: Candidates,
    rotation: int,
    *,
    head_of_line: bool = False,
    reservations: int = 0,
) -> Admission:
    """Admit candidates by rank wherever they fit; changes `forecast`.

    head_of_line stops at the first that fits nowhere. Otherwise it is skipped, and if it may reserve, the device
    where it would fit first is kept for it (EASY backfilling): candidates of lower rank go there only if they are
    planned to have ended by then. At most `reservations` devices are kept.
    """
    done = Admission(rotation=rotation)
    count = len(candidates.index)
    fits = np.zeros(candidates.allowed.shape, dtype=bool)
    for g in np.flatnonzero(forecast.takes_more).tolist():
        fits[g] = _fits(forecast, candidates, g)
    added_s = np.zeros((2, len(fits)))  # by the admissions of this pass: to iterations, and to the prefill queue
    position = 0
    while position < count and forecast.takes_more.any():
        startable: np.ndarray = np.any(fits[:, position:], axis=0)
        reserves = len(done.reserved) < reservations and not head_of_line
        stops = startable | candidates.may_reserve[position:] if reserves else startable
        offset = 0 if head_of_line else int(stops.argmax())
        if not stops[offset]:
            break
        j = position + offset
        position = j + 1
        if startable[offset]:
            g = _pick_device(forecast, candidates, fits[:, j], j, done.rotation, added_s)
            forecast.admit(g, candidates.prompt_tokens[j], candidates.length_tokens[j])
            done.placed.append((int(candidates.index[j]), g))
            done.rotation += 1
            if candidates.crowding is not None:
                added_s[0, g] += candidates.crowding.step_added_s[g, j]
                added_s[1, g] += candidates.crowding.wait_added_s[g, j]
            fits[g] = _fits(forecast, candidates, g)
        else:
            g = _reserve(forecast, candidates, j, done)
        if g in done.reserved:
            fits[g] &= candidates.length_tokens <= max(1.0, done.reserved[g][1])
    return done


def _fits(forecast: Forecast, candidates: Candidates, g: int) -> np.ndarray:
    return candidates.allowed[g] & forecast.fits(g, candidates.prompt_tokens, candidates.length_tokens)


def _pick_device(
    forecast: Forecast, candidates: Candidates, fits: np.ndarray, j: int, rotation: int, added_s: np.ndarray
) -> int:
    cost = candidates.cost[:, j] + candidates.load_cost[:, j] * (forecast.kv_now / forecast.kv_tokens)
    crowding = candidates.crowding
    if crowding is not None:
        cost = cost + crowding.step_cost[j] * added_s[0] + crowding.wait_cost[j] * added_s[1]
    devices = np.flatnonzero(fits)
    rotated = (devices - rotation) % len(fits)
    return int(devices[np.lexsort((rotated, forecast.utilisation[devices], cost[devices]))[0]])


def _reserve(forecast: Forecast, candidates: Candidates, j: int, done: Admission) -> int:
    """Keep the allowed device where candidate j fits first (then the one with less KV in use); -1 if there is none."""
    devices = [g for g in np.flatnonzero(candidates.allowed[:, j]).tolist() if g not in done.reserved]
    if not devices:
        return -1
    prompt, length = candidates.prompt_tokens[j], candidates.length_tokens[j]
    waits = [(forecast.earliest_fit(g, prompt, length), forecast.kv_now[g] / forecast.kv_tokens[g], g) for g in devices]
    steps, _, g = min(waits)
    if np.isinf(steps):
        return -1
    done.reserved[g] = (int(candidates.index[j]), steps)
    return g
