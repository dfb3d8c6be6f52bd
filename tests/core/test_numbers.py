"""Whole numbers of any length, in every field that takes one: a clear error, and no event taken in half."""

from __future__ import annotations

import math

import numpy as np
import pytest

from olp_ray.core.numbers import is_finite, is_float, shown
from olp_ray.core.router import Router
from olp_ray.core.types import (
    Arrived,
    AssignmentKey,
    CapacityChanged,
    Device,
    EngineObserved,
    ExternalLoad,
    Finished,
    Preempted,
    Progressed,
    Request,
    Stage,
    Started,
)
from olp_ray.errors import EventError

LONG = [10**400, 10**5000]
KEY = AssignmentKey("r", Stage.MIXED, "g0", 0, 0)


def test_what_counts_as_a_number():
    for value, float_, finite in ((3, 1, 1), (0.5, 1, 1), (10**308, 1, 1), (math.inf, 1, 0), (-math.inf, 1, 0)):
        assert (is_float(value), is_finite(value)) == (bool(float_), bool(finite))
    for value in (math.nan, 10**309, -(10**400)):
        assert not is_float(value)
        assert not is_finite(value)
    assert (shown(7), shown(10**5000)) == ("7", "a int with too many digits to show")


def events_with(n):
    return [
        Finished(KEY, n),
        Preempted(KEY, n),
        Progressed((KEY,), [n]),
        CapacityChanged("g0", 1.0, n, 5),
        CapacityChanged("g0", 1.0, 5, n),
        CapacityChanged("g0", n, 5, 5),
        ExternalLoad("g0", n, 0),
        ExternalLoad("g0", 0, n),
        EngineObserved("g0", n, 0, 0, None, 0.0),
        EngineObserved("g0", 0, n, 0, None, 0.0),
        EngineObserved("g0", 0, 0, n, None, 0.0),
        EngineObserved("g0", 0, 0, 0, n, 0.0),
        EngineObserved("g0", 0, 0, 0, None, n),
    ]


@pytest.mark.parametrize("n", LONG, ids=["1e400", "1e5000"])
@pytest.mark.parametrize("which", range(13))
def test_an_event_with_a_number_that_is_no_float_is_a_fault_and_changes_nothing(which, n, make_settings, limits):
    router = Router([Device("g0", 2, 1000, 1.0)], "central_fifo", make_settings(), limits, seed=0)
    router.handle(0.0, [Arrived(Request("r", 0.0, 10, 20.0))])
    router.handle(0.0, [Started(KEY)])
    before = router.snapshot()
    (fault,) = router.handle(0.0, [events_with(n)[which]]).faults
    assert isinstance(fault, EventError)
    assert "expected" in str(fault)
    after = router.snapshot()
    after["counters"].pop("faults")
    np.testing.assert_equal(after, before)


@pytest.mark.parametrize("n", LONG, ids=["1e400", "1e5000"])
def test_a_time_that_is_no_float_is_one_error(n, make_settings, limits):
    router = Router([Device("g0", 2, 1000, 1.0)], "central_fifo", make_settings(), limits, seed=0)
    for ask in (router.explain, lambda now_s: router.handle(now_s, [])):
        with pytest.raises(EventError, match=r"now_s is .*; expected a finite number"):
            ask(n)
