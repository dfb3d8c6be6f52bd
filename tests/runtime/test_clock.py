"""The live clock over restarts of its process."""

import time

import pytest

from olp_ray.runtime.clock import LiveClock


def test_it_starts_at_its_epoch_and_goes_on_with_the_wall_clock():
    assert LiveClock()() == pytest.approx(0.0, abs=5.0)
    assert LiveClock(time.time() - 500.0, least_s=130.0)() == pytest.approx(500.0, abs=5.0)


@pytest.mark.parametrize("set_back_s", [60.0, 1e6])
def test_after_a_restart_it_goes_on_from_what_was_reached_though_the_wall_clock_was_set_back(set_back_s):
    epoch_s = time.time() - 130.0 + set_back_s
    clock = LiveClock(epoch_s, least_s=130.0)
    assert 130.0 <= clock() <= clock() < 135.0
    assert clock.epoch_s == epoch_s
