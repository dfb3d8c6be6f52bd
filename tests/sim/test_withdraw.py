"""Sequences that leave an engine before their end: from its queue, in prefill, and while decoding."""

import numpy as np
import pytest

from olp_ray.config import DeviceConfig
from olp_ray.core.types import AssignmentKey, Stage
from olp_ray.sim.engine import Sequence, engine_spec
from olp_ray.sim.replica import Replica

SPEC = engine_spec(DeviceConfig(kind="a100-8b", slots=2, kv_tokens=64_000), "timed")


def sequence(name, prompt=100, output=50):
    return Sequence(AssignmentKey(name, Stage.MIXED, "d0", 0, 0), prompt, output)


def run(replica, until_s):
    """Let the engine work to the first boundary at or after until_s; ids that finished."""
    done = []
    while replica.end_s < until_s:
        at_s = replica.end_s
        done += [s.key.request_id for s in replica.complete()]
        replica.begin(at_s)
    return done


def loaded(*sequences):
    replica = Replica(SPEC)
    for each in sequences:
        replica.enqueue(each, 0.0)
    replica.begin(0.0)
    return replica


def test_from_the_queue_at_once():
    a, b, c = sequence("a"), sequence("b"), sequence("c")
    replica = loaded(a, b, c)
    replica.withdraw(c, 0.0)
    assert not replica.waiting
    assert run(replica, 100.0) == ["a", "b"]


@pytest.mark.parametrize(("at_s", "starts"), [(0.005, ["b", "c"]), (0.2, ["c"])], ids=["prefill", "decode"])
def test_from_the_batch_at_the_next_boundary(at_s, starts):
    a, b, c = sequence("a", prompt=2000, output=10_000), sequence("b"), sequence("c")
    replica = loaded(a, b, c)
    done = run(replica, at_s)
    before = replica.end_s
    replica.withdraw(a, at_s)
    assert at_s <= replica.end_s <= before
    end_s = replica.end_s
    assert replica.complete() == []
    assert [s.key.request_id for s in replica.begin(end_s).started] == starts
    assert done + run(replica, 100.0) == ["b", "c"]
    assert replica.free_blocks == SPEC.blocks
    assert replica.decode_count == 0
    assert replica.end_s == np.inf


def test_after_its_end_it_is_nothing():
    a = sequence("a", output=1)
    replica = loaded(a)
    assert run(replica, 10.0) == ["a"]
    replica.withdraw(a, 10.0)
    assert replica.free_blocks == SPEC.blocks
