"""Changes come in order of time, and what is told late does not undo a later one; with a ledger in test_ledger.py."""

import math

import numpy as np
import pytest

from olp_ray.core.capacity_plan import CapacityPlan, Limits
from olp_ray.errors import EventError


@pytest.fixture
def plan():
    found = CapacityPlan()
    found.join()
    found.join()
    return found


def test_changes_become_due_in_order(plan):
    for change in (Limits(9.0, 3, 30), Limits(5.0, 1, 10), Limits(5.0, 2, 20)):
        plan.add(0, "g0", change)
    assert plan.next_s == 5.0
    assert [limits.slots for _, limits in plan.take_due(5.0)] == [1, 2]  # of two for one time the one told last
    assert plan.take_due(9.0) == [(0, Limits(9.0, 3, 30))]
    plan.add(0, "g0", Limits(7.0, 4, 40))
    assert plan.take_due(10.0) == []
    assert plan.next_s == math.inf


def test_buckets_ahead_and_devices_that_leave(plan):
    plan.add(1, "g1", Limits(12.0, 1, 10))
    other = CapacityPlan()
    other.restore(plan.snapshot())
    ahead = np.full((2, 2, 3), 5.0)
    other.put_into(ahead, 4.0, 8.0)
    assert ahead[:, 0].tolist() == [[5, 5, 5], [5, 1, 1]]
    assert ahead[1, 1].tolist() == [5, 10, 10]
    other.remove(0)
    assert other.take_due(12.0) == [(0, Limits(12.0, 1, 10))]
    other.remove(0)
    assert (other.next_s, plan.next_s) == (math.inf, 12.0)


@pytest.mark.parametrize("change", [Limits(math.nan, 1, 1), Limits(0.0, -1, 1), Limits(0.0, 1, math.inf)])
def test_limits_that_are_none_are_refused(plan, change):
    with pytest.raises(EventError, match="capacity of 'g0'"):
        plan.add(0, "g0", change)
    assert plan.next_s == math.inf
