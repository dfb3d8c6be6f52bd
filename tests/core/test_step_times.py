"""Step times by hand: an idle part that is learned and shared by like devices, and what residents add."""

import numpy as np
import pytest

from olp_ray.core.step_times import ALIKE_SHARE, LEAST_STEP_SHARE, STEP_BLEND, StepTimes
from olp_ray.core.types import IterationModel


@pytest.fixture
def steps(make_device):
    """Two like devices of 4 slots and 1000 KV tokens, 1 s at full slots and half of the tokens: .8 s of it is idle."""
    found = StepTimes()
    for device_id in ("g0", "g1"):
        found.join(make_device(device_id, step_s=1.0, iteration=IterationModel(0.025, 0.0002)))
    return found


def test_a_fleet_without_devices_has_none():
    none = StepTimes()
    assert [len(found) for found in (none.step_s, none.idle_step_s, none.per_sequence_s, none.per_kv_token_s)] == [
        0
    ] * 4
    assert none.mean_added_s.tolist() == [0, 0, 0]


def test_residents_add_to_the_idle_part(steps):
    assert steps.step_s == pytest.approx([0.8, 0.8])
    assert steps.idle_step_s == pytest.approx([0.825, 0.825])  # with one short sequence
    steps.hold(0, 2, 300.0)
    assert steps.step_s == pytest.approx([0.8 + 0.05 + 0.06, 0.8])
    steps.hold(0, 1, -100.0)
    assert steps.step_s == pytest.approx([0.8 + 0.025 + 0.04, 0.8])


def test_what_is_put_back_counts_from_the_next_change_on(steps):
    steps.hold(0, 2, 300.0)
    steps.stand_still(0, -100.0)
    assert steps.step_s[0] == pytest.approx(0.91)
    steps.hold(0, 2, 0.0)
    assert steps.step_s[0] == pytest.approx(0.89)


def test_like_devices_share_what_they_learn_unless_one_is_clearly_off(steps):
    steps.learn(0, 1.0)
    assert steps.step_s == pytest.approx([0.8 + STEP_BLEND * 0.2 / 2] * 2)
    steps.learn(1, 8.0)
    own = np.array([0.8 + STEP_BLEND * 0.2, 0.8 + STEP_BLEND * 7.2])
    assert (np.abs(own - own.mean()) > ALIKE_SHARE * own.mean()).all()
    assert steps.step_s == pytest.approx(own)


def test_no_step_falls_below_its_least(steps):
    for _ in range(200):
        steps.learn(0, 1e-9)
        steps.learn(1, 1e-9)
    assert steps.step_s == pytest.approx([LEAST_STEP_SHARE] * 2)


def test_a_snapshot_goes_on_like_the_original(steps):
    steps.hold(1, 3, 500.0)
    steps.learn(1, 1.2)
    other = StepTimes()
    other.restore(steps.snapshot())
    for one in (steps, other):
        one.hold(1, 2, -100.0)
        one.learn(0, 0.9)
        one.check_invariants([0, 2], [0.0, 400.0])
        one.remove(0)
    assert other.step_s.tolist() == steps.step_s.tolist()
    assert len(other.step_s) == 1
