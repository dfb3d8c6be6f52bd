import asyncio
import dataclasses
import time

import numpy as np
import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.core.prices import InlinePricer
from olp_ray.core.types import (
    Assign,
    AssignmentKey,
    Cancelled,
    Device,
    DeviceJoined,
    DeviceLost,
    Finished,
    Progressed,
    Reject,
    ReplicaRefused,
    Request,
    RequestKey,
    Stage,
    Started,
)
from olp_ray.errors import RuntimeShellError, SnapshotError
from olp_ray.runtime.lines import GRACE_S
from olp_ray.runtime.live_router import LiveRouter
from olp_ray.runtime.messages import InFlight, Refused, Report, Submission
from olp_ray.runtime.observe import observe


class Bench:
    """A live router of one device with two slots, on a clock that the test sets."""

    def __init__(self, policy="central_fifo", fleet="1xB2M1000", stall_s=5.0):
        self.now_s = 0.0
        self.priced = build_priced_router(RouterConfig(policy=policy), FleetConfig.parse(fleet), "period", seed=0)
        self.live = LiveRouter(self.priced, lambda: self.now_s, stall_s)

    def submit(self, *ids, ingress="i", waited_s=0.0, prompt=10):
        self.live.submit(ingress, [Submission(request(name, prompt), waited_s) for name in ids])

    def answers(self, ingress="i"):
        return self.live.outbox.take(ingress)

    def tick(self):
        self.live.tick()
        self.priced.router.check_invariants()
        return self.answers()


def request(name, prompt=10):
    return Request(name, 0.0, prompt, 20.0)


def ids(answers):
    return [answer.request.id for answer in answers]


def test_requests_start_while_there_is_room_and_the_rest_when_one_is_over():
    bench = Bench()
    bench.submit("a", "b", "c")
    first = bench.tick()
    assert ids(first) == ["a", "b"]
    assert all(isinstance(answer, Assign) for answer in first)
    bench.live.report([Started(first[0].key), Finished(first[0].key, 5)])
    assert ids(bench.tick()) == ["c"]


def test_arrival_is_when_the_request_came_in_not_when_it_was_sent():
    bench = Bench()
    bench.now_s = 10.0
    bench.submit("a", waited_s=4.0)
    bench.tick()
    assert bench.priced.router.ledger.request(AssignmentKey("a", Stage.MIXED, "d0", 0, 0)).arrival_s == 6.0


def test_sending_a_request_again_only_brings_its_assignment_again_and_an_id_in_use_is_refused():
    bench = Bench()
    bench.submit("a")
    bench.submit("a")
    [first] = bench.tick()
    assert first.request.id == "a"
    bench.submit("a")  # the reply with its assignment was lost
    [again] = bench.tick()
    assert again.key == first.key
    assert bench.priced.router.counters["assigned"] == 1
    assert len(bench.priced.router.queue) == 0
    bench.submit("a", ingress="other")
    bench.live.tick()
    [refused] = bench.answers("other")
    assert isinstance(refused, Refused)
    assert "in use" in refused.text


@pytest.mark.parametrize("end", [lambda key: DeviceLost(key.device_id, 0), lambda key: ReplicaRefused(key, "RayError")])
def test_sending_again_what_its_engine_does_not_run_does_not_bring_that_assignment_again(end):
    bench = Bench(fleet="2xB1M1000")
    bench.submit("a")
    [first] = bench.tick()
    bench.live.report([end(first.key)])
    bench.submit("a")  # before the loop has turned
    assert {answer.key.attempt for answer in bench.tick()} == {1}


def test_the_loop_does_not_turn_again_for_what_was_handed_in_meanwhile():
    async def main():
        bench = Bench()
        loop = asyncio.ensure_future(bench.live.run())
        await asyncio.sleep(0.05)
        before = bench.live.counts["ticks"]
        for name in "ab":
            bench.submit(name)
            bench.live.tick()
            await asyncio.sleep(0.02)
        turned = bench.live.counts["ticks"] - before
        bench.live.close()
        await loop
        return turned, ids(bench.answers())

    assert asyncio.run(main()) == (2, ["a", "b"])


def test_what_can_never_run_is_rejected_and_forgotten():
    bench = Bench()
    bench.submit("a", prompt=5000)
    [answer] = bench.tick()
    assert isinstance(answer, Reject)
    bench.submit("a")
    assert ids(bench.tick()) == ["a"]


def test_a_cancelled_request_leaves_its_slot():
    bench = Bench()
    bench.submit("a", "b", "c", "d")
    bench.tick()
    bench.live.report([Cancelled(request("a").key), Cancelled(request("c").key)])
    assert ids(bench.tick()) == ["d"]


def test_a_stale_finish_does_not_lose_the_owner():
    bench = Bench(fleet="2xB1M1000")
    bench.submit("a")
    [first] = bench.tick()
    bench.live.report([DeviceLost(first.key.device_id, 0)])
    [second] = bench.tick()
    bench.live.report([Finished(first.key, 3)])
    bench.tick()
    bench.live.report([DeviceLost(second.key.device_id, 0)])
    assert bench.tick() == []
    assert bench.priced.router.queue.find(request("a").key).attempt == 2


def test_an_end_that_comes_with_the_loss_of_its_device_does_not_lose_the_owner():
    bench = Bench(fleet="2xB1M1000")
    bench.submit("a")
    [first] = bench.tick()
    bench.live.report([DeviceLost(first.key.device_id, 0), Finished(first.key, 3)])
    [second] = bench.tick()
    assert second.key.attempt == 1
    assert bench.live.counts["decisions_without_owner"] == 0


def test_bad_events_are_counted_and_the_others_still_count():
    bench = Bench()
    bench.submit("a")
    [assign] = bench.tick()
    unknown = AssignmentKey("x", Stage.MIXED, "d0", 0, 0)
    bench.live.report(
        [Finished(unknown, 1), DeviceLost("nowhere", 0), "no event", Progressed((assign.key,), np.array([2, 3]))]
    )
    bench.submit("b")
    assert ids(bench.tick()) == ["b"]
    assert bench.live.errors["EventError"] == 3
    assert bench.priced.router.counters["stale_events"] == 1


@pytest.mark.parametrize(
    "bad",
    [
        Cancelled(["x"]),
        Cancelled(RequestKey(["x"], Stage.MIXED)),
        Finished(None, 3),
        Finished(AssignmentKey(["x"], Stage.MIXED, "d0", 0, 0), 3),
        ReplicaRefused("x", "RayError"),
        DeviceLost([], 0),
        DeviceLost("d0", None),
        DeviceJoined(None),
    ],
    ids=repr,
)
def test_an_event_that_cannot_be_looked_up_is_dropped_and_counted_and_the_loop_goes_on(bad):
    async def main():
        bench = Bench()
        bench.live.hello("other", Report((), (InFlight(AssignmentKey("o", Stage.MIXED, "d0", 0, 0), request("o")),)))
        bench.submit("a")
        [a] = bench.tick()
        loop = asyncio.ensure_future(bench.live.run())
        bench.live.report([bad, Finished(a.key, 5)])
        bench.submit("b")
        await asyncio.sleep(0.05)
        going = not loop.done()
        bench.live.close()
        await loop
        return going, ids(bench.answers()), dict(bench.live.errors)

    assert asyncio.run(main()) == (True, ["b"], {"EventError": 1})


@pytest.mark.parametrize(
    "bad",
    [Report(in_flight=(InFlight(None, request("x")),)), Report(waiting=(Submission(None, 0.0),))],
    ids=["in flight", "waiting"],
)
def test_a_report_that_cannot_be_read_does_not_lose_what_else_was_heard(bad):
    bench = Bench(fleet="1xB1M1000")
    bench.submit("a", "b")
    [a] = bench.tick()
    bench.live.report([Finished(a.key, 5)])
    bench.live.hello("j", bad)
    assert bench.live.errors["AttributeError"] == 1
    assert ids(bench.tick()) == ["b"]


def test_a_turn_that_fails_outside_the_router_does_not_end_the_loop_but_health_fails(monkeypatch):
    async def main():
        bench = Bench(stall_s=0.05)
        with monkeypatch.context() as broken:
            broken.setattr(bench.live.lines, "left", None)
            loop = asyncio.ensure_future(bench.live.run())
            bench.submit("a")
            await asyncio.sleep(0.1)
            with pytest.raises(RuntimeShellError, match="TypeError"):
                bench.live.check_health()
        bench.submit("b")
        await asyncio.sleep(0.05)
        bench.live.close()
        await loop
        return ids(bench.answers())

    assert asyncio.run(main()) == ["a", "b"]


def test_a_policy_that_raises_does_not_end_the_loop_but_health_fails(monkeypatch):
    bench = Bench(stall_s=0.0)
    bench.submit("a")

    def fail(*_):
        raise ZeroDivisionError("broken")

    with monkeypatch.context() as broken:
        broken.setattr(bench.priced.router.policy, "step", fail)
        next_wake_s = bench.live.tick()
    assert 0 < next_wake_s <= 1
    assert bench.live.errors["ZeroDivisionError"] >= 1
    with pytest.raises(RuntimeShellError, match="ZeroDivisionError"):
        bench.live.check_health()
    assert ids(bench.tick()) == ["a"]


def test_a_price_update_that_fails_is_counted_and_what_was_decided_is_told(monkeypatch):
    bench = Bench(policy="online_lp", fleet="1xB64M100000")

    def fail(work):
        raise OverflowError("too large")

    monkeypatch.setattr(bench.priced.pricer, "submit", fail)
    for k in range(40):
        bench.now_s += 1.0
        bench.submit(f"r{k}")
        assert ids(bench.tick()) == [f"r{k}"]
    assert set(bench.live.errors) == {"PriceError"}
    bench.live.check_health()


def test_progress_and_an_end_beyond_the_prediction_and_ends_of_strangers_change_nothing_else():
    bench = Bench(policy="online_lp")
    bench.submit("a")
    [assign] = bench.tick()
    beyond = 3 * int(assign.request.predicted_output_tokens)
    bench.live.report([Started(assign.key), Progressed((assign.key,), np.array([beyond]))])
    bench.tick()
    bench.live.report([Finished(AssignmentKey("x", Stage.MIXED, "d0", 0, 0), 1)])
    bench.submit("b")
    assert ids(bench.tick()) == ["b"]
    bench.live.report([Finished(assign.key, beyond), Finished(assign.key, beyond)])
    bench.tick()
    assert bench.priced.router.counters["stale_events"] == 2
    assert len(bench.priced.router.ledger) == 1
    assert not bench.live.errors


def test_health_fails_when_the_loop_stands_still():
    bench = Bench(stall_s=0.05)
    bench.tick()
    bench.live.check_health()
    time.sleep(0.1)
    with pytest.raises(RuntimeShellError, match=r"no tick of the router has succeeded for .* \(runtime.stall_s=0.05\)"):
        bench.live.check_health()


def test_cancelled_requests_are_counted_once_and_a_turn_is_measured_in_parts():
    bench = Bench()
    bench.submit("a", "b", "c")
    bench.tick()
    bench.live.report([Cancelled(request("a").key), Cancelled(request("c").key), Cancelled(request("c").key)])
    bench.tick()
    values = observe(bench.live, bench.priced.router, InlinePricer())
    assert values.values["olp_ray_cancelled_total", ()] == 2
    for name in ("olp_ray_tick_seconds", "olp_ray_tick_router_seconds", "olp_ray_tick_answers_seconds"):
        assert sum(values.distributions[name].counts) == 2


def test_the_loop_wakes_on_arrival_and_sleeps_otherwise():
    async def main():
        bench = Bench()
        loop = asyncio.ensure_future(bench.live.run())
        await asyncio.sleep(0.3)
        quiet = bench.live.counts["ticks"]
        began = asyncio.get_running_loop().time()
        bench.submit("a")
        batch = await anext(bench.live.outbox.stream("i"))
        took_s = asyncio.get_running_loop().time() - began
        bench.live.close()
        await loop
        return quiet, ids(batch), took_s

    quiet, started, took_s = asyncio.run(main())
    assert quiet <= 2
    assert started == ["a"]
    assert took_s < 0.1


class TestRestart:
    """A snapshot, things that happen after it, and a router that starts from it."""

    def restarted(self, bench, state):
        after = Bench()
        after.now_s = bench.now_s
        after.live.restore(state, grace_s=10.0)
        return after

    def test_nothing_is_assigned_twice_and_lost_decisions_are_sent_again(self):
        bench = Bench()
        bench.submit("a", "b", "c")
        a, b = bench.tick()
        after = self.restarted(bench, bench.live.snapshot())
        # the ingress has got a, but neither b's assignment nor an answer for c
        waiting = (Submission(request("b"), 1.0), Submission(request("c"), 1.0))
        after.live.hello("i", Report(waiting, (InFlight(a.key, a.request),)))
        [again] = after.tick()
        assert again.key == b.key
        after.live.report([Finished(a.key, 1)])
        assert ids(after.tick()) == ["c"]

    def test_an_assignment_made_after_the_snapshot_takes_its_room_until_it_is_over(self):
        bench = Bench()
        bench.submit("a", "b")
        state = bench.live.snapshot()
        a, b = bench.tick()
        after = self.restarted(bench, state)
        after.live.hello("i", Report((), (InFlight(a.key, a.request), InFlight(b.key, b.request))))
        after.submit("c")
        assert after.tick() == []
        after.live.report([Finished(a.key, 1)])
        assert ids(after.tick()) == ["c"]
        after.live.report([Cancelled(b.key.request_key)])
        after.tick()
        assert after.live.orphan_count == 0

    def test_what_runs_in_a_newer_process_than_the_lost_one_keeps_its_room_until_it_is_over(self):
        bench = Bench(fleet="1xB2M1000")
        [device] = bench.priced.router.ledger.devices
        bench.live.device_up(dataclasses.replace(device, incarnation=3))
        state = bench.live.snapshot()
        bench.submit("a")
        [a] = bench.tick()
        after = self.restarted(bench, state)
        after.live.hello("i", Report((), (InFlight(a.key, a.request),)))
        after.live.report([DeviceLost(device.id, 0)])
        after.tick()
        assert after.priced.router.ledger.occupied_slots.tolist() == [1]
        after.live.report([DeviceLost(device.id, 0), Finished(a.key, 1)])
        after.tick()
        assert after.priced.router.ledger.occupied_slots.tolist() == [0]

    def test_a_snapshot_has_no_load_of_what_is_over(self):
        bench = Bench()
        state = bench.live.snapshot()
        bench.submit("a")
        [a] = bench.tick()
        after = self.restarted(bench, state)
        after.live.hello("i", Report((), (InFlight(a.key, a.request),)))
        after.live.report([Finished(a.key, 1)])
        after.tick()
        again = self.restarted(after, after.live.snapshot())
        again.tick()
        assert again.priced.router.ledger.occupied_slots.tolist() == [0]

    def test_what_runs_already_is_not_assigned_again_when_an_engine_is_heard_before_the_ingress(self):
        bench = Bench()
        bench.submit("a", "b", "c")
        a, b = bench.tick()
        state = bench.live.snapshot()
        bench.live.report([Finished(a.key, 1)])
        [c] = bench.tick()
        after = self.restarted(bench, state)
        after.submit("d")
        after.live.report([Finished(b.key, 1)])
        assert after.tick() == []  # c has a's room, which only the ingress knows
        after.live.hello("i", Report((Submission(request("d"), 1.0),), (InFlight(c.key, c.request),)))
        assert ids(after.tick()) == ["d"]
        assert after.priced.router.counters["assigned"] == 3
        assert after.live.orphan_count == 1

    def test_a_restarted_router_waits_for_every_ingress_though_not_for_long(self):
        bench = Bench()
        bench.submit("a", ingress="i")
        bench.submit("b", ingress="j")
        bench.tick()
        after = self.restarted(bench, bench.live.snapshot())
        after.submit("c")
        after.live.hello("i", Report((Submission(request("c"), 1.0),), ()))
        assert after.tick() == []
        after.now_s += 0.5
        assert ids(after.tick()) == ["c"]  # a is over
        assert not after.live.errors
        after.live.hello("j", Report())
        assert len(after.priced.router.ledger) == 1

    def test_what_is_submitted_while_other_ingresses_are_waited_for_is_not_lost(self):
        bench = Bench(fleet="1xB4M1000")
        bench.submit("a", ingress="i")
        bench.submit("b", ingress="j")
        bench.tick()
        after = self.restarted(bench, bench.live.snapshot())
        after.live.hello("i", Report((Submission(request("c"), 1.0),), ()))
        after.submit("d")
        assert after.tick() == []
        after.now_s += 0.25
        after.live.hello("j", Report())
        assert ids(after.tick()) == ["c", "d"]
        arrivals_s = {r.id: r.arrival_s for _, r in after.priced.router.ledger}
        assert arrivals_s == {"c": -1.0, "d": 0.0}
        assert after.live.counts["decisions_without_owner"] == 0
        assert not after.live.errors

    @pytest.mark.parametrize("known", [True, False])
    def test_an_end_that_is_heard_before_the_ingress_says_that_it_runs_frees_its_room(self, known):
        bench = Bench()
        bench.submit("a")
        bench.tick()
        before = bench.live.snapshot()
        bench.submit("b")
        [b] = bench.tick()
        after = self.restarted(bench, bench.live.snapshot() if known else before)
        a = after.priced.router.where(request("a").key)
        after.live.report([Finished(b.key, 1)])
        after.live.hello("i", Report((), (InFlight(a, request("a")), InFlight(b.key, b.request))))
        after.tick()
        after.tick()
        assert after.live.orphan_count == 0
        assert after.priced.router.ledger.occupied_slots.tolist() == [1]

    def test_what_ran_in_a_process_that_is_gone_waits_again_before_its_ingress_has_noticed(self):
        bench = Bench(fleet="1xB2M1000")
        bench.submit("a")
        [a] = bench.tick()
        [device] = bench.priced.router.ledger.devices
        after = self.restarted(bench, bench.live.snapshot())
        after.live.device_up(dataclasses.replace(device, incarnation=5))
        after.live.hello("i", Report((), (InFlight(a.key, a.request),), (device,)))
        [again] = after.tick()
        assert (again.request.id, again.key.incarnation, again.key.attempt) == ("a", 5, 1)
        assert after.live.orphan_count == 0

    @pytest.mark.parametrize("turn_between", [True, False])
    def test_what_is_carried_as_load_of_a_device_that_is_lost_is_routed_when_it_is_submitted_again(self, turn_between):
        bench = Bench(fleet="2xB1M1000")
        state = bench.live.snapshot()
        bench.submit("a")
        [a] = bench.tick()
        after = Bench(fleet="2xB1M1000")
        after.live.restore(state, grace_s=10.0)
        after.live.hello("i", Report((), (InFlight(a.key, a.request),)))
        after.live.report([DeviceLost(a.key.device_id, 0)])
        if turn_between:
            assert after.tick() == []
        after.submit("a", waited_s=2.0)
        [again] = after.tick()
        assert again.key.device_id != a.key.device_id
        assert after.live.orphan_count == 0

    @pytest.mark.parametrize("held", [True, False])
    @pytest.mark.parametrize("turn_between", [True, False])
    def test_what_is_carried_as_load_and_its_engine_refuses_is_routed_when_it_is_submitted_again(
        self, turn_between, held
    ):
        bench = Bench(fleet="2xB1M1000")
        bench.submit("other", ingress="j")
        bench.live.tick()
        state = bench.live.snapshot()
        bench.submit("a")
        [a] = bench.tick()
        after = Bench(fleet="2xB1M1000")
        after.live.restore(state, grace_s=10.0)
        if not held:
            after.live.hello("j", Report())
        after.live.hello("i", Report((), (InFlight(a.key, a.request),)))
        after.live.report([ReplicaRefused(a.key, "RayTaskError")])
        if turn_between:
            assert after.tick() == []
        after.submit("a", waited_s=2.0)
        if held:
            after.live.hello("j", Report())
        assert ids(after.tick()) == ["a"]
        assert after.live.orphan_count == 0
        assert after.priced.router.ledger.external_slots.tolist() == [0, 0]
        assert not after.live.errors

    def test_what_is_carried_as_load_and_waits_by_the_next_report_is_routed(self):
        after = Bench()
        a = AssignmentKey("a", Stage.MIXED, "d0", 0, 0)
        after.live.hello("i", Report((), (InFlight(a, request("a")),), number=1))
        assert after.live.orphan_count == 1
        after.live.hello("i", Report((Submission(request("a"), 1.0),), number=2))
        assert ids(after.tick()) == ["a"]
        assert after.live.orphan_count == 0
        assert after.priced.router.ledger.external_slots.tolist() == [0]

    def test_a_refusal_that_is_heard_before_the_report_that_its_request_waits_does_not_bring_the_assignment_again(self):
        bench = Bench(fleet="2xB1M1000")
        bench.submit("a")
        [a] = bench.tick()
        after = Bench(fleet="2xB1M1000")
        after.live.restore(bench.live.snapshot(), grace_s=10.0)
        after.live.report([ReplicaRefused(a.key, "RayTaskError")])
        after.live.hello("i", Report((Submission(request("a"), 1.0),)))
        assert {answer.key.attempt for answer in after.tick()} == {1}

    def test_what_was_assigned_before_a_late_report_that_it_runs_is_not_told_to_its_ingress(self):
        bench = Bench(fleet="2xB1M1000")
        bench.submit("a", "b", "c")
        a, b = bench.tick()
        state = bench.live.snapshot()
        bench.live.report([Finished(b.key, 5)])
        [c] = bench.tick()
        after = Bench(fleet="2xB1M1000")
        after.live.restore(state, grace_s=10.0)
        after.live.report([Finished(a.key, 5)])
        after.now_s = 0.6  # the ingress is late
        after.live.tick()
        assert after.priced.router.where(request("c").key).device_id == a.key.device_id
        after.live.hello("i", Report(in_flight=(InFlight(c.key, c.request),)))
        assert after.tick() == []
        assert after.priced.router.ledger.occupied_slots.tolist() == [0, 1]
        assert after.live.orphan_count == 1

    def test_what_was_rejected_before_a_late_report_that_it_runs_is_not_told_to_its_ingress(self):
        after = Bench()
        large = request("a", prompt=5000)
        after.live.submit("i", [Submission(large, 0.0)])
        after.live.tick()
        device = Device("large", 1, 9000, 1.0)
        key = AssignmentKey("a", Stage.MIXED, device.id, 0, 0)
        after.live.hello("i", Report((), (InFlight(key, large),), (device,)))
        assert after.tick() == []
        assert after.live.orphan_count == 1

    def test_what_finished_meanwhile_is_released(self):
        bench = Bench()
        bench.submit("a", "b", "c")
        bench.tick()
        after = self.restarted(bench, bench.live.snapshot())
        after.live.hello("i", Report((Submission(request("c"), 1.0),), ()))
        assert ids(after.tick()) == ["c"]
        assert len(after.priced.router.ledger) == 1

    def test_what_is_submitted_again_in_the_hold_is_not_answered_with_an_assignment_to_a_process_that_is_gone(self):
        bench = Bench(fleet="1xB2M1000")
        bench.submit("a")
        bench.tick()
        [device] = bench.priced.router.ledger.devices
        after = self.restarted(bench, bench.live.snapshot())
        after.submit("a", waited_s=1.0)  # its reply was lost
        assert after.tick() == []
        newer = dataclasses.replace(device, incarnation=5)
        after.live.hello("i", Report((Submission(request("a"), 1.0),), (), (newer,)))
        assert {(answer.key.incarnation, answer.key.attempt) for answer in after.tick()} == {(5, 1)}

    def test_nothing_is_assigned_to_a_device_of_which_another_ingress_says_that_it_is_lost(self):
        bench = Bench(fleet="2xB1M1000")
        bench.submit("a", "b", ingress="i")
        bench.live.tick()
        bench.submit("c", ingress="j")
        bench.live.tick()
        _, gone = bench.priced.router.ledger.devices
        flights = [InFlight(answer.key, answer.request) for answer in bench.answers("i")]
        [stays] = [flight for flight in flights if flight.key.device_id != gone.id]
        after = self.restarted(bench, bench.live.snapshot())
        after.live.hello("i", Report((), (stays,)))
        after.live.hello("j", Report((Submission(request("c"), 1.0),), (), (), (DeviceLost(gone.id, 0),)))
        after.tick()
        assert after.answers("j") == []
        assert after.live.counts["decisions_without_owner"] == 0
        assert not after.live.errors

    def test_requests_of_an_ingress_that_never_comes_back_are_cancelled(self):
        bench = Bench()
        bench.submit("a", "b", "c")
        bench.tick()
        after = self.restarted(bench, bench.live.snapshot())
        after.now_s = 9.0
        after.tick()
        assert len(after.priced.router.ledger) == 2
        after.now_s = 10.0
        after.tick()
        assert len(after.priced.router.ledger) == 0
        assert len(after.priced.router.queue) == 0

    def test_a_snapshot_of_another_version_is_refused(self):
        with pytest.raises(SnapshotError, match="version 9; expected 1"):
            Bench().live.restore({"version": 9}, 1.0)

    def test_devices_lost_and_joined_since_the_snapshot_are_told_again(self):
        bench = Bench(fleet="2xB1M1000")
        bench.submit("a", "b")
        bench.tick()
        after = Bench(fleet="2xB1M1000")
        after.live.restore(bench.live.snapshot(), grace_s=10.0)
        old, new = bench.priced.router.ledger.devices
        waiting = tuple(Submission(request(name), 0.0) for name in "ab")
        newer = dataclasses.replace(new, incarnation=5)
        after.live.hello("i", Report(waiting, (), (newer,), (DeviceLost(old.id, 0),)))
        [assign] = after.tick()
        assert (assign.key.device_id, assign.key.incarnation, assign.key.attempt) == (new.id, 5, 1)
        assert [device.id for device in after.priced.router.ledger.devices] == [new.id]


def test_a_newer_process_takes_the_place_of_its_device_and_an_older_one_is_ignored():
    bench = Bench(fleet="1xB1M1000")
    bench.submit("a")
    [first] = bench.tick()
    [device] = bench.priced.router.ledger.devices
    bench.live.device_up(dataclasses.replace(device, incarnation=7))
    [second] = bench.tick()
    assert (second.request.id, second.key.incarnation, second.key.attempt) == ("a", 7, 1)
    bench.live.device_up(device)
    assert bench.priced.router.ledger.devices[0].incarnation == 7
    bench.live.report([Finished(first.key, 1)])
    bench.tick()
    assert bench.priced.router.counters["stale_events"] == 1


def test_the_loss_of_a_device_is_no_error_when_several_ingresses_tell_it():
    bench = Bench(fleet="2xB1M1000")
    loss = DeviceLost("d0", 0)
    bench.live.report([loss, loss])
    bench.tick()
    bench.live.report([loss])
    bench.live.hello("j", Report(lost=(loss,)))
    bench.tick()
    assert [device.id for device in bench.priced.router.ledger.devices] == ["d1"]
    assert not bench.live.errors
    bench.live.device_up(Device("d0", 1, 1000, 1.0))
    bench.live.report([loss])
    bench.tick()
    assert [device.id for device in bench.priced.router.ledger.devices] == ["d1"]


def test_a_report_by_who_has_not_noticed_the_loss_of_a_device_does_not_bring_it_back_and_its_process_does():
    bench = Bench(fleet="2xB1M1000")
    gone, stays = bench.priced.router.ledger.devices
    for ingress in "ij":
        bench.live.hello(ingress, Report(devices=(gone, stays), number=1))
    bench.live.report([DeviceLost(gone.id, 0)])
    bench.live.hello("i", Report(devices=(gone, stays), number=2))
    bench.live.hello("j", Report(devices=(gone,), lost=(DeviceLost(stays.id, 0),), number=2))
    bench.tick()
    assert len(bench.priced.router.ledger.devices) == 0
    bench.live.device_up(gone)  # only the connection was broken
    newer = dataclasses.replace(stays, incarnation=4)
    bench.live.hello("i", Report(devices=(gone, newer), number=3))
    bench.tick()
    assert list(bench.priced.router.ledger.devices) == [gone, newer]


class TestLines:
    """An ingress that loses its stream, or leaves, while the router goes on."""

    def pass_s(self, bench, seconds, *present):
        for _ in range(seconds):
            bench.now_s += 1.0
            for ingress in present:
                bench.submit(ingress=ingress)
            bench.live.tick()

    def test_what_is_decided_after_hello_is_not_given_to_the_stream_that_broke(self):
        async def main():
            bench = Bench()
            broken = bench.live.outbox.stream("i")
            reading = asyncio.ensure_future(anext(broken, None))
            await asyncio.sleep(0.01)
            bench.submit("a")
            bench.live.hello("i", Report((Submission(request("a"), 0.0),), number=1))
            lost = await reading
            return lost, ids(await anext(bench.live.outbox.stream("i")))

        assert asyncio.run(main()) == (None, ["a"])

    def test_a_report_that_a_newer_one_has_overtaken_changes_nothing(self):
        bench = Bench()
        bench.live.hello("i", Report(number=2))
        bench.submit("a", "b", "c")
        assert ids(bench.tick()) == ["a", "b"]
        bench.live.hello("i", Report(number=1))
        bench.tick()
        assert len(bench.priced.router.ledger) == 2
        assert len(bench.priced.router.queue) == 1

    def test_an_ingress_that_leaves_gives_its_room_back_after_the_grace_and_the_others_stay(self):
        bench = Bench()
        bench.submit("a", "c", ingress="i")
        bench.live.hello("j", Report(number=1))
        bench.submit("b", ingress="j")
        bench.live.tick()
        assert len(bench.priced.router.queue) == 1
        self.pass_s(bench, int(GRACE_S), "j")
        assert len(bench.priced.router.ledger) == 2
        self.pass_s(bench, 1, "j")
        assert [key.request_id for key, _ in bench.priced.router.ledger] == ["b"]
        assert bench.answers("i") == []
        assert bench.live.counts["ingresses_left"] == 1
        assert bench.live.lines.number("j") == 1

    def test_one_that_was_only_slow_says_hello_and_goes_on(self):
        bench = Bench()
        bench.submit("a", "b", "c")
        a, b = bench.tick()
        self.pass_s(bench, int(GRACE_S) + 1)
        assert bench.live.lines.number("i") is None
        assert len(bench.priced.router.ledger) == 0
        waiting = (Submission(request("c"), GRACE_S),)
        bench.live.hello("i", Report(waiting, (InFlight(a.key, a.request), InFlight(b.key, b.request)), number=2))
        assert bench.tick() == []
        bench.live.report([Finished(a.key, 1)])
        assert ids(bench.tick()) == ["c"]
        bench.live.report([Finished(b.key, 1)])
        bench.tick()
        assert bench.live.orphan_count == 0
