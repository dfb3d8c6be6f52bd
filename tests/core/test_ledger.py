import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.ledger import Ledger
from olp_ray.core.step_times import STEP_BLEND
from olp_ray.core.types import AssignmentKey, Device, EngineObserved, Request, Stage
from olp_ray.errors import EventError, SnapshotError

moderate = settings(max_examples=40, deadline=None)


def key_of(name, device_id="g0", incarnation=0, attempt=0):
    return AssignmentKey(name, Stage.MIXED, device_id, incarnation, attempt)


def put(ledger, name, device_id="g0", prompt=10, predicted=20.0, now_s=0.0):
    key = key_of(name, device_id)
    ledger.reserve(key, Request(name, now_s, prompt, predicted), now_s)
    return key


@pytest.fixture
def ledger():
    return Ledger([Device("g0", 4, 1000, 1.0), Device("g1", 2, 500, 0.5, block_tokens=16)])


# -- residents against plain records ----------------------------------------------------------------------------------

moves = st.lists(
    st.tuples(st.sampled_from(["reserve", "reserve", "start", "progress", "preempt", "release", "remove", "wait"]))
    .map(lambda move: move[0])
    .flatmap(lambda name: st.tuples(st.just(name), st.integers(0, 999))),
    max_size=60,
)


class Plain:
    """Residents as a dict of records: [prompt, decoded, known_s, runs]."""

    def __init__(self, devices):
        self.devices = {device.id: device for device in devices}
        self.held = {}

    def decoded(self, key, now_s):
        _, decoded, known_s, runs = self.held[key]
        return decoded + runs * (now_s - known_s) / self.devices[key.device_id].step_s

    def kv(self, device_id, now_s):
        padding = self.devices[device_id].block_tokens - 1
        keys = [key for key in self.held if key.device_id == device_id]
        return sum(self.held[key][0] + padding + self.decoded(key, now_s) for key in keys)


@moderate
@given(moves=moves)
def test_residents_agree_with_plain_records(moves):
    devices = [Device("g0", 9, 10**4, 1.0), Device("g1", 9, 10**4, 0.5, block_tokens=16), Device("g2", 9, 10**4, 2.0)]
    ledger, plain, now_s = Ledger(devices), Plain(devices), 0.0
    for i, (move, n) in enumerate(moves):
        keys = list(plain.held)
        key = keys[n % len(keys)] if keys else None
        if move == "wait":
            now_s += 1 + n % 5
        elif move == "reserve":
            device = ledger.devices[n % len(ledger.devices)]
            added = put(ledger, f"r{i}", device.id, prompt=n, now_s=now_s)
            plain.held[added] = [n, 0.0, now_s, 0]
        elif move == "remove" and len(ledger.devices) > 1 and n % 4 == 0:
            gone = ledger.devices[n % len(ledger.devices)].id
            lost = [key for key, _ in ledger.remove(gone)]
            assert sorted(lost) == sorted(key for key in keys if key.device_id == gone)
            for key in lost:
                del plain.held[key]
        elif key is None:
            continue
        elif move == "start":
            ledger.start(key, now_s)
            if not plain.held[key][3]:
                plain.held[key][2:] = now_s, 1
        elif move == "progress":
            ledger.progress([key], np.array([0]), now_s)
            plain.held[key][1:] = 0, now_s, 1
        elif move == "preempt":
            ledger.preempt(key, n % 9, now_s)
            plain.held[key][1:] = n % 9, now_s, 0
        elif move == "release":
            assert ledger.release(key).id == key.request_id
            del plain.held[key]
        ledger.check_invariants()
        expected = [plain.kv(device.id, now_s) for device in ledger.devices]
        assert ledger.kv_now(now_s).tolist() == pytest.approx(expected)
        assert {key for key, _ in ledger} == set(plain.held)
        for g, device in enumerate(ledger.devices):
            on = ledger.keys_on(device.id)
            assert ledger.decoded_on(g, now_s).tolist() == [plain.decoded(key, now_s) for key in on]


def test_unknown_devices_and_keys_are_faults(ledger):
    put(ledger, "r")
    for fault in (
        lambda: ledger.row("g7"),
        lambda: ledger.drain("g7"),
        lambda: ledger.remove("g7"),
        lambda: ledger.join(Device("g0", 1, 1, 1.0)),
        lambda: ledger.release(key_of("r", attempt=1)),
        lambda: ledger.start(key_of("r", incarnation=1), 0.0),
        lambda: ledger.preempt(key_of("other"), 3, 0.0),
        lambda: put(ledger, "r"),
    ):
        before = ledger.snapshot()
        with pytest.raises(EventError):
            fault()
        ledger.check_invariants()
        assert ledger.snapshot()["requests"] == before["requests"]


# -- step time and load of the engine's own account -------------------------------------------------------------------


def test_step_time_follows_steady_decoding(ledger):
    key = put(ledger, "r")
    ledger.start(key, 0.0)
    ledger.progress([key], np.array([4]), 4.0)
    assert ledger.step_s[0] == 1.0  # the first report may contain a wait
    ledger.progress([key], np.array([8]), 10.0)
    assert ledger.step_s[0] == pytest.approx(1 + STEP_BLEND * (6 / 4 - 1))
    ledger.observe(EngineObserved("g0", 1, 0, 18, 0.5, 0.0), 10.0)
    assert ledger.step_s[0] == pytest.approx(1.1 + STEP_BLEND * (0.5 - 1.1))
    before = ledger.step_s[0]
    for odd in (None, 0.0, -1.0, float("inf"), float("nan")):
        ledger.observe(EngineObserved("g0", 1, 0, 18, odd, 0.0), 10.0)
    assert ledger.step_s[0] == before


def test_progress_counts_unknown_keys(ledger):
    key = put(ledger, "r")
    assert ledger.progress([key, key_of("gone"), key_of("r", attempt=3)], np.array([5, 6, 7]), 2.0) == 2
    assert ledger.decoded_on(0, 2.0)[0] == 5


def test_what_the_engine_holds_beyond_ours_is_external(ledger):
    put(ledger, "r0", prompt=100)
    ledger.observe(EngineObserved("g0", 3, 1, 400, None, 0.0), 0.0)
    assert ledger.occupied_slots.tolist() == [4, 0]
    assert ledger.kv_now(0.0).tolist() == [400, 0]
    ledger.observe(EngineObserved("g0", 3, 1, 400, None, 0.0), 0.0)
    assert ledger.kv_now(0.0).tolist() == [400, 0]  # told twice, counted once
    put(ledger, "r1", prompt=50, now_s=5.0)
    ledger.observe(EngineObserved("g0", 1, 0, 100, None, 2.0), 5.0)  # looked before r1 was assigned
    assert ledger.occupied_slots.tolist() == [2, 0]


# -- capacity over time -----------------------------------------------------------------------------------------------


def test_capacity_changes_apply_in_order_of_their_time(ledger):
    ledger.schedule_capacity("g0", 20.0, 1, 100)
    ledger.schedule_capacity("g0", 10.0, 3, 900)
    ledger.schedule_capacity("g0", 20.0, 6, 50)
    assert ledger.next_change_s() == 10.0
    for now_s, slots, kv_tokens in ((9.9, 4, 1000), (10.0, 3, 900), (19.0, 3, 900), (20.0, 6, 50)):
        ledger.apply_schedules(now_s)
        assert (ledger.slots[0], ledger.kv_tokens[0]) == (slots, kv_tokens)
    assert ledger.next_change_s() == np.inf


def test_a_change_told_late_does_not_undo_a_newer_one(ledger):
    ledger.schedule_capacity("g0", 10.0, 3, 900)
    ledger.apply_schedules(12.0)
    restored = Ledger([])
    restored.restore(ledger.snapshot())
    for told in (ledger, restored):
        told.schedule_capacity("g0", 5.0, 1, 100)
        told.apply_schedules(12.0)
        assert (told.slots[0], told.kv_tokens[0]) == (3, 900)
        told.schedule_capacity("g0", 10.0, 2, 800)
        told.apply_schedules(12.0)
        assert (told.slots[0], told.kv_tokens[0]) == (2, 800)


def test_capacity_ahead_is_by_bucket_and_at_least_one(ledger):
    ledger.schedule_capacity("g1", 25.0, 0, 80)
    ahead = ledger.capacity_ahead(5.0, 8.0, 4)
    assert ahead[0].tolist() == [[4] * 4, [1000] * 4]
    assert ahead[1].tolist() == [[2, 2, 1, 1], [500, 500, 80, 80]]


# -- fleet and snapshots ----------------------------------------------------------------------------------------------


def test_a_lost_device_takes_its_rows_along(ledger):
    ledger.join(Device("g2", 7, 700, 2.0))
    put(ledger, "r0", "g1")
    put(ledger, "r1", "g2", prompt=33)
    ledger.set_external("g2", 1, 60)
    ledger.drain("g2")
    assert [request.id for _, request in ledger.remove("g1")] == ["r0"]
    assert [device.id for device in ledger.devices] == ["g0", "g2"]
    assert (ledger.row("g2"), ledger.slots[1], ledger.step_s[1], bool(ledger.draining[1])) == (1, 7, 2.0, True)
    assert ledger.kv_now(0.0).tolist() == [0, 93]
    assert "g1" not in ledger
    ledger.check_invariants()


def test_snapshot_is_a_copy_and_comes_back(ledger):
    put(ledger, "r0")
    ledger.schedule_capacity("g0", 9.0, 1, 10)
    state = ledger.snapshot()
    put(ledger, "r1")
    ledger.remove("g1")
    other = Ledger([])
    other.restore(state)
    other.check_invariants()
    assert [key.request_id for key, _ in other] == ["r0"]
    assert [device.id for device in other.devices] == ["g0", "g1"]
    assert other.next_change_s() == 9.0
    with pytest.raises(SnapshotError, match="version 4"):
        other.restore({**state, "version": 4})
    assert len(other) == 1
