"""Confidence intervals over seeds: of a mean, and of a paired difference. Nothing is drawn here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """Mean and half width of its Student-t interval; NaN half width with fewer than two values."""

    mean: float
    half_width: float


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Of independent values, NaN ones left out."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if len(known) == 0:
        return Interval(math.nan, math.nan)
    if len(known) == 1:
        return Interval(float(known[0]), math.nan)
    from scipy.special import stdtrit

    t = float(stdtrit(len(known) - 1, (1 + confidence) / 2))
    return Interval(float(known.mean()), t * float(known.std(ddof=1)) / math.sqrt(len(known)))


def paired_interval(values: Sequence[float], base: Sequence[float], confidence: float = 0.95) -> Interval:
    """Of values - base, seed by seed; both in the order of the same seeds."""
    return mean_interval([value - other for value, other in zip(values, base, strict=True)], confidence)
