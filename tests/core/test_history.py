"""The window of past arrivals, the rate that is read from it, and what a change of rate makes it forget."""

import numpy as np
import pytest

from olp_ray.core.history import OWN_E2E, OWN_TTFT, PREDICTED, PROMPT, WEIGHT, ArrivalHistory
from olp_ray.core.types import Request
from olp_ray.errors import SnapshotError

ANY_TIME = np.inf  # later than every stamp


def arrivals(first, count):
    return [Request(f"r{i}", float(i), 10 * i, float(i + 1)) for i in range(first, first + count)]


def at(times_s):
    return [Request(f"r{i}", float(t), i, 1.0) for i, t in enumerate(times_s)]


def test_it_keeps_the_last_arrivals_oldest_first():
    history = ArrivalHistory(size=3, rate_window=2)
    history.add(arrivals(0, 2), np.ones(2), 1.0, ANY_TIME)
    history.add([], np.ones(0), 1.0, ANY_TIME)
    history.add(arrivals(2, 2), np.array([2.0, 3.0]), 1.0, ANY_TIME)
    assert (len(history), history.seen) == (3, 4)
    assert history.rows[:, PROMPT].tolist() == [10, 20, 30]
    assert history.rows[:, PREDICTED].tolist() == [2, 3, 4]
    assert history.rows[:, WEIGHT].tolist() == [1, 2, 3]
    assert np.isnan(history.rows[:, [OWN_E2E, OWN_TTFT]]).all()


def test_own_thresholds_are_kept():
    history = ArrivalHistory(4, 4)
    history.add([Request("a", 0.0, 1, 1.0, slo_ttft_s=2.0, slo_e2e_s=9.0)], np.ones(1), 1.0, ANY_TIME)
    assert history.rows[0, [OWN_E2E, OWN_TTFT]].tolist() == [9, 2]


def test_rate_is_what_came_since_the_window_opened_over_its_age():
    history = ArrivalHistory(size=9, rate_window=4)
    assert history.rate_per_s(5.0, 1.0) == 0
    history.add(arrivals(0, 2), np.ones(2), 1.0, ANY_TIME)
    assert history.rate_per_s(1.0, 1.0) == 1
    assert history.rate_per_s(1.0, 4.0) == 1 / 4
    history.add(arrivals(2, 8), np.ones(8), 1.0, ANY_TIME)
    assert history.rate_per_s(9.0, 1.0) == 4 / (9 - 5)
    assert history.rate_per_s(29.0, 1.0) == 4 / 24


def test_a_burst_alone_says_nothing_of_the_rate():
    history = ArrivalHistory(size=9, rate_window=200)
    history.add(at([3.0] * 16), np.ones(16), 0.01, ANY_TIME)
    assert history.rate_per_s(3.0, 0.7) == history.rate_per_s(9.0, 0.7) == 0
    history.add(at([5.0] * 16), np.ones(16), 0.01, ANY_TIME)
    assert history.rate_per_s(5.0, 0.7) == 8
    history.add(at([5.01] * 16), np.ones(16), 0.01, ANY_TIME)
    assert history.rate_per_s(5.0, 4.0) == 8


def test_a_burst_that_fills_the_window_is_counted_from_the_instant_before_it():
    history = ArrivalHistory(size=9, rate_window=4)
    history.add(at([1.0] * 40), np.ones(40), 0.01, ANY_TIME)
    assert history.rate_per_s(2.0, 0.7) == 0  # the first instant of all
    history.add(at([3.0] * 30), np.ones(30), 0.01, ANY_TIME)
    history.add(at([3.0] * 2), np.ones(2), 0.01, ANY_TIME)
    assert history.rate_per_s(3.0, 0.7) == 32 / (3 - 1)
    assert history.rate_per_s(5.0, 0.7) == 32 / (5 - 1)
    assert history.rate_per_s(3.0, 8.0) == 32 / 8
    other = ArrivalHistory(size=9, rate_window=4)
    other.restore(history.snapshot())
    assert other.rate_per_s(3.0, 0.7) == 16
    for each in (history, other):
        each.add(at([6.0]), np.ones(1), 0.01, ANY_TIME)
        assert each.rate_per_s(6.0, 0.7) == 1 / (6 - 3)  # as ever, once something came after it


@pytest.mark.parametrize("per_second", [3, 150, 199, 200, 201, 300, 1000])
def test_times_in_whole_seconds_do_not_hide_the_rate(per_second):
    history = ArrivalHistory(size=512, rate_window=200)
    for second in range(12):
        history.add(at([float(second)] * per_second), np.ones(per_second), 0.01, ANY_TIME)
        if second:
            assert 0.5 * per_second <= history.rate_per_s(second + 0.5, 0.7) <= 1.5 * per_second
    assert history.changes == 0


def test_a_burst_that_is_found_to_be_a_change_leaves_a_rate():
    times_s = np.cumsum(np.random.default_rng(2).exponential(1.0, 120))
    history = ArrivalHistory(size=512, rate_window=200)
    history.add(at(times_s), np.ones(120), 0.01, ANY_TIME)
    burst_s = float(times_s[-1]) + 1.0
    assert history.add(at([burst_s] * 40), np.ones(40), 0.01, ANY_TIME)
    assert (len(history), history.changed_s) == (40, burst_s)
    assert history.rate_per_s(burst_s, 0.7) == pytest.approx(40.0)


def test_the_rate_of_a_poisson_process_is_found_without_bias():
    """The mean of 400 estimates over 100 arrivals each is within three standard errors, (1 / sqrt(100)) / sqrt(400)."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        history = ArrivalHistory(size=1, rate_window=100)
        times_s = np.cumsum(rng.exponential(2.0, 150))
        history.add(at(times_s), np.ones(150), 1.0, ANY_TIME)
        now_s = times_s[-1] + rng.exponential(2.0)  # seen from an instant that is not an arrival's
        found.append(history.rate_per_s(now_s, 16.0))
    assert np.mean(found) == pytest.approx(0.5, abs=0.5 * 3 * 0.1 / 20)


def test_a_change_of_rate_forgets_what_came_before():
    rng = np.random.default_rng(1)
    old, new = np.cumsum(rng.exponential(5.0, 400)), np.cumsum(rng.exponential(0.5, 60))
    history = ArrivalHistory(size=300, rate_window=200)
    assert not history.add(at(old), np.ones(400), 1.0, ANY_TIME)
    found = [history.add([Request(f"n{i}", old[-1] + t, 7, 1.0)], np.ones(1), 1.0, ANY_TIME) for i, t in enumerate(new)]
    assert sum(found) == history.changes == 1
    assert abs(history.changed_s - old[-1]) < 20
    assert (history.rows[:, PROMPT] == 7).sum() == 60
    assert len(history) < 80
    assert history.rate_per_s(old[-1] + new[-1], 16.0) == pytest.approx(2.0, rel=0.3)
    assert history.seen == 460


def test_arrivals_told_late_keep_the_order():
    history = ArrivalHistory(size=4, rate_window=4)
    history.add(at([1.0, 5.0]), np.ones(2), 1.0, ANY_TIME)
    history.add(at([3.0, 6.0]), np.ones(2), 1.0, ANY_TIME)
    assert history.rate_per_s(6.0, 1.0) == 3 / 5


def test_arrivals_stamped_later_than_now_arrive_now():
    """Ten a second are ten a second, whatever two of them say; then as if all had been stamped when told."""
    told, stamped_now = ArrivalHistory(512, 200), ArrivalHistory(512, 200)
    for i in range(300):
        now_s = i / 10
        ahead_s = 1000.0 if i in (120, 121) else 0.0
        told.add([Request(f"r{i}", now_s + ahead_s, 5, 1.0)], np.ones(1), 0.01, now_s)
        stamped_now.add([Request(f"r{i}", now_s, 5, 1.0)], np.ones(1), 0.01, now_s)
        assert told.rate_per_s(now_s, 1.0) == stamped_now.rate_per_s(now_s, 1.0)
    assert told.rate_per_s(29.95, 1.0) == pytest.approx(10.0, rel=0.01)
    assert (told.changes, told.changed_s) == (0, -np.inf)
    told.add([Request("last", 29.0, 5, 1.0)], np.ones(1), 0.01, 30.0)  # told late: with the one before it
    assert told.rate_per_s(30.0, 1.0) == pytest.approx(200 / (30.0 - 10.0))


def test_snapshot_is_a_copy_and_comes_back():
    history, other = ArrivalHistory(3, 2), ArrivalHistory(3, 2)
    history.add(arrivals(0, 4), np.ones(4), 1.0, ANY_TIME)
    state = history.snapshot()
    history.add(arrivals(4, 1), np.ones(1), 1.0, ANY_TIME)
    other.restore(state)
    assert other.seen == 4
    assert other.rate_per_s(4.0, 1.0) == 2 / 3
    other.add(arrivals(4, 1), np.ones(1), 1.0, ANY_TIME)
    assert np.array_equal(other.rows, history.rows, equal_nan=True)
    with pytest.raises(SnapshotError, match="version 1"):
        other.restore({**state, "version": 1})
    assert other.seen == 5
