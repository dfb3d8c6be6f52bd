"""When the turn of each waiting request is planned to come: an estimate from the plans that there are.

A place is what one resident has on a device, whatever is scarce there: each start takes the place that is planned to
come free first on the devices open to it, and keeps it for its planned length. What arrives meanwhile and goes first,
what is rejected, and how much more or less a request takes than the one before it are not foreseen. In the overloaded
runs of `tests/core/policies/test_turns.py`, asked half-way through a wait, more than half of the estimates are within
a factor of two of what remains of it. What starts now, reservations and the first in rank are the outlook's.
"""

from __future__ import annotations

import heapq

import numpy as np

from olp_ray.core.explanation import WaitReason
from olp_ray.core.policies.outlook import REASONS, Outlook

_BARRED = [
    REASONS.index(reason)
    for reason in (
        WaitReason.NOT_ELIGIBLE,
        WaitReason.DEVICE_DRAINING,
        WaitReason.REJECTED_NEXT,
        WaitReason.TOO_SMALL,
        WaitReason.PRICE,
    )
]


def planned_turns(outlook: Outlook, last_rank: int) -> dict[int, float]:
    """Queue index -> seconds until its turn, for what the next decision leaves waiting at ranks up to last_rank.

    There is none for a request that no device with residents is open to at present prices.
    """
    plans, rank = outlook.plans, outlook.rank
    if plans is None:
        return {}
    places = [plans.ends_s(g) for g in range(len(plans.step_s))]  # sorted lists are heaps
    with_places = np.array([len(ends) > 0 for ends in places])
    open_to = ~outlook.stops[_BARRED].any(axis=0) & with_places[:, None]
    turns: dict[int, float] = {}
    for j in np.argsort(rank, kind="stable").tolist():
        if not 0 <= rank[j] <= last_rank or j in outlook.starts or not open_to[:, j].any():
            continue
        g = min(np.flatnonzero(open_to[:, j]).tolist(), key=lambda one: places[one][0])
        turns[j] = places[g][0]
        heapq.heapreplace(places[g], turns[j] + float(plans.length_tokens[j] * plans.step_s[g]))
    return turns
