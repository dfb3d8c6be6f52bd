"""The test for a change of the arrival rate: its ratio by hand, its false alarms, its delay, bursts and snapshots."""

import math

import numpy as np
import pytest

from olp_ray.core import rate_change
from olp_ray.core.rate_change import RateChange, log_likelihood_ratios


def alarms(times_s, tick_s=1.0):
    """Indices of the arrivals at which a change is found, one arrival at a time."""
    detector = RateChange()
    return [i for i, t in enumerate(times_s) if detector.add(np.array([t]), tick_s) is not None]


def poisson(rng, rate, count):
    return np.cumsum(rng.exponential(1 / rate, count))


def plain_ratio(gaps, since):
    """Log likelihoods of exponential gaps at their best rates, written out, over the scatter within both parts."""

    def best(part):
        rate = len(part) / sum(part)
        return sum(math.log(rate) - rate * gap for gap in part)

    parts = gaps[:-since], gaps[-since:]
    means = [sum(part) / len(part) for part in parts]
    scatter = sum((gap / mean - 1) ** 2 for part, mean in zip(parts, means, strict=True) for gap in part)
    return (best(parts[0]) + best(parts[1]) - best(gaps)) / max(scatter / (len(gaps) - 2), 1)


@pytest.mark.parametrize("shape", [1.0, 0.2])
def test_ratio_is_that_of_the_likelihoods_written_out(shape):
    gaps = np.random.default_rng(0).gamma(shape, 2.0, 150)
    found = log_likelihood_ratios(gaps, 1e-9)
    spans = [int(span) for span in rate_change.SPANS if len(gaps) - span >= rate_change.LEAST_BEFORE]
    assert found == pytest.approx([plain_ratio(gaps.tolist(), span) for span in spans], rel=1e-9)


@pytest.mark.parametrize("period", [False, True])
def test_false_alarms_of_a_constant_poisson_process_are_as_rare_as_stated(period):
    """Over 100,000 arrivals, also when times are whole periods; the stated mean is one in 10,000."""
    times_s = poisson(np.random.default_rng(5), 0.5, 100_000)
    found = alarms(np.ceil(times_s) if period else times_s)
    assert len(found) * rate_change.FALSE_ALARM_ARRIVALS <= len(times_s)


def delays(seed, before, after):
    rng = np.random.default_rng(seed)
    old = poisson(rng, before, 1000)
    found = alarms(np.concatenate([old, old[-1] + poisson(rng, after, 400)]))
    return next((i - 999 for i in found if i >= 1000), 400)


@pytest.mark.parametrize(("before", "after", "typical"), [(0.4, 0.6, 150), (0.6, 0.4, 150), (0.2, 0.6, 40)])
def test_a_shift_is_found_within_so_many_arrivals(before, after, typical):
    """Median of 20 runs, and nine in ten at all; the rate itself is an average over the last 200 arrivals."""
    found = [delays(seed, before, after) for seed in range(20)]
    assert np.median(found) <= typical
    assert sum(delay < 400 for delay in found) >= 18


def test_a_change_is_dated_near_where_it_was():
    rng = np.random.default_rng(3)
    old = poisson(rng, 0.2, 500)
    detector = RateChange()
    assert detector.add(old, 1.0) is None
    found = [detector.add(np.array([old[-1] + t]), 1.0) for t in poisson(rng, 1.0, 100)]
    (changed_s,) = [time_s for time_s in found if time_s is not None]
    assert abs(changed_s - old[-1]) < 30


def test_regular_bursts_are_not_changes():
    """Sixteen at once, every 5 s: whatever the phase of the burst at which the test looks."""
    assert alarms(np.repeat(np.arange(100) * 5.0, 16), 0.01) == []
    assert alarms(np.repeat(np.arange(200) * 5.0, 5), 0.01) == []


def test_all_at_once_and_few_arrivals_are_no_change():
    assert alarms([0.0] * 500, 0.01) == []
    assert alarms(np.concatenate([np.arange(30) * 100.0, 2900 + np.arange(40) * 0.01])) == []


def test_batches_and_single_arrivals_end_the_same():
    times_s = poisson(np.random.default_rng(2), 0.5, 800)
    batched, single = RateChange(), RateChange()
    for i in range(0, 800, 8):
        batched.add(times_s[i : i + 8], 1.0)
        for t in times_s[i : i + 8]:
            single.add(np.array([t]), 1.0)
    assert np.array_equal(batched.snapshot()["times_s"], single.snapshot()["times_s"])


def test_snapshot_comes_back():
    rng = np.random.default_rng(4)
    old = poisson(rng, 0.2, 300)
    detector, other = RateChange(), RateChange()
    detector.add(old, 1.0)
    other.restore(detector.snapshot())
    for t in poisson(rng, 2.0, 60):
        assert detector.add(np.array([old[-1] + t]), 1.0) == other.add(np.array([old[-1] + t]), 1.0)
