"""Has the rate of arrivals changed: a likelihood-ratio test between the newest gaps and those before them.

What is done about a change is the history's business; nothing here knows of prices or requests.

Notation
    symbol   meaning                                                    shape    unit
    n1, n2   gaps before a possible change, and since                   (K,)
    S1, S2   sums of those gaps                                         (K,)     s
    Q1, Q2   sums of their squares                                      (K,)     s^2
    phi      squared coefficient of variation within the two parts      (K,)
    L        log likelihood ratio, one rate against two, over phi       (K,)

For exponential gaps L = n log(S / n) - n1 log(S1 / n1) - n2 log(S2 / n2) (Haccou, Meelis and van de Geer, "The
likelihood ratio test for the change point problem for exponentially distributed random variables", 1988). Arrivals in
bursts are more variable than a Poisson process at any rate, so L is divided by phi where that is above 1, as for
quasi-likelihoods (McCullagh and Nelder, "Generalized Linear Models", 1989, Section 9.2). The test looks at a few spans
of newest gaps, every EVERY arrivals.

False alarms: on a Poisson process of constant rate at most one in FALSE_ALARM_ARRIVALS arrivals on average; THRESHOLD
was set for that and the test of this file measures it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from olp_ray.core.recent import Recent

WINDOW = 1024  # gaps looked back over
SPANS = np.array([16, 24, 32, 48, 64, 96, 128, 192, 256])  # K candidates for the number of gaps since the change
LEAST_BEFORE = 64  # gaps
EVERY = 8  # arrivals between two tests
THRESHOLD = 7.5
FALSE_ALARM_ARRIVALS = 10_000


class RateChange:
    """Arrival times since the last change, at most WINDOW + 1 of them."""

    def __init__(self) -> None:
        self._times_s = Recent(WINDOW + 1)
        self._untested = 0

    def add(self, times_s: Sequence[float], tick_s: float) -> float | None:
        """Take in arrival times, rising; the time of the last arrival before a change that is now found, if any.

        tick_s is the resolution of the times. What came before a change is forgotten.
        """
        for time_s in times_s:
            self._times_s.append(time_s)
        self._untested += len(times_s)
        if self._untested < EVERY:
            return None
        self._untested = 0
        ratio = log_likelihood_ratios(np.diff(self._times_s.rows), tick_s)
        if not len(ratio) or ratio.max() < THRESHOLD:
            return None
        self._times_s.keep(int(SPANS[ratio.argmax()]) + 1)
        return float(self._times_s.rows[0])

    def snapshot(self) -> dict[str, Any]:
        return {"times_s": self._times_s.rows.copy(), "untested": self._untested}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._times_s.replace(np.asarray(state["times_s"]))
        self._untested = int(state["untested"])


def log_likelihood_ratios(gaps_s: np.ndarray, tick_s: float) -> np.ndarray:
    """L for each of SPANS that leaves LEAST_BEFORE gaps before it, (K,) or shorter."""
    spans = SPANS[: int(SPANS.searchsorted(len(gaps_s) - LEAST_BEFORE, side="right"))]
    if not len(spans):
        return np.empty(0)
    since, squares_since = (np.cumsum(part[::-1])[spans - 1] for part in (gaps_s, gaps_s**2))
    before, squares_before = gaps_s.sum() - since, (gaps_s**2).sum() - squares_since
    older = len(gaps_s) - spans
    mean_since, mean_before = (np.maximum(since, tick_s) / spans, np.maximum(before, tick_s) / older)
    mean = np.maximum(gaps_s.sum(), tick_s) / len(gaps_s)
    ratio = len(gaps_s) * math.log(mean) - older * np.log(mean_before) - spans * np.log(mean_since)
    scatter = squares_since / mean_since**2 - spans + squares_before / mean_before**2 - older
    return np.asarray(ratio / np.maximum(scatter / (len(gaps_s) - 2), 1.0))
