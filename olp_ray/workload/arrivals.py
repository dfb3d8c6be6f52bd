"""Arrival processes: times in seconds, from a rate and a random generator. What arrives is decided elsewhere."""

from __future__ import annotations

import numpy as np

from olp_ray.config.workload import ArrivalsConfig, RateFrom
from olp_ray.errors import WorkloadError


def draw_arrivals(config: ArrivalsConfig, count: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Times (count,) of the configured process, ascending from 0; rate (per second) is not used by process `rates`."""
    match config.process:
        case "poisson":
            return poisson_arrivals(count, rate, rng)
        case "gamma":
            return gamma_arrivals(count, rate, config.variation, rng)
        case "rates":
            return rate_arrivals(count, config.rates, rng)


def poisson_arrivals(count: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Arrival times (count,) in seconds with exponential gaps of mean 1 / rate."""
    return gamma_arrivals(count, rate, 1.0, rng)


def gamma_arrivals(count: int, rate: float, variation: float, rng: np.random.Generator) -> np.ndarray:
    """Arrival times (count,) with Gamma gaps of mean 1 / rate and the given coefficient of variation."""
    if not (rate > 0 and variation > 0):
        raise WorkloadError(f"rate {rate} and variation {variation} of arrivals: expected both > 0")
    shape = 1.0 / variation**2
    return np.cumsum(rng.gamma(shape, 1.0 / (rate * shape), count))


def rate_arrivals(count: int, rates: tuple[RateFrom, ...], rng: np.random.Generator) -> np.ndarray:
    """The first `count` times of a Poisson process whose rate changes at stated times.

    A Poisson process of rate 1 is mapped through the inverse of the expected number of arrivals so far.
    """
    start_s = np.array([piece.from_s for piece in rates])
    rate = np.array([piece.rate for piece in rates])
    expected = np.concatenate([[0.0], np.cumsum(np.diff(start_s) * rate[:-1])])  # before each piece
    unit = np.cumsum(rng.exponential(1.0, count))
    piece = np.searchsorted(expected, unit, side="right") - 1
    return start_s[piece] + (unit - expected[piece]) / rate[piece]


def piecewise_arrivals(pieces: list[tuple[float, float]], rng: np.random.Generator) -> np.ndarray:
    """All times of a Poisson process at rate r for d seconds, for each (d, r) in turn."""
    times: list[np.ndarray] = []
    start_s = 0.0
    for duration_s, rate in pieces:
        if not (duration_s > 0 and rate >= 0):
            raise WorkloadError(f"piece (duration {duration_s} s, rate {rate}): expected duration > 0 and rate >= 0")
        count = rng.poisson(rate * duration_s)
        times.append(start_s + np.sort(rng.uniform(0.0, duration_s, count)))
        start_s += duration_s
    return np.concatenate(times)
