import numpy as np
import pytest

from olp_ray.core.history import OWN_E2E, OWN_TTFT, PREDICTED, PROMPT, WEIGHT, ArrivalHistory
from olp_ray.core.types import Request
from olp_ray.errors import SnapshotError


def arrivals(first, count):
    return [Request(f"r{i}", float(i), 10 * i, float(i + 1)) for i in range(first, first + count)]


def test_it_keeps_the_last_arrivals_oldest_first():
    history = ArrivalHistory(size=3, rate_window=2)
    history.add(arrivals(0, 2), np.ones(2))
    history.add([], np.ones(0))
    history.add(arrivals(2, 2), np.array([2.0, 3.0]))
    assert (len(history), history.seen) == (3, 4)
    assert history.rows[:, PROMPT].tolist() == [10, 20, 30]
    assert history.rows[:, PREDICTED].tolist() == [2, 3, 4]
    assert history.rows[:, WEIGHT].tolist() == [1, 2, 3]
    assert np.isnan(history.rows[:, [OWN_E2E, OWN_TTFT]]).all()


def test_own_thresholds_are_kept():
    history = ArrivalHistory(4, 4)
    history.add([Request("a", 0.0, 1, 1.0, slo_ttft_s=2.0, slo_e2e_s=9.0)], np.ones(1))
    assert history.rows[0, [OWN_E2E, OWN_TTFT]].tolist() == [9, 2]


def test_rate_is_the_window_over_its_age():
    history = ArrivalHistory(size=9, rate_window=4)
    assert history.rate_per_s(5.0, 1.0) == 0
    history.add(arrivals(0, 1), np.ones(1))
    assert history.rate_per_s(0.0, 1.0) == 1
    history.add(arrivals(1, 9), np.ones(9))
    assert history.rate_per_s(9.0, 1.0) == 4 / (9 - 6 + 1)
    assert history.rate_per_s(29.0, 1.0) == 4 / 24


def test_snapshot_is_a_copy_and_comes_back():
    history, other = ArrivalHistory(3, 2), ArrivalHistory(3, 2)
    history.add(arrivals(0, 4), np.ones(4))
    state = history.snapshot()
    history.add(arrivals(4, 1), np.ones(1))
    other.restore(state)
    assert other.seen == 4
    assert other.rate_per_s(4.0, 1.0) == 2 / 3
    other.add(arrivals(4, 1), np.ones(1))
    assert np.array_equal(other.rows, history.rows, equal_nan=True)
    with pytest.raises(SnapshotError, match="version 2"):
        other.restore({**state, "version": 2})
    assert other.seen == 5
