"""Explanations against what the next decision does: a request whose reasons on a device are lifted starts there, one
that still has a reason does not, and what is said to start next starts next."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.cli.explain import START_LEGEND
from olp_ray.core.explanation import DeviceAnswer, RequestState, StartRule, WaitReason
from olp_ray.core.policies import POLICIES
from olp_ray.core.prices import build_tables
from olp_ray.core.router import Router
from olp_ray.core.types import (
    Arrived,
    Assign,
    AssignmentKey,
    Device,
    DeviceLost,
    Finished,
    Objective,
    Reconfigure,
    Reject,
    Request,
    Stage,
    Started,
)
from olp_ray.errors import EventError

DOCS = Path(__file__).parents[2] / "docs"
NOW_S = 60.0
CLOSED = {WaitReason.NOT_ELIGIBLE, WaitReason.DEVICE_DRAINING, WaitReason.REJECTED_NEXT, WaitReason.TOO_SMALL}
ROOM = {WaitReason.NO_FREE_SLOT, WaitReason.KV_NOW, WaitReason.KV_LATER}
QUEUE_REASONS = {WaitReason.BEHIND, WaitReason.RESERVED}
HOLDING = [
    name for name in POLICIES if name not in ("round_robin", "random", "least_outstanding", "power_of_two", "least_kv")
]
OBJECTIVE = Objective(0.0, 0.01, 0.0, 0.1, 1.0, 1.0, 100.0, 49.0)


@dataclasses.dataclass(frozen=True)
class Case:
    """One moment of one router, so plain that any part of it can be lifted."""

    policy: str
    devices: tuple[Device, ...]
    draining: frozenset[str]
    residents: tuple[tuple[str, int, int, int], ...]  # device, prompt, predicted, decoded tokens
    waiting: tuple[Request, ...]
    slot_price: tuple[float, ...]
    backlog: tuple[int, ...]  # prompt tokens sent to each device at this moment
    gate_scale: float = 0.7
    reservation: bool = True
    rejects: str = "never"
    regular_price: float = 0.02

    def router(self, make_settings, limits):
        options = {"gate_scale": self.gate_scale, "reservation": self.reservation, "guard": 0.5}
        options["regular_price"] = self.regular_price
        plain = make_settings(OBJECTIVE, quick=False, rejects=self.rejects, **options)
        paper = dataclasses.replace(plain.paper_lp, reward_normaliser="none", horizon_s=500.0)
        router = Router(self.devices, self.policy, dataclasses.replace(plain, paper_lp=paper), limits, seed=0)
        self._hold(router)
        self._price(router, plain.online_lp)
        for device_id in self.draining:
            router.ledger.drain(device_id)
        for request in self.waiting:
            router.queue.add(request, 0)
        return router

    def _hold(self, router):
        for i, (device_id, prompt, predicted, decoded) in enumerate(self.residents):
            request = Request(f"held{i}", 0.0, prompt, float(predicted))
            key = AssignmentKey(request.id, Stage.MIXED, device_id, 0, 0)
            router.ledger.reserve(key, request, 0.0)
            router.ledger.start(key, 0.0)
            router.ledger.progress([key], np.array([decoded]), NOW_S)
        for device, tokens in zip(self.devices, self.backlog, strict=True):
            if tokens:
                router.ledger.prefill.add(router.ledger.row(device.id), float(tokens), NOW_S)
        router.restore(router.snapshot())  # so that the router knows of its residents

    def _price(self, router, constants):
        state, ids = router.snapshot(), [device.id for device in self.devices]
        if self.policy == "online_lp":
            prices = np.zeros((len(ids), 2, state["policy"]["prices"]["tables"].shape[2] - 1))
            prices[:, 0] = np.array(self.slot_price)[:, None]
            state["policy"]["prices"] |= {
                "device_ids": ids,
                "tables": build_tables(prices, constants.bucket_s),
                "base_price": 0.5,
                "index": int(NOW_S // constants.update_s),
                "grid": int(NOW_S // constants.bucket_s),
            }
            router.restore(state)
        if self.policy == "online_lp_paper":
            router.policy.prices.follow(ids, 1.0 / max(device.kv_tokens for device in self.devices))
            router.policy.prices.prices[:, 0] = np.array(self.slot_price)[:, None]
            router.restore(router.snapshot() | {"policy": router.policy.snapshot() | {"updated": int(NOW_S)}})

    def without(self, reasons, device_id):
        """The same moment with these reasons lifted on one device."""
        lifted, g = self, [device.id for device in self.devices].index(device_id)
        device = self.devices[g]
        if WaitReason.NO_FREE_SLOT in reasons:
            device = dataclasses.replace(device, slots=device.slots + 50)
        if {WaitReason.KV_NOW, WaitReason.KV_LATER, WaitReason.TOO_SMALL} & set(reasons):
            device = dataclasses.replace(device, kv_tokens=10**7)
        if WaitReason.NOT_ELIGIBLE in reasons:
            device = dataclasses.replace(device, models=frozenset())
        lifted = dataclasses.replace(lifted, devices=(*self.devices[:g], device, *self.devices[g + 1 :]))
        if WaitReason.DEVICE_DRAINING in reasons:
            lifted = dataclasses.replace(lifted, draining=self.draining - {device_id})
        if WaitReason.PREFILL_BUSY in reasons:
            lifted = dataclasses.replace(lifted, backlog=(*self.backlog[:g], 0, *self.backlog[g + 1 :]))
        if WaitReason.PRICE in reasons:
            price = (*self.slot_price[:g], 0.0, *self.slot_price[g + 1 :])
            lifted = dataclasses.replace(lifted, slot_price=price)
        if WaitReason.REJECTED_NEXT in reasons:
            lifted = dataclasses.replace(lifted, rejects="never")
        return lifted


requests = st.builds(
    lambda i, waited, prompt, length, model: Request(f"r{i}", NOW_S - waited, prompt, float(length), model=model),
    st.integers(0, 99),
    st.integers(0, 58),
    st.integers(1, 400),
    st.integers(1, 90),
    st.sampled_from(["", "m"]),
)


@st.composite
def cases(draw, policies=HOLDING):
    models = st.sampled_from([frozenset(), frozenset({"m"}), frozenset({"other"})])
    devices = tuple(
        Device(
            f"g{i}",
            draw(st.integers(1, 5)),
            draw(st.integers(200, 1200)),
            1.0,
            models=draw(models),
            prefill_tokens_per_s=draw(st.sampled_from([float("inf"), 1000.0])),
        )
        for i in range(draw(st.integers(1, 3)))
    )
    held = []
    for device in devices:
        for _ in range(draw(st.integers(0, device.slots))):
            predicted = draw(st.integers(5, 90))
            held.append((device.id, draw(st.integers(1, 250)), predicted, draw(st.integers(1, predicted))))
    finite = [np.isfinite(device.prefill_tokens_per_s) for device in devices]
    return Case(
        draw(st.sampled_from(policies)),
        devices,
        frozenset(device.id for device in devices if draw(st.integers(0, 5)) == 0),
        tuple(held),
        tuple(draw(st.lists(requests, min_size=1, max_size=6, unique_by=lambda r: r.id))),
        tuple(draw(st.sampled_from([0.0, 0.01, 0.1, 3.0])) for _ in devices),
        tuple(draw(st.sampled_from([0, 500])) if slow else 0 for slow in finite),
        rejects=draw(st.sampled_from(["never", "deadline"])),
    )


many = settings(max_examples=100, deadline=None)


def starts(step):
    return {d.request.id: d.key.device_id for d in step.decisions if isinstance(d, Assign)}


@many
@given(case=cases())
def test_what_starts_or_is_rejected_next_is_what_the_next_decision_does(case, make_settings, limits):
    router = case.router(make_settings, limits)
    before = router.snapshot()
    answers = [a for a in router.explain(NOW_S) if a.state == RequestState.WAITING]
    assert [a.request_id for a in answers] == [entry.request.id for entry in router.queue]
    assert str(router.snapshot()) == str(before)
    step = router.handle(NOW_S, [])
    ready = {a.request_id for a in answers if a.reason == WaitReason.POLICY_NOT_READY}
    assert ready == set(starts(step))
    assert {a.request_id for a in answers if a.start_rule == StartRule.NEXT_DECISION} == ready
    rejected = {d.request.id for d in step.decisions if isinstance(d, Reject)}
    assert {a.request_id for a in answers if a.rank is None} == rejected
    for answer in answers:
        if answer.request_id in ready:
            assert answer.on(starts(step)[answer.request_id]).reasons == ()
        else:
            assert all(found.reasons for found in answer.devices)
            assert answer.reason in {reason for found in answer.devices for reason in found.reasons}


def gone_below_the_guard(reasons):
    """What else is lifted where lifting the reasons gives a device more room: it may not be busy any more."""
    gone = {WaitReason.PRICE, WaitReason.REJECTED_NEXT} if ROOM & set(reasons) else set()
    return gone | (
        {WaitReason.REJECTED_NEXT} if {WaitReason.DEVICE_DRAINING, WaitReason.TOO_SMALL} & set(reasons) else set()
    )


@many
@given(case=cases())
def test_a_request_starts_once_all_its_reasons_on_a_device_are_lifted(case, make_settings, limits):
    """The reasons of the queue are lifted with the others that wait; all others are the request's own. It may then
    start on another device that had no other reason, or is as cheap."""
    for answer in left_waiting(case.router(make_settings, limits)):
        alone = dataclasses.replace(case, waiting=tuple(r for r in case.waiting if r.id == answer.request_id))
        for found in answer.devices:
            lifted = alone.without(found.reasons, found.device_id).router(make_settings, limits)
            (again,) = lifted.explain(NOW_S, answer.request_id)
            if CLOSED & set(found.reasons) and again.on(found.device_id).reasons == (WaitReason.PRICE,):
                continue  # the gate was not looked at
            assert again.on(found.device_id).reasons == ()
            assert answer.request_id in starts(lifted.handle(NOW_S, []))
            for kept in set(found.reasons) - QUEUE_REASONS - gone_below_the_guard(found.reasons):
                held = alone.without(set(found.reasons) - {kept}, found.device_id).router(make_settings, limits)
                assert starts(held.handle(NOW_S, [])).get(answer.request_id) != found.device_id, (found, kept)


@many
@given(case=cases(policies=["online_lp", "sjf_reservation"]))
def test_the_first_that_a_reservation_stops_starts_without_it(case, make_settings, limits):
    """If nothing else stops it there. Those before it, whom no reservation stops, start as they did."""
    kept_out = [
        answer
        for answer in left_waiting(case.router(make_settings, limits))
        if any(WaitReason.RESERVED in found.reasons for found in answer.devices)
    ]
    if not kept_out:
        return
    first = min(kept_out, key=lambda answer: answer.rank)
    if not any(found.reasons == (WaitReason.RESERVED,) for found in first.devices):
        return
    policy = {"online_lp": "online_lp", "sjf_reservation": "central_sjf"}[case.policy]
    freed = dataclasses.replace(case, policy=policy, reservation=False).router(make_settings, limits)
    assert first.request_id in starts(freed.handle(NOW_S, []))


def left_waiting(router):
    """Explanations of what the next decision leaves waiting or rejects."""
    return [
        answer
        for answer in router.explain(NOW_S)
        if answer.state == RequestState.WAITING and answer.reason != WaitReason.POLICY_NOT_READY
    ]


@many
@given(case=cases(), most=st.integers(0, 12))
def test_a_bound_keeps_the_first(case, most, make_settings, limits):
    router = case.router(make_settings, limits)
    assert router.explain(NOW_S, most=most) == router.explain(NOW_S)[:most]


def one(router, request_id):
    (answer,) = router.explain(NOW_S, request_id)
    return answer


def moment(policy="central_fifo_skip", **fields):
    plain = {
        "devices": (Device("g0", 4, 1000, 1.0),),
        "draining": frozenset(),
        "residents": (),
        "waiting": (Request("r", NOW_S - 5, 10, 20.0),),
        "slot_price": (0.0,),
        "backlog": (0,),
    }
    return Case(policy, **{**plain, **fields})


MOMENTS = {
    WaitReason.POLICY_NOT_READY: moment(),
    WaitReason.NO_FREE_SLOT: moment(residents=(("g0", 10, 50, 5),) * 4),
    WaitReason.KV_NOW: moment(residents=(("g0", 900, 50, 5),), waiting=(Request("r", 0.0, 95, 20.0),)),
    WaitReason.KV_LATER: moment(residents=(("g0", 900, 50, 5),), waiting=(Request("r", 0.0, 60, 20.0),)),
    WaitReason.DEVICE_DRAINING: moment(draining=frozenset({"g0"})),
    WaitReason.NOT_ELIGIBLE: moment(
        devices=(Device("g0", 4, 1000, 1.0, models=frozenset({"a"})),),
        waiting=(Request("r", 0.0, 10, 20.0, model="b"),),
    ),
    WaitReason.PREFILL_BUSY: moment(devices=(Device("g0", 4, 1000, 1.0, prefill_tokens_per_s=100.0),), backlog=(50,)),
    WaitReason.PRICE: moment("online_lp", residents=(("g0", 10, 50, 5),) * 3, slot_price=(3.0,)),
    WaitReason.BEHIND: moment(
        "central_fifo",
        residents=(("g0", 900, 50, 5),),
        waiting=(Request("big", 0.0, 95, 20.0), Request("r", 1.0, 1, 2.0)),
    ),
    WaitReason.RESERVED: moment(
        "sjf_reservation",
        residents=(("g0", 900, 50, 5),),
        waiting=(Request("big", 0.0, 95, 20.0), Request("r", 1.0, 1, 46.0)),
    ),
    WaitReason.REJECTED_NEXT: moment(
        "edf", residents=(("g0", 10, 50, 5),) * 3, rejects="deadline", waiting=(Request("r", NOW_S - 100, 10, 20.0),)
    ),
}


@pytest.mark.parametrize("reason", MOMENTS)
def test_each_reason(reason, make_settings, limits):
    answer = one(MOMENTS[reason].router(make_settings, limits), "r")
    assert answer.reason == reason
    if reason != WaitReason.POLICY_NOT_READY:
        assert answer.devices[0].reasons == (reason,)


def test_without_devices_the_reason_is_their_loss(make_settings, limits):
    router = moment().router(make_settings, limits)
    router.handle(NOW_S, [])
    router.handle(NOW_S, [DeviceLost("g0", 0)])
    answer = one(router, "r")
    assert (answer.state, answer.reason, answer.devices) == ("waiting", WaitReason.DEVICE_LOST, ())
    assert {*MOMENTS, answer.reason, WaitReason.TOO_SMALL} == set(WaitReason)


@pytest.mark.parametrize("rejects", ["never", "max_wait", "deadline"])
@pytest.mark.parametrize("policy", POLICIES)
def test_without_devices_what_the_next_decision_rejects_is_told(policy, rejects, make_settings, limits):
    case = moment(policy, waiting=(Request("r", NOW_S - 5, 10, 20.0), Request("old", -9e6, 10, 20.0)), rejects=rejects)
    router = case.router(make_settings, limits)
    for device in case.devices:
        router.ledger.remove(device.id)
    answers = {answer.request_id: answer for answer in router.explain(NOW_S)}
    rejected = {decision.request.id for decision in router.handle(NOW_S, []).decisions}
    assert {name for name, answer in answers.items() if answer.reason == WaitReason.REJECTED_NEXT} == rejected
    assert bool(rejected) == (rejects != "never" and router.policy.holding)
    others = {answer.reason for name, answer in answers.items() if name not in rejected}
    assert others == {WaitReason.DEVICE_LOST}


def test_a_device_too_small_is_named_beside_one_that_is_only_full(make_settings, limits):
    """The small device is empty, and cutting the prediction to its size would send the request there."""
    devices = (Device("small", 4, 100, 1.0), Device("large", 1, 1000, 1.0))
    case = moment(
        devices=devices,
        residents=(("large", 10, 50, 5),),
        waiting=(Request("r", NOW_S - 5, 60, 60.0),),
        slot_price=(0.0, 0.0),
        backlog=(0, 0),
    )
    answer = one(case.router(make_settings, limits), "r")
    assert [found.reasons for found in answer.devices] == [(WaitReason.TOO_SMALL,), (WaitReason.NO_FREE_SLOT,)]
    assert answer.reason == WaitReason.NO_FREE_SLOT


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - set(HOLDING)))
def test_immediate_policies_answer_too(policy, make_settings, limits):
    router = moment(policy, residents=(("g0", 10, 50, 5),) * 4).router(make_settings, limits)
    assert (one(router, "r").reason, one(router, "r").fits_on) == (WaitReason.POLICY_NOT_READY, ("g0",))
    router.ledger.drain("g0")
    assert (one(router, "r").reason, one(router, "r").start_rule) == (WaitReason.DEVICE_DRAINING, StartRule.UNKNOWN)


residents = st.lists(st.tuples(st.integers(1, 250), st.integers(2, 60), st.integers(1, 59)), min_size=1, max_size=4)


@many
@given(held=residents, prompt=st.integers(1, 400), length=st.integers(1, 90), policy=st.sampled_from(HOLDING))
def test_the_first_starts_when_it_is_expected_to(held, prompt, length, policy, make_settings, limits):
    """Residents end as planned and nothing else comes: iteration by iteration it starts at that time, not before."""
    request = Request("r", NOW_S - 1, prompt, float(length))
    residents = tuple(("g0", s, max(o, theta + 1), theta) for s, o, theta in held)
    case = moment(policy, residents=residents, waiting=(request,))
    router = case.router(make_settings, limits)
    answer = one(router, "r")
    if answer.reason == WaitReason.POLICY_NOT_READY:
        assert answer.expected_start_s == NOW_S
        return
    assert answer.start_rule in (StartRule.EARLIEST_FIT, StartRule.RESERVATION)
    ends = {f"held{i}": NOW_S + o - theta for i, (_, _, o, theta) in enumerate(residents)}
    now_s = NOW_S
    while not starts(router.handle(now_s, [Finished(k, 1) for k, r in list(router.ledger) if ends[r.id] == now_s])):
        now_s += 1.0
        assert now_s < NOW_S + 200
    assert now_s == answer.expected_start_s


@pytest.mark.parametrize("policy", ["online_lp", "online_lp_paper", "central_sjf"])
def test_requests_on_devices_are_valued_as_they_were_when_assigned(policy, make_settings, limits):
    router = moment(policy, slot_price=(0.01,)).router(make_settings, limits)
    waiting = one(router, "r")
    (decision,) = router.handle(NOW_S, []).decisions
    assigned = one(router, "r")
    assert (assigned.state, assigned.device_id, assigned.waited_s) == (RequestState.ASSIGNED, "g0", 5.0)
    assert (assigned.reward, assigned.devices[0].price) == (waiting.reward, waiting.devices[0].price)
    router.handle(NOW_S, [Started(decision.key)])
    (running,) = router.explain(NOW_S + 7, "r")
    assert (running.state, running.decoded_tokens, running.planned_end_s) == (RequestState.RUNNING, 7.0, NOW_S + 20)
    assert (running.start_rule, running.waited_s) == (StartRule.ALREADY_THERE, 5.0)
    if policy == "online_lp":
        assert running.reward == waiting.reward
    assert router.explain(NOW_S, "nobody") == ()


@pytest.mark.parametrize("policy", ["online_lp", "online_lp_paper"])
def test_a_request_on_a_device_is_valued_the_same_whoever_else_is_asked_for(policy, make_settings, limits):
    """The others are late and worth more, which counts where a queue is looked at as a whole; nothing is recorded."""
    settings = make_settings(OBJECTIVE, quick=False, calm_urgency_s=300.0, calm_late_requests=1.0)
    router = Router((Device("g0", 9, 4000, 1.0),), policy, settings, limits, seed=0)
    long_ago = [Request(f"r{i}", NOW_S - 50 * i, 10, 20.0 + 9 * i) for i in range(4)]
    assert len(starts(router.handle(NOW_S, [Arrived(request) for request in long_ago]))) == 4
    router.handle(NOW_S, [Reconfigure(OBJECTIVE)])
    together = router.explain(NOW_S)
    assert [one(router, answer.request_id) for answer in together] == list(together)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_of_the_last_times_is_explained_on_its_device(policy, make_settings, limits):
    router = Router((Device("g0", 9, 4000, 1.0),), policy, make_settings(), limits, seed=0)
    router.handle(1e12, [Arrived(Request("r", 1e12, 10, 20.0))])
    for now_s in (1e12 + 100.0, -2e12):
        (answer,) = router.explain(now_s)
        assert (answer.state, answer.waited_s) == (RequestState.ASSIGNED, 0.0)


@pytest.mark.parametrize("now_s", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_time_that_is_none_is_one_error(policy, now_s, make_settings, limits):
    router = moment(policy, residents=(("g0", 10, 50, 5),)).router(make_settings, limits)
    with pytest.raises(EventError, match=r"now_s is -?(nan|inf); expected a finite number"):
        router.explain(now_s)


@many
@given(case=cases(policies=["online_lp", "online_lp_paper"]))
def test_prices_by_resource_make_the_price_that_decides(case, make_settings, limits):
    router = case.router(make_settings, limits)
    if case.policy == "online_lp":
        cost = router.policy.appraise(router._view(), NOW_S).starts["cost"]
    else:
        worth = router.policy.worth(router._view(), NOW_S)
        cost = worth.slot_price + worth.kv_price
    closed = CLOSED - {WaitReason.REJECTED_NEXT}
    for j, answer in enumerate(a for a in router.explain(NOW_S) if a.state == RequestState.WAITING):
        assert [found.price for found in answer.devices] == pytest.approx(cost[:, j].tolist(), abs=1e-12)
        margins = [found.margin for found in answer.devices if not closed & set(found.reasons)]
        assert answer.option_value == max([0.0, *margins])


def test_the_planned_start_is_no_bound_and_is_not_called_one(make_settings, limits):
    """The one resident is planned to leave in 45 steps, and leaves now."""
    case = moment(devices=(Device("g0", 1, 1000, 1.0),), residents=(("g0", 10, 50, 5),))
    router = case.router(make_settings, limits)
    planned_s = one(router, "r").on("g0").earliest_start_s
    gone = Finished(AssignmentKey("held0", Stage.MIXED, "g0", 0, 0), 6)
    assert starts(router.handle(NOW_S + 1, [gone])) == {"r": "g0"}
    assert planned_s > NOW_S + 1
    said = " ".join((DeviceAnswer.__doc__ + START_LEGEND + (DOCS / "deploy.md").read_text()).split())
    assert ("lower bound" in said, said.count("It is no bound") + said.count("That is no bound")) == (False, 2)


def test_a_key_that_is_no_number_is_left_out(make_settings, limits):
    """Core settings may have no regular price; then what costs nothing has an infinite key."""
    free = dataclasses.replace(moment("online_lp"), regular_price=0.0)
    answer = one(free.router(make_settings, limits), "r")
    assert (answer.key, answer.not_waiting > 0) == (None, True)
    json.dumps(dataclasses.asdict(answer), allow_nan=False)


@pytest.mark.parametrize("reason", MOMENTS)
def test_answers_are_plain_data(reason, make_settings, limits):
    answer = dataclasses.asdict(one(MOMENTS[reason].router(make_settings, limits), "r"))
    assert json.loads(json.dumps(answer, allow_nan=False))["reason"] == str(reason)
