"""Every price-free policy with a central queue: the order it starts requests in, against a plain key on records."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.explanation import WaitReason
from olp_ray.core.policies import POLICIES
from olp_ray.core.router import Router
from olp_ray.core.types import (
    Arrived,
    Assign,
    Cancelled,
    Device,
    DeviceJoined,
    DeviceLost,
    EngineObserved,
    Finished,
    RejectReason,
    Request,
    Started,
)

NOW_S = 100.0
TTFT_S = 49.0
KAPPA = 3.0
MAX_WAIT_S = 2000.0


def late(request):
    return NOW_S - request.arrival_s >= (request.slo_ttft_s or TTFT_S)


# What each policy sorts by, smallest first, written for one request at a time; ties by arrival, then id.
KEYS = {
    "central_fifo": lambda r: 0,
    "central_fifo_skip": lambda r: 0,
    "central_sjf": lambda r: r.predicted_output_tokens,
    "smallest_volume": lambda r: r.prompt_tokens * r.predicted_output_tokens + r.predicted_output_tokens**2 / 2,
    "edf": lambda r: r.arrival_s + (r.slo_ttft_s or TTFT_S),
    "on_time_fifo": late,
    "on_time_sjf": lambda r: (late(r), r.predicted_output_tokens),
    "hrrn": lambda r: -(NOW_S - r.arrival_s) / r.predicted_output_tokens,
    "aged_sjf": lambda r: r.arrival_s + KAPPA * r.predicted_output_tokens,
    "sjf_reservation": lambda r: r.predicted_output_tokens,
}

request_fields = st.tuples(
    st.integers(0, 99), st.integers(0, 40), st.integers(1, 60), st.sampled_from([None, 5.0, 80.0])
)


@pytest.fixture(scope="module")
def route(make_settings, make_objective, limits):
    def build(policy, devices, rejects="never", joint_deadlines=False, **weights):
        objective = dataclasses.replace(make_objective(**(weights or {"e2e": 1.0})), joint_deadlines=joint_deadlines)
        policy_settings = dataclasses.replace(make_settings(objective, rejects=rejects), aged_length_weight=KAPPA)
        return Router(devices, policy, policy_settings, limits, seed=0)

    return build


def assigned(step):
    return [d.request.id for d in step.decisions if isinstance(d, Assign)]


def test_every_holding_policy_without_prices_is_covered():
    priced = {"online_lp", "online_lp_paper"}
    at_once = {"round_robin", "random", "least_outstanding", "power_of_two", "least_kv"}
    assert set(POLICIES) - priced - at_once == set(KEYS)


@pytest.mark.parametrize("policy", KEYS)
@settings(max_examples=15, deadline=None)
@given(fields=st.lists(request_fields, min_size=1, max_size=8))
def test_order_of_starts(policy, fields, route):
    requests = [Request(f"{i:02d}", float(a), s, float(o), slo_ttft_s=slo) for i, (a, s, o, slo) in enumerate(fields)]
    router = route(policy, [Device("g0", len(requests), 10_000, 1.0)])
    step = router.handle(NOW_S, [Arrived(request) for request in requests])
    expected = sorted(requests, key=lambda r: (KEYS[policy](r), r.arrival_s, r.id))
    assert assigned(step) == [request.id for request in expected]
    router.check_invariants()


@pytest.mark.parametrize(("policy", "started"), [("central_fifo", []), ("central_fifo_skip", ["small"])])
def test_only_strict_fifo_lets_a_request_block_those_behind_it(policy, started, route):
    router = route(policy, [Device("g0", 4, 100, 1.0)])
    router.handle(0.0, [Arrived(Request("first", 0.0, 50, 20.0))])
    step = router.handle(1.0, [Arrived(Request("big", 0.5, 60, 20.0)), Arrived(Request("small", 1.0, 5, 5.0))])
    assert assigned(step) == started


def test_what_fits_only_a_lost_device_keeps_its_place_and_blocks_nobody(route):
    wide = Device("wide", 1, 1000, 1.0)
    router = route("central_fifo", [Device("narrow", 1, 100, 1.0), wide])
    [first] = router.handle(0.0, [Arrived(Request("first", 0.0, 500, 20.0))]).decisions
    assert first.key.device_id == "wide"
    waiting = [Arrived(Request("big", 1.0, 500, 20.0)), Arrived(Request("small", 2.0, 10, 5.0))]
    assert assigned(router.handle(2.0, waiting)) == []
    assert assigned(router.handle(3.0, [DeviceLost("wide", 0), Cancelled(first.request.key)])) == ["small"]
    later = [DeviceJoined(dataclasses.replace(wide, incarnation=1)), Arrived(Request("other", 4.0, 500, 5.0))]
    assert assigned(router.handle(4.0, later)) == ["big"]


@pytest.mark.parametrize(("policy", "started"), [("central_sjf", ["long"]), ("sjf_reservation", [])])
def test_reservation_keeps_room_for_the_shortest_that_does_not_fit(policy, started, route):
    """`wide` is shorter but needs the whole device when `first` ends (20 steps); `long` would still be there then."""
    router = route(policy, [Device("g0", 4, 100, 1.0)])
    router.handle(0.0, [Arrived(Request("first", 0.0, 30, 20.0))])
    waiting = [Arrived(Request("wide", 0.0, 85, 10.0)), Arrived(Request("long", 0.0, 5, 40.0))]
    assert assigned(router.handle(0.0, waiting)) == started


def test_reservation_lets_in_what_ends_before_it(route):
    router = route("sjf_reservation", [Device("g0", 4, 100, 1.0)])
    router.handle(0.0, [Arrived(Request("first", 0.0, 30, 20.0))])
    waiting = [Arrived(Request("wide", 0.0, 85, 10.0)), Arrived(Request("brief", 0.0, 5, 18.0))]
    assert assigned(router.handle(0.0, waiting)) == ["brief"]


@pytest.mark.parametrize("policy", KEYS)
def test_the_hopeless_are_rejected_at_the_last_weighted_deadline_and_a_wake_is_asked_for_it(policy, route):
    router = route(policy, [Device("g0", 1, 1000, 1.0)], rejects="deadline", tail_ttft=1.0, tail_e2e=1.0)
    router.handle(0.0, [Arrived(Request("first", 0.0, 10, 500.0))])
    own = Request("own", 0.0, 10, 300.0, slo_ttft_s=12.0)
    step = router.handle(0.0, [Arrived(Request("plain", 0.0, 10, 20.0)), Arrived(own)])
    assert (step.decisions, step.next_wake_s) == ((), 12.0)
    (rejected,) = router.handle(12.0, []).decisions
    assert (rejected.request.id, rejected.reason, rejected.knob) == (
        "own",
        RejectReason.DEADLINE_PASSED,
        "rejects",
    )
    step = router.handle(79.0, [])  # t1' = 100 less 20 tokens: the last useful start has not come yet
    assert (step.decisions, step.next_wake_s) == ((), 80.0)
    assert [d.request.id for d in router.handle(80.0, []).decisions] == ["plain"]


@pytest.mark.parametrize("policy", KEYS)
def test_joint_deadlines_make_hopeless_what_can_not_meet_both(policy, route):
    weights = {"tail_ttft": 1.0, "tail_e2e": 1.0}
    router = route(policy, [Device("g0", 1, 1000, 1.0)], rejects="deadline", joint_deadlines=True, **weights)
    router.handle(0.0, [Arrived(Request("first", 0.0, 10, 500.0))])
    waiting = [Request("plain", 0.0, 10, 20.0), Request("long", 0.0, 10, 75.0), Request("never", 0.0, 10, 100.0)]
    step = router.handle(0.0, [Arrived(request) for request in waiting])
    assert [(d.request.id, d.reason) for d in step.decisions] == [("never", RejectReason.DEADLINE_PASSED)]
    assert step.next_wake_s == 25.0  # t1' = 100 less 75 tokens
    assert [d.request.id for d in router.handle(25.0, []).decisions] == ["long"]
    assert router.handle(48.0, []).next_wake_s == 49.0  # t2'
    assert [d.request.id for d in router.handle(49.0, []).decisions] == ["plain"]


@pytest.mark.parametrize("policy", KEYS)
def test_what_is_too_long_may_still_start_while_a_device_is_not_busy_and_what_came_too_late_may_not(policy, route):
    weights = {"tail_ttft": 1.0, "tail_e2e": 1.0}
    for residents, waited_s, starts in ((6, 0, True), (7, 0, False), (6, 48, True), (6, 49, False)):
        devices = [Device("g0", 10, 10_000, 1.0)]
        router = route(policy, devices, rejects="deadline", joint_deadlines=True, **weights)
        router.handle(0.0, [Arrived(Request(f"r{i}", 0.0, 10, 50.0)) for i in range(residents)])
        (decision,) = router.handle(1.0, [Arrived(Request("long", 1.0 - waited_s, 10, 100.0))]).decisions
        assert isinstance(decision, Assign) == starts


@pytest.mark.parametrize(("step_s", "starts"), [(1.9, True), (2.1, False)])
def test_a_device_at_less_than_half_its_idle_speed_is_busy(step_s, starts, route):
    router = route("edf", [Device("g0", 10, 10_000, 1.0)], rejects="deadline", tail_e2e=1.0)
    for i in range(40):
        router.handle(i / 40, [EngineObserved("g0", 0, 0, 0, step_s, 0.0)])
    (decision,) = router.handle(1.0, [Arrived(Request("long", 1.0, 10, 100.0))]).decisions
    assert isinstance(decision, Assign) == starts


@pytest.mark.parametrize("policy", KEYS)
def test_only_the_bound_ends_a_wait_when_no_deadline_has_weight_and_nothing_does_if_told_so(policy, route):
    for rejects, weights in (("deadline", {"e2e": 1.0}), ("max_wait", {"tail_ttft": 1.0})):
        router = route(policy, [Device("g0", 1, 1000, 1.0)], rejects=rejects, **weights)
        router.handle(0.0, [Arrived(Request("first", 0.0, 10, 500.0))])
        step = router.handle(0.0, [Arrived(Request("late", 0.0, 10, 20.0))])
        assert (step.decisions, step.next_wake_s) == ((), MAX_WAIT_S)
        (rejected,) = router.handle(MAX_WAIT_S, []).decisions
        assert (rejected.request.id, rejected.reason, rejected.limit) == (
            "late",
            RejectReason.MAX_WAIT,
            f"max_wait_s={MAX_WAIT_S:g}",
        )
    router = route(policy, [Device("g0", 1, 1000, 1.0)], tail_ttft=1.0)
    router.handle(0.0, [Arrived(Request("first", 0.0, 10, 500.0))])
    router.handle(0.0, [Arrived(Request("late", 0.0, 10, 20.0))])
    step = router.handle(50_000.0, [])
    assert (step.decisions, step.next_wake_s) == ((), np.inf)


@pytest.mark.parametrize("policy", KEYS)
def test_a_restored_router_goes_on_the_same(policy, route):
    devices = [Device("g0", 2, 300, 1.0), Device("g1", 2, 300, 1.0)]
    rng = np.random.default_rng(1)
    arrivals = [
        Arrived(Request(f"{i:02d}", float(i), int(rng.integers(5, 60)), float(rng.integers(5, 60)))) for i in range(12)
    ]
    router, other = route(policy, devices), route(policy, devices)
    placed = [d for event in arrivals for d in router.handle(event.request.arrival_s, [event]).decisions]
    other.restore(router.snapshot())
    ends = [Finished(d.key, 5) for d in placed]
    starts = [Started(d.key) for d in placed]
    steps = [[r.handle(20.0, starts), r.handle(30.0, ends)] for r in (router, other)]
    assert [s.decisions for s in steps[0]] == [s.decisions for s in steps[1]]
    assert steps[0][1].decisions
    other.check_invariants()


@pytest.mark.parametrize("policy", KEYS)
def test_explain_names_rank_and_devices(policy, route):
    router = route(policy, [Device("g0", 1, 1000, 1.0)])
    router.handle(0.0, [Arrived(Request(f"{i}", 0.0, 10, 10.0)) for i in range(3)])
    answers = router.explain(7.0)
    assert [(a.request_id, a.waited_s, a.rank, a.fits_on, a.reason) for a in answers] == [
        ("1", 7.0, 0, (), WaitReason.NO_FREE_SLOT),
        ("2", 7.0, 1, (), WaitReason.NO_FREE_SLOT),
        ("0", 0.0, None, ("g0",), None),
    ]
