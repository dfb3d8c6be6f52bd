"""Thirty seconds of seeded faults; five minutes are run by `python -m benchmarks.chaos`."""

import pytest

from benchmarks import chaos


@pytest.mark.ray_local
def test_nothing_is_lost_assigned_twice_or_leaked_under_faults(ray_local):
    outcome = chaos.run(seconds=30, seed=0, shards=3)
    assert set(chaos.FAULTS) <= set(outcome.faults)
    assert outcome.submitted > 1000
    assert outcome.finished == outcome.submitted
    assert outcome.finished_twice == 0
    assert outcome.left == 0
    assert outcome.longest_gap_s < 10
