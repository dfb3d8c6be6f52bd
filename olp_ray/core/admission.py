"""Global greedy admission: requests in a given order, devices by a given cost, feasibility by the forecast.

The one pass that every policy with a central queue goes through. What the order and the cost are is the policy's
business; whether something fits is the forecast's.

Notation
    symbol   meaning                                              shape     unit
    J, G     waiting requests in queue order, devices
    c, V     cost and reward of a start on a device               (G, J)    reward
    n        planned length of a candidate                        (J,)      tokens
    r        steps until a reservation on a device begins         (G,)      steps

Ties between devices: cost, then utilisation, then index rotated by the number of admissions so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.forecast import Forecast
from olp_ray.core.kernels.records import REQUEST, START, Candidates


@dataclass(slots=True)
class Admission:
    """What the greedy passes did: placements in order of rank, and the reservations made."""

    placed: list[tuple[int, int]]  # (queue index, device index)
    rotation: int
    reserved_by: np.ndarray  # (G,) queue index, -1: none
    reserved_steps: np.ndarray  # (G,) r, inf: none

    @property
    def reserved(self) -> dict[int, tuple[int, float]]:
        """Device index -> (queue index, r)."""
        held = np.flatnonzero(self.reserved_by >= 0).tolist()
        return {g: (int(self.reserved_by[g]), float(self.reserved_steps[g])) for g in held}


def no_admission(devices: int, rotation: int) -> Admission:
    """The state before a first pass."""
    return Admission([], rotation, np.full(devices, -1), np.full(devices, np.inf))


def plain_candidates(
    prompt_tokens: np.ndarray, length_tokens: np.ndarray, allowed: np.ndarray, *, may_reserve: bool = False
) -> Candidates:
    """Requests in queue order that no device is dearer for; all of them, or none, may reserve."""
    requests, starts = np.zeros(allowed.shape[1], dtype=REQUEST), np.zeros(allowed.shape, dtype=START)
    requests["prompt_tokens"], requests["length_tokens"] = prompt_tokens, length_tokens
    requests["may_reserve"], starts["allowed"] = may_reserve, allowed
    return Candidates(requests, starts)


def admit_in_order(
    forecast: Forecast,
    wanted: Candidates,
    order: np.ndarray,
    before: Admission,
    *,
    head_of_line: bool = False,
    reservations: int = 0,
) -> Admission:
    """Admit the requests of `order` (queue indices by rank) wherever they fit; changes `forecast`.

    head_of_line stops at the first that fits nowhere. Otherwise it is skipped, and if it may reserve, the device
    where it would fit first is kept for it (EASY backfilling): candidates of lower rank go there only if they are
    planned to have ended by then. At most `reservations` devices are kept, beside those of the pass `before`.
    """
    free = forecast.slots - forecast.occupied_slots
    reserved_by, reserved_steps = before.reserved_by.copy(), before.reserved_steps.copy()
    placed = kernels.admission.fill(
        forecast.plans(int(min(len(order), max(free.max(initial=0.0), 0.0)))),
        forecast.level,
        forecast.ratios,
        wanted,
        order,
        before.rotation,
        head_of_line,
        reservations,
        reserved_by,
        reserved_steps,
    )
    pairs = [(j, g) for j, g in placed.tolist()]
    return Admission(before.placed + pairs, before.rotation + len(pairs), reserved_by, reserved_steps)
