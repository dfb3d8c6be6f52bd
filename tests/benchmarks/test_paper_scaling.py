"""The line through the update's costs."""

from __future__ import annotations

import pytest

from benchmarks.paper_scaling import UpdateCost, fit, measure


def test_the_fit_finds_the_line():
    sizes = [(g, h, k) for g in (1, 4) for h in (100, 1000) for k in (1, 5)]
    costs = [UpdateCost(g, h, k, 0.5 * k + 0.02 * k * g * h / 1000) for g, h, k in sizes]
    assert fit(costs) == pytest.approx((0.5, 0.02, 1.0))


def test_an_update_is_timed():
    small, large = measure(1, 50, 1, repeats=3), measure(64, 4000, 5, repeats=3)
    assert 0 < small.update_ms < large.update_ms
