import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from olp_ray.config.router import RouterConfig
from olp_ray.core.explanation import WaitReason
from olp_ray.core.paper_prices import Column
from olp_ray.core.policies import POLICIES, build_policy
from olp_ray.core.router import Router
from olp_ray.core.types import (
    Arrived,
    Assign,
    AssignmentKey,
    CapacityChanged,
    Device,
    DeviceJoined,
    DeviceLost,
    EngineObserved,
    ExternalLoad,
    Finished,
    Preempted,
    Progressed,
    Reconfigure,
    Reject,
    RejectReason,
    ReplicaRefused,
    Request,
    Stage,
    Started,
)
from olp_ray.errors import EventError, PolicyError, SnapshotError
from tests.core.engines import ACTIONS, ALL_MODELS, OFTEN, World

DRAWN = ("random", "power_of_two")
streams = st.lists(
    st.tuples(st.sampled_from((*OFTEN, *OFTEN, *ACTIONS)), st.integers(0, 999)), min_size=20, max_size=90
)


def examples(count):
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def fleet():
    return [
        Device("a", 3, 200, 1.0, models=ALL_MODELS),
        Device("b", 2, 300, 1.0, block_tokens=16, models=ALL_MODELS),
        Device("c", 4, 150, 1.0, models=frozenset({"m"})),
    ]


@pytest.fixture(scope="module")
def world(fleet, make_settings, make_objective, limits):
    """Builds a `World` on the fleet, with quick settings."""
    objectives = (
        make_objective(e2e=1, ttft=1),
        make_objective(tail_e2e=1, tail_ttft=1, qps=0.1, t1=30, t2=6),
        make_objective(throughput=1),
    )

    def build(policy, *, objective=None, devices=fleet, limits=limits, setting=None, **options):
        chosen = make_settings(objective or objectives[1], **(setting or {}))
        return World(policy, devices, chosen, limits, objectives=objectives, **options)

    return build


@pytest.fixture
def router(make_settings, make_device, limits):
    """Builds a `Router` on two alike devices."""

    def build(policy="central_fifo", devices=None, limits=limits, **options):
        if devices is None:
            devices = [make_device("g0"), make_device("g1")]
        return Router(devices, policy, make_settings(**options), limits, 0)

    return build


def same(one, other):
    """Whether two snapshots hold the same, to the bit."""
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def play(world, stream):
    for name, n in stream:
        world.act(name, n)
    return world


# -- whatever happens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@examples(20)
@given(stream=streams, rejects=st.sampled_from(["never", "max_wait", "deadline"]))
def test_every_request_ends_exactly_once_whatever_happens(world, policy, stream, rejects):
    played = play(world(policy, setting={"rejects": rejects, "max_wait_s": 30.0}), stream)
    played.settle()
    assert set(played.ended) == set(played.true_tokens)


@examples(20)
@given(stream=streams, names=st.lists(st.sampled_from(sorted(POLICIES)), min_size=1, max_size=4))
def test_the_policy_may_change_in_mid_stream(world, stream, names):
    played = world("central_fifo")
    for i, (name, n) in enumerate(stream):
        if i % 12 == 11:
            played.handle(Reconfigure(policy=names[i // 12 % len(names)]))
            assert played.router.policy.name == names[i // 12 % len(names)]
        played.act(name, n)
    played.settle()
    assert set(played.ended) == set(played.true_tokens)


@pytest.mark.parametrize("policy", POLICIES)
@examples(6)
@given(stream=streams, at=st.integers(5, 60))
def test_a_restored_router_goes_on_with_the_same_decisions(world, policy, stream, at):
    """What is lost is the price work in flight, exactly as if its tables had missed their deadline."""
    restored, kept = world(policy), world(policy)
    play(restored, stream[:at]).restart()
    play(kept, stream[:at]).pricer.collect()
    for played in (restored, kept):
        play(played, stream[at:]).settle()
    assert restored.log == kept.log
    assert restored.ended == kept.ended


@pytest.mark.parametrize("policy", POLICIES)
def test_a_snapshot_is_plain_and_complete(world, policy):
    played = play(world(policy), [("arrive", 7 * n) for n in range(30)] + [("tick", 1)] * 9)
    state = pickle.loads(pickle.dumps(played.router.snapshot()))
    other = Router([], *played.arguments)
    other.restore(state)
    other.check_invariants()
    assert same(other.snapshot(), state)
    played.tick()
    assert not same(played.router.snapshot(), state)  # it is a copy, not a view


@pytest.mark.parametrize("policy", POLICIES)
def test_a_snapshot_of_another_version_changes_nothing(world, policy):
    played = play(world(policy), [("arrive", 7 * n) for n in range(12)] + [("tick", 1)] * 3)
    before = played.router.snapshot()
    with pytest.raises(SnapshotError, match="version 9"):
        played.router.restore({**before, "version": 9})
    assert same(played.router.snapshot(), before)


# -- prices over blocks ---------------------------------------------------------------------------------------------


@examples(25)
@given(stream=streams)
def test_blocks_change_neither_a_decision_nor_a_bit(world, stream):
    played = [world("online_lp", blocks=blocks) for blocks in (1, 2, 8)]
    for action in stream:
        for one in played:
            one.act(*action)
        tables = [one.router.policy.prices.tables for one in played]
        assert all(np.array_equal(tables[0], other) for other in tables[1:])
    assert played[0].log == played[1].log == played[2].log


def until(played, now_s):
    """Two arrivals per second, up to this time."""
    while played.now_s < now_s:
        n = int(played.now_s)
        played.arrive(20 + 7 * n % 40, 5 + 3 * n % 30, 5 + 5 * n % 30)
        played.arrive(5 + 11 * n % 40, 9, 9)
        played.tick()


def shifted(prices, buckets):
    return np.concatenate([prices[:, :, buckets:], np.repeat(prices[:, :, -1:], buckets, axis=2)], axis=2)


def test_lost_updates_only_shift_prices_and_are_counted(world):
    played = world("online_lp", missed=[(u, ("a", "b", "c")) for u in range(10, 14)])
    until(played, 20)  # two seconds per update, two updates per bucket
    prices = played.router.policy.prices
    assert prices.missed == 0
    for update in range(10, 14):
        before = prices.tables[:, :2, :-1].copy()
        assert before.any()
        until(played, 2 * update + 2)
        moved = shifted(before, int(update % 2 == 1))
        assert np.array_equal(prices.tables[:, :2, :-1], moved)
        assert prices.missed == 3 * (update - 9)
    until(played, 30)
    assert prices.missed == 12
    assert not np.array_equal(prices.tables[:, :2, :-1], moved)


def test_a_lost_block_leaves_the_others_their_new_prices(world):
    played = world("online_lp", blocks=3, missed=[(11, ["b"])])
    until(played, 22)
    prices = played.router.policy.prices
    before = prices.tables[:, :2, :-1].copy()
    until(played, 24)
    assert prices.missed == 1
    only_moved = [np.array_equal(prices.tables[g, :2, :-1], shifted(before, 1)[g]) for g in range(3)]
    assert only_moved == [False, True, False]


@examples(20)
@given(
    stream=streams,
    factor=st.sampled_from([2.0**-10, 1024.0, 3.0, 1e-6, 1e5]),
    weights=st.tuples(*[st.sampled_from([0.0, 0.01, 1.0, 2.5])] * 6).filter(any),
)
def test_scaling_all_weights_changes_no_decision(world, make_objective, stream, factor, weights):
    stream = [action for action in stream if action[0] != "reconfigure"]
    one = play(world("online_lp", objective=make_objective(*weights, t1=30, t2=6)), stream)
    other = play(world("online_lp", objective=make_objective(*(factor * w for w in weights), t1=30, t2=6)), stream)
    assert one.log == other.log


@examples(10)
@given(stream=streams, factor=st.sampled_from([2.0**-10, 1024.0, 3.0]))
@pytest.mark.parametrize("end_s", [np.inf, 40.0])
def test_scaling_changes_no_decision_with_tiers_tenants_and_a_fixed_end_either(
    world, make_objective, stream, factor, end_s
):
    """Priorities are those of the stream; every request is of one tenant, which is served more and more."""
    stream = [action for action in stream if action[0] != "reconfigure"]
    logs = []
    for scale in (1.0, factor):
        plain = make_objective(e2e=scale, ttft=scale, tail_ttft=3 * scale, t1=30, t2=6)
        objective = dataclasses.replace(
            plain, class_weights=(("default", 2.5),), priority_factor=2.0, tenant_fairness=1.0
        )
        logs.append(play(world("online_lp", objective=objective, setting={"end_s": end_s}), stream).log)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("policy", POLICIES)
def test_light_traffic_spreads_over_alike_devices(world, make_device, policy):
    played = world(policy, devices=[make_device(f"g{i}", 8, 4000) for i in range(4)])
    for _arrival in range(40):
        played.arrive(10, 3, 3)
        for _ in range(4):
            played.tick()
    used = [device_id for _, _, device_id, _ in played.log]
    shares = {used.count(f"g{i}") for i in range(4)}
    assert min(shares) >= 3 if policy in DRAWN else shares == {10}


# -- limits ---------------------------------------------------------------------------------------------------------

HOLDING = [name for name in POLICIES if build_policy(name, RouterConfig().settings("period")).holding]


@pytest.mark.parametrize("policy", HOLDING)
def test_with_perfect_predictions_no_engine_ever_evicts(world, make_device, policy):
    """Exact peaks at exact ends: what was admitted stays, in the engines' own books."""
    played = world(policy, devices=[make_device("g0", 6, 220), make_device("g1", 4, 300)])
    rng = np.random.default_rng(5)
    for _ in range(120):
        for _ in range(rng.poisson(0.7)):
            tokens = int(rng.integers(1, 40))
            played.arrive(int(rng.integers(0, 60)), tokens, tokens)
        played.tick()
        for engine in played.engines.values():
            assert len(engine.decoded) + len(engine.fifo) <= engine.slots
            assert engine.kv(played.requests) <= engine.kv_tokens
    assert played.preemptions == 0
    assert len(played.ended) > 50


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - set(HOLDING)))
def test_immediate_policies_send_everything_on_at_once(router, make_request, policy):
    immediate = router(policy)
    step = immediate.handle(0.0, [Arrived(make_request(f"r{i:02}")) for i in range(40)])
    assert [decision.request.id for decision in step.decisions] == [f"r{i:02}" for i in range(40)]
    assert immediate.ledger.count.sum() == 40
    immediate.check_invariants()


def test_a_bounded_queue_drops_the_least_urgent_then_the_newest(router, make_request, make_device):
    limits = RouterConfig(queue_size=3).limits()
    full = router(devices=[make_device("g0", slots=1)], limits=limits)
    full.handle(0.0, [Arrived(make_request("running"))])
    arrivals = [make_request(f"r{i}", arrival_s=float(i), priority=p) for i, p in enumerate([0, 1, 0, 1, 0])]
    step = full.handle(5.0, [Arrived(request) for request in arrivals])
    assert {(d.request.id, d.reason, d.limit, d.knob) for d in step.decisions} == {
        ("r2", RejectReason.QUEUE_FULL, "queue_size=3", "queue_size"),
        ("r4", RejectReason.QUEUE_FULL, "queue_size=3", "queue_size"),
    }
    assert [entry.request.id for entry in full.queue] == ["r0", "r1", "r3"]
    assert full.counters["rejected"] == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_what_can_run_nowhere_is_rejected_at_once(router, make_request, make_device, policy):
    devices = [
        make_device("g0", kv_tokens=100, models=frozenset({"m"})),
        make_device("g1", kv_tokens=80, stages=frozenset({Stage.MIXED})),
    ]
    small = router(policy, devices=devices)
    cases = [
        (make_request("fits", prompt_tokens=99), None),
        (make_request("too long", prompt_tokens=100), RejectReason.NEVER_FITS),
        (make_request("too long there", prompt_tokens=80, model="n"), RejectReason.NEVER_FITS),
        (make_request("no stage", stage=Stage.DECODE, model="n"), RejectReason.NO_DEVICE),
    ]
    step = small.handle(0.0, [Arrived(request) for request, _ in cases])
    found = {d.request.id: d.reason if isinstance(d, Reject) else None for d in step.decisions}
    assert found == {request.id: reason for request, reason in cases}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_never_fits_is_rejected_once_however_often_it_is_told(router, make_request, make_device, policy):
    routed = router(policy, [make_device(kv_tokens=100)])
    twice = Arrived(make_request("too long", prompt_tokens=200))
    step = routed.handle(0.0, [twice, twice])
    assert [decision.request.id for decision in step.decisions] == ["too long"]
    assert [str(fault) for fault in step.faults] == ["request 'too long' (mixed) is here already; ids must be unique"]
    assert (routed.counters["rejected"], routed.counters["faults"]) == (1, 1)
    assert len(routed.handle(1.0, [twice]).decisions) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_block_rounding_counts_in_what_never_fits(router, make_request, make_device, policy):
    paged = router(policy, devices=[make_device("g0", kv_tokens=320, block_tokens=16)])
    step = paged.handle(0.0, [Arrived(make_request("most", prompt_tokens=304))])
    assert [type(decision) for decision in step.decisions] == [Assign]
    step = paged.handle(0.0, [Arrived(make_request("more", prompt_tokens=305))])
    assert [decision.reason for decision in step.decisions] == [RejectReason.NEVER_FITS]


def test_an_empty_fleet_takes_nothing(router, make_request, make_device):
    bare = router(devices=[make_device("g0")])
    bare.handle(0.0, [Arrived(make_request("r0"))])
    step = bare.handle(1.0, [DeviceLost("g0", 0), Arrived(make_request("r1"))])
    assert [(d.request.id, d.reason) for d in step.decisions] == [("r1", RejectReason.NO_DEVICE)]
    assert [entry.request.id for entry in bare.queue] == ["r0"]  # it waits for the device to come back
    step = bare.handle(2.0, [DeviceJoined(make_device("g0", incarnation=1))])
    assert [(d.key.incarnation, d.key.attempt) for d in step.decisions] == [(1, 1)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_fleet_may_begin_without_devices(router, make_request, make_device, policy):
    bare = router(policy, devices=[])
    step = bare.handle(0.0, [Arrived(make_request("r0"))])
    assert [d.reason for d in step.decisions] == [RejectReason.NO_DEVICE]
    step = bare.handle(1.0, [DeviceJoined(make_device("g0")), Arrived(make_request("r1"))])
    assert [d.key.device_id for d in step.decisions] == ["g0"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_requests_of_a_lost_device_come_back_once(router, make_request, policy):
    losing = router(policy)
    step = losing.handle(0.0, [Arrived(make_request(f"r{i}", predicted=5.0)) for i in range(6)])
    on = [d.key for d in step.decisions if d.key.device_id == "g1"]
    assert on
    step = losing.handle(1.0, [DeviceLost("g1", 0), Finished(on[0], 5), DeviceLost("g1", 0)])
    losing.check_invariants()
    assert len(step.faults) == 1  # the device is not there a second time
    assert losing.counters["requeued"] == len(on)
    assert losing.counters["stale_events"] == 1
    again = [d.key for d in step.decisions] + [AssignmentKey(*e.request.key, "", 0, e.attempt) for e in losing.queue]
    assert sorted((key.request_id, key.attempt) for key in again) == sorted((key.request_id, 1) for key in on)


def test_capacity_changes_take_effect_in_time(router, make_request, make_device):
    resized = router(devices=[make_device("g0", slots=1, kv_tokens=1000)])
    arrivals = [Arrived(make_request(f"r{i}")) for i in range(4)]
    step = resized.handle(0.0, [*arrivals, CapacityChanged("g0", 7.0, 3, 1000), CapacityChanged("g0", 7.0, 2, 1000)])
    assert len(step.decisions) == 1
    assert step.next_wake_s == 7.0
    assert len(resized.handle(6.9, []).decisions) == 0
    assert len(resized.handle(7.0, []).decisions) == 1  # of two changes for one time, the one told last holds


def test_external_load_takes_room(router, make_request, make_device):
    shared = router(devices=[make_device("g0", slots=3)])
    step = shared.handle(0.0, [ExternalLoad("g0", 2, 100), *(Arrived(make_request(f"r{i}")) for i in range(3))])
    assert len(step.decisions) == 1
    assert len(shared.handle(1.0, [ExternalLoad("g0", 0, 0)]).decisions) == 2


# -- faults ---------------------------------------------------------------------------------------------------------


def keys_of(router):
    return [key for key, _ in router.ledger]


@pytest.mark.parametrize("policy", HOLDING)
@pytest.mark.parametrize("room", [True, False])
def test_what_a_lost_device_held_is_offered_to_the_others_once_however_late(
    router, make_device, make_request, policy, room
):
    """It ran rather than waited, so what is past the bound for it is not its wait."""
    losing = router(policy, [make_device("g0", 1), make_device("g1", 1)], rejects="max_wait", max_wait_s=20.0)
    told = losing.handle(0.0, [Arrived(make_request(name, predicted=500.0)) for name in ("a", "b")])
    held, other = (decision.key for decision in told.decisions)
    losing.handle(1.0, [Started(held), Started(other)])
    ended = [Finished(other, 300)] if room else []
    step = losing.handle(900.0, [*ended, DeviceLost(held.device_id, 0)])
    if room:
        assert [(d.key.request_id, d.key.device_id) for d in step.decisions] == [(held.request_id, other.device_id)]
        return
    assert step.decisions == ()
    assert step.next_wake_s <= 901.0
    assert losing.explain(900.0, held.request_id)[0].reason is WaitReason.REJECTED_NEXT
    (decision,) = losing.handle(step.next_wake_s, []).decisions
    assert (decision.request.id, decision.reason) == (held.request_id, RejectReason.MAX_WAIT)
    (decision,) = losing.handle(902.0, [ReplicaRefused(other, "full")]).decisions  # which could go on for ever
    assert (decision.request.id, decision.reason) == (other.request_id, RejectReason.MAX_WAIT)


FAULTS = {
    "running already": lambda r: Arrived(r.ledger.request(keys_of(r)[0])),
    "waits already": lambda r: Arrived(r.queue[0].request),
    "joined already": lambda r: DeviceJoined(r.ledger.devices[0]),
    "capacity of an unknown device": lambda r: CapacityChanged("g9", 1.0, 4, 100),
    "negative capacity": lambda r: CapacityChanged("g0", 1.0, -1, 100),
    "capacity at no time": lambda r: CapacityChanged("g0", float("nan"), 4, 100),
    "lost and unknown": lambda r: DeviceLost("g9", 0),
    "observed and unknown": lambda r: EngineObserved("g9", 1, 1, 1, 1.0, 0.0),
    "observed below nothing": lambda r: EngineObserved("g0", -1, 1, 1, 1.0, 0.0),
    "observed in the future": lambda r: EngineObserved("g0", 1, 1, 1, 1.0, -1.0),
    "external load below nothing": lambda r: ExternalLoad("g0", -1, 100),
    "progress without counts": lambda r: Progressed((keys_of(r)[0],), np.array([1, 2])),
    "progress below nothing": lambda r: Progressed((keys_of(r)[0],), np.array([-1])),
    "progress of two devices": lambda r: Progressed(
        tuple(next(key for key in keys_of(r) if key.device_id == g) for g in ("g0", "g1")), np.array([1, 1])
    ),
    "evicted below nothing": lambda r: Preempted(keys_of(r)[0], -1),
    "evicted without a number": lambda r: Preempted(keys_of(r)[0], float("nan")),
    "finished without a number": lambda r: Finished(keys_of(r)[0], float("nan")),
    "finished without end": lambda r: Finished(keys_of(r)[0], float("inf")),
    "progress without end": lambda r: Progressed((keys_of(r)[0],), np.array([float("inf")])),
    "capacity without a number": lambda r: CapacityChanged("g0", 1.0, 4, float("nan")),
    "observed without a number": lambda r: EngineObserved("g0", 9, 1, float("nan"), 1.0, 0.0),
    "observed without end": lambda r: EngineObserved("g0", 9, 1, float("inf"), 1.0, 0.0),
    "unknown policy": lambda r: Reconfigure(policy="round_robbin"),
    "no event": lambda r: "Finished",
}


@pytest.mark.parametrize("case", FAULTS)
@pytest.mark.parametrize("policy", ["central_fifo", "online_lp"])
def test_a_faulty_event_comes_back_and_changes_nothing(router, make_request, policy, case):
    busy = router(policy)
    busy.handle(0.0, [Arrived(make_request(f"r{i}")) for i in range(12)])
    busy.handle(3.0, [Started(key) for key in keys_of(busy)])
    before = busy.snapshot()
    step = busy.handle(3.0, [FAULTS[case](busy)])
    busy.check_invariants()
    assert [type(fault) for fault in step.faults] == [EventError]
    assert step.decisions == ()
    after = busy.snapshot()
    assert after.pop("counters").pop("faults") == 1
    assert same(after, {key: value for key, value in before.items() if key != "counters"})


@pytest.mark.parametrize("now_s", [float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_refused_and_changes_nothing(router, make_request, now_s):
    busy = router("online_lp")
    busy.handle(0.0, [Arrived(make_request(f"r{i}")) for i in range(12)])
    before = busy.snapshot()
    with pytest.raises(EventError, match=r"now_s is (nan|inf); expected a finite number"):
        busy.handle(now_s, [Arrived(make_request("late"))])
    assert same(busy.snapshot(), before)


def test_events_beside_a_faulty_one_are_taken_in(router, make_request):
    fresh = router()
    step = fresh.handle(0.0, [Arrived(make_request("r0")), DeviceLost("g9", 0), Arrived(make_request("r1"))])
    assert [decision.request.id for decision in step.decisions] == ["r0", "r1"]
    assert "g9" in str(step.faults[0])


def test_an_unknown_policy_lists_the_known_ones(router):
    with pytest.raises(PolicyError, match=r"did you mean 'round_robin'.*central_fifo"):
        router("round_robbin")


# -- what a policy is told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["online_lp", "online_lp_paper"])
def test_a_change_of_the_arrival_rate_is_found_counted_and_what_came_before_forgotten(router, policy):
    rng = np.random.default_rng(0)
    slow, fast = np.cumsum(rng.exponential(8.0, 200)), np.cumsum(rng.exponential(1.0, 60))
    built = router(policy, quick=False)
    found_s = None
    for i, time_s in enumerate([*slow, *(slow[-1] + fast)]):
        step = built.handle(time_s, [Arrived(Request(f"r{i:03d}", time_s, 10, 1.0))])
        for decision in step.decisions:
            built.handle(time_s, [Finished(decision.key, 1)])
        if built.counters["rate_changes"]:
            found_s = found_s or time_s
    assert built.counters["rate_changes"] == 1
    assert slow[-1] < found_s < slow[-1] + fast[-1]
    kept = built.policy.snapshot()
    starts = kept["history"]["times_s"] if policy == "online_lp" else kept["prices"]["columns"][:, Column.START]
    assert starts.min() > slow[-1] - 40


@pytest.mark.parametrize("policy", ["online_lp", "online_lp_paper"])
def test_after_a_failure_of_the_policy_arrivals_are_not_told_again(router, make_request, monkeypatch, policy):
    built = router(policy)
    check = built._check

    def fail(decisions):
        raise PolicyError("no")

    monkeypatch.setattr(built, "_check", fail)
    with pytest.raises(PolicyError):
        built.handle(0.0, [Arrived(make_request("a"))])
    monkeypatch.setattr(built, "_check", check)
    step = built.handle(1.0, [])
    assert [decision.request.id for decision in step.decisions] == ["a"]
    history = built.policy.snapshot()["history" if policy == "online_lp" else "arrivals"]
    assert history["seen"] == 1
    built.check_invariants()


def test_a_policy_that_would_have_too_many_price_buckets_is_a_fault(router, make_device):
    held = router("central_fifo", [make_device("g0")], bucket_s=1e-9)
    step = held.handle(0.0, [Reconfigure(policy="online_lp")])
    assert "times bucket_s" in str(step.faults[0])
    assert held.policy.name == "central_fifo"
