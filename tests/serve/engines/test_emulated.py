import numpy as np
import pytest

from olp_ray.config import DeviceConfig
from olp_ray.core.types import AssignmentKey, Finished, Progressed, Stage, Started
from olp_ray.serve.engines.emulated import EmulatedEngine, Work
from olp_ray.sim.engine import engine_spec


class Bench:
    """An engine with two slots on a clock that the test moves."""

    def __init__(self, slots=2):
        self.now_s = 0.0
        self.events = []
        spec = engine_spec(DeviceConfig(kind="a100-8b", slots=slots), "timed")
        self.engine = EmulatedEngine(spec, lambda: self.now_s, self.events.append, 0.04, 0.3)

    def start(self, *works):
        self.engine.start("i", works)

    def until(self, end_s):
        """Turn at every time that the engine asks for."""
        while (wake_s := self.engine.turn()) <= end_s:
            self.now_s = max(self.now_s, wake_s)
        self.now_s = end_s
        self.engine.turn()
        return self.engine.outbox.take("i")

    def names(self, kind):
        return [event.key.request_id for event in self.events if isinstance(event, kind)]


def work(name, prompt=100, output=50):
    return Work(AssignmentKey(name, Stage.MIXED, "d0", 0, 0), prompt, output)


def test_every_token_is_passed_on_once_and_the_last_one_says_so():
    bench = Bench()
    bench.start(work("a", output=50), work("b", output=20), work("c", output=30))
    tokens = bench.until(10.0)
    for name, count in (("a", 50), ("b", 20), ("c", 30)):
        mine = [t for t in tokens if t.key.request_id == name]
        assert sum(t.count for t in mine) == count
        assert [t.over for t in mine] == [False] * (len(mine) - 1) + [True]
    assert bench.names(Started) == ["a", "b", "c"]
    assert bench.names(Finished) == ["b", "a", "c"]
    assert bench.engine.turn() == np.inf


def test_the_first_token_does_not_wait_for_the_interval():
    bench = Bench()
    bench.start(work("a"))
    bench.engine.turn()
    wake_s = bench.engine.turn()
    bench.now_s = wake_s
    bench.engine.turn()
    assert wake_s < 0.04
    assert [t.count for t in bench.engine.outbox.take("i")] == [1]


def test_progress_is_told_at_its_interval():
    bench = Bench()
    bench.start(work("a", output=100))
    bench.until(1.0)
    progress = [event.decoded_tokens.tolist() for event in bench.events if isinstance(event, Progressed)]
    assert len(progress) == 3
    assert progress == sorted(progress)


def test_a_clock_that_jumps_changes_nothing_in_the_order():
    bench = Bench()
    bench.start(work("a"), work("b", output=20), work("c"))
    bench.engine.turn()
    bench.now_s = 60.0
    bench.engine.turn()
    assert bench.names(Finished) == ["b", "a", "c"]


@pytest.mark.parametrize("at_s", [0.005, 0.3], ids=["prefill", "decode"])
def test_an_aborted_request_gives_its_slot_back(at_s):
    bench = Bench(slots=1)
    bench.start(work("a", prompt=3000, output=5000), work("b"))
    bench.until(at_s)
    bench.engine.abort([work("a").key])
    tokens = bench.until(at_s + 2.0)
    assert {t.key.request_id for t in tokens} == {"b"}
    assert bench.names(Finished) == ["b"]
    assert (bench.engine.running, bench.engine.waiting, bench.engine.used_kv_tokens) == (0, 0, 0)


def test_an_aborted_request_leaves_the_queue_and_an_ingress_that_left_everything():
    bench = Bench(slots=1)
    bench.start(work("a", output=1000), work("b"), work("c"))
    bench.until(0.1)
    bench.engine.abort([work("b").key, work("unknown").key])
    assert bench.engine.waiting == 1
    bench.engine.forget("i")
    bench.until(1.0)
    assert (bench.engine.running, bench.engine.waiting) == (0, 0)
    assert bench.names(Finished) == []


def test_sending_an_assignment_again_changes_nothing():
    bench = Bench()
    bench.start(work("a"), work("a"))
    bench.start(work("a"))
    bench.until(5.0)
    assert bench.names(Finished) == ["a"]
