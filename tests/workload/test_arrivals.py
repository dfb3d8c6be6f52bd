"""Arrival processes against their closed forms: means, coefficients of variation, counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from olp_ray.config.workload import ArrivalsConfig
from olp_ray.errors import WorkloadError
from olp_ray.workload.arrivals import draw_arrivals, gamma_arrivals, piecewise_arrivals, poisson_arrivals

RNG = np.random.default_rng


def test_poisson_gaps() -> None:
    gaps = np.diff(poisson_arrivals(40_000, 5.0, RNG(0)))
    assert abs(gaps.mean() - 0.2) < 0.004
    assert abs(gaps.std() / gaps.mean() - 1) < 0.03


def test_gamma_gaps_have_their_variation() -> None:
    gaps = np.diff(gamma_arrivals(40_000, 5.0, 3.0, RNG(0)))
    assert abs(gaps.mean() - 0.2) < 0.02
    assert abs(gaps.std() / gaps.mean() - 3) < 0.2


def test_piecewise_rates() -> None:
    times = piecewise_arrivals([(10_000, 0.4), (10_000, 0.6)], RNG(0))
    assert (np.diff(times) >= 0).all()
    first = (times < 10_000).sum()
    assert abs(first / 10_000 - 0.4) < 0.03
    assert abs((len(times) - first) / 10_000 - 0.6) < 0.03


def drawn(text: str, count: int, rate: float = 5.0, seed: int = 0) -> np.ndarray:
    return draw_arrivals(ArrivalsConfig.parse(text), count, rate, RNG(seed))


def test_stated_rates_shift_at_the_stated_time() -> None:
    times = drawn("rates:0.4@0,0.6@15000", 15_000)
    assert (np.diff(times) >= 0).all()
    early, late = times[times < 15_000], times[times >= 15_000]
    assert abs(len(early) - 6000) < 4 * math.sqrt(6000)  # Poisson count of mean .4 x 15000
    assert (len(late) - 1) / (late[-1] - late[0]) == pytest.approx(0.6, rel=4 / math.sqrt(len(late)))
    for part in (early, late):
        gaps = np.diff(part)
        assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)


def test_a_rate_of_zero_is_a_pause() -> None:
    times = drawn("rates:1@0,0@100,2@300", 400)
    assert not ((times >= 100) & (times < 300)).any()
    assert (times < 100).sum() == pytest.approx(100, abs=40)


def test_one_stated_rate_is_poisson_at_that_rate() -> None:
    gaps = np.diff(drawn("rates:5@0", 40_000, rate=math.nan))
    assert abs(gaps.mean() - 0.2) < 0.004
    assert abs(gaps.std() / gaps.mean() - 1) < 0.03


def test_one_seed_gives_one_process() -> None:
    for text in ("poisson", "gamma:2", "rates:1@0,3@10"):
        assert np.array_equal(drawn(text, 50, seed=4), drawn(text, 50, seed=4))
        assert not np.array_equal(drawn(text, 50, seed=4), drawn(text, 50, seed=5))


def test_bad_rates_are_errors() -> None:
    with pytest.raises(WorkloadError, match="expected both > 0"):
        poisson_arrivals(3, 0.0, RNG(0))
    with pytest.raises(WorkloadError, match="expected duration > 0"):
        piecewise_arrivals([(0.0, 1.0)], RNG(0))
