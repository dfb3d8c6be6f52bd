"""The timed state is the one that was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.tick import Bench, Cost, measure, slopes


@pytest.mark.parametrize("waiting", [0, 30])
def test_the_fleet_is_full_and_the_queue_as_long_as_asked(waiting):
    bench = Bench(2, waiting, "online_lp")
    bench.fill()
    assert len(bench.router.queue) == pytest.approx(waiting, abs=1)
    bench.router.check_invariants()
    assert bench.works


def test_costs_are_measured():
    cost = measure(2, 20, repeats=10)
    assert cost.devices == 2
    assert 0 < cost.decision_ms <= cost.decision_p90_ms
    assert cost.step_ms > 0


def test_slopes_find_the_plane():
    costs = [
        Cost(g, w, 1 + 2 * w / 1000 + 3 * g + 4 * w / 1000 * g, 0, 0, g, 0) for g in (1, 4, 16) for w in (0, 100, 1000)
    ]
    assert slopes(costs).startswith("decision: 1.000 ms + 2.000 ms per 1000 waiting + 3.000 ms per device + 4.000 ms")
    assert np.isfinite(costs[0].decision_ms)
