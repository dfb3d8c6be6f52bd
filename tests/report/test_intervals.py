"""Student-t intervals by the textbook."""

from __future__ import annotations

import math

import pytest

from olp_ray.report import mean_interval, paired_interval


def test_textbook_interval() -> None:
    interval = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval.mean == 3
    assert interval.half_width == pytest.approx(2.776445 * math.sqrt(2.5 / 5), rel=1e-6)


def test_few_values() -> None:
    assert mean_interval([2.0, math.nan]).mean == 2
    assert math.isnan(mean_interval([2.0]).half_width)
    assert math.isnan(mean_interval([]).mean)


def test_pairing_removes_what_seeds_share() -> None:
    base = [10.0, 20.0, 30.0]
    interval = paired_interval([11.0, 21.0, 31.0], base)
    assert interval == (1.0, 0.0)
    with pytest.raises(ValueError, match="zip"):
        paired_interval([1.0], base)
