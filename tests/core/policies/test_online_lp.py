"""The worked example of the algorithm, and what gate, guard, reservation, starvation bound and rejection do alone."""

import dataclasses
import math

import numpy as np
import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.core.explanation import StartRule, WaitReason
from olp_ray.core.forecast import Forecast
from olp_ray.core.kernels.records import SLOT_PRICE
from olp_ray.core.prices import PerDevice, PriceBlock, PriceScalars, build_tables, pick_winners
from olp_ray.core.router import Router
from olp_ray.core.types import (
    Arrived,
    Assign,
    AssignmentKey,
    Device,
    DeviceLost,
    EngineObserved,
    Finished,
    IterationModel,
    PricesReady,
    Reconfigure,
    RejectReason,
    Request,
    Stage,
)
from olp_ray.sim import simulate
from olp_ray.workload import SimRequest

NOW_S = 60.0
FACTOR = 0.7  # all reward is in deadlines, so the gate charges gate_scale of the price


@pytest.fixture
def at_prices(make_settings, make_objective, limits):
    """Builds a router at NOW_S whose residents and prices are given: residents {device: [(s, o, theta)]}, prices
    {device: (slot, KV)}, flat."""

    def build(devices, residents, prices, base_price=0.5, waiting=(), objective=None, **overrides):
        chosen = objective or make_objective(tail_e2e=1, tail_ttft=1, t1=100, t2=49)
        settings = make_settings(chosen, quick=False, **{"gate_scale": FACTOR, **overrides})
        router = Router(devices, "online_lp", settings, limits, seed=0)
        for device_id, held in residents.items():
            for i, (prompt, predicted, decoded) in enumerate(held):
                request = Request(f"{device_id}-{i}", 0.0, prompt, float(predicted))
                key = AssignmentKey(request.id, Stage.MIXED, device_id, 0, 0)
                router.ledger.reserve(key, request, 0.0)
                router.ledger.start(key, 0.0)
                router.ledger.progress([key], np.array([decoded]), NOW_S)
        state = router.snapshot()
        buckets = state["policy"]["prices"]["tables"].shape[2] - 1
        flat = np.array([prices[device.id] for device in devices])[:, :, None] * np.ones(buckets)
        state["policy"]["prices"] |= {
            "device_ids": [device.id for device in devices],
            "tables": build_tables(flat, settings.online_lp.bucket_s),
            "base_price": base_price,
            "index": int(NOW_S // settings.online_lp.update_s),
            "grid": int(NOW_S // settings.online_lp.bucket_s),
        }
        router.restore(state)
        router.check_invariants()
        for request in waiting:
            router.queue.add(request, 0)
        return router

    return build


def request(name, prompt, length, waited_s, **fields):
    return Request(name, NOW_S - waited_s, prompt, float(length), **fields)


def placed(step):
    return {d.request.id: d.key.device_id for d in step.decisions if isinstance(d, Assign)}


# -- the worked example -----------------------------------------------------------------------------------------------

WAITING = (request("a", 100, 32, 40), request("b", 300, 64, 30), request("c", 200, 16, 60))
EXAMPLE = {
    "residents": {"g0": [(100, 100, 60)] * 3, "g1": [(100, 100, 90)] * 3},
    "prices": {"g0": (0.05, 0.0), "g1": (0.02, 5e-5)},
    "waiting": WAITING,
}
# name: reward, (c0, c1), (V - f c0, V - f c1), A, key, level
TABLE = {
    "a": (2, (1.6, 0.8256), (0.88, 1.42208), 0.516534, 0.547919, -7),
    "b": (2, (3.2, 2.3424), (-0.24, 0.36032), 0.771830, 0.284296, -14),
    "c": (1, (0.8, 0.4864), (0.44, 0.65952), 0.100259, 0.179136, -19),
}


def example_fleet(slots=4):
    return [Device("g0", 4, 1000, 1.0), Device("g1", slots, 1000, 1.0)]


@pytest.mark.parametrize("name", TABLE)
def test_worth_and_price_of_the_worked_example(at_prices, name):
    reward, costs, gated, lost, key, level = TABLE[name]
    (answer,) = at_prices(example_fleet(), **EXAMPLE).explain(NOW_S, name)
    waiting = next(r for r in WAITING if r.id == name)
    prices = [found.price for found in answer.devices]
    assert [found.reward for found in answer.devices] == [reward, reward]
    assert answer.reward == reward
    assert prices == pytest.approx(costs, rel=1e-12)
    assert [reward - FACTOR * c for c in prices] == pytest.approx(gated, rel=1e-9)
    assert answer.option_value == pytest.approx(max(0.0, reward - min(costs)))
    assert answer.key == pytest.approx(key, abs=5e-7)
    assert answer.level == level
    assert answer.not_waiting == pytest.approx(lost, abs=5e-7)
    s, n = waiting.prompt_tokens, waiting.predicted_output_tokens
    regular = 0.5 * (n / 4 + (s * n + n * n / 2) / 1000)
    assert answer.key * (min(costs) + 0.02 * regular) == pytest.approx(lost, abs=5e-7)


def test_decisions_of_the_worked_example(at_prices):
    router = at_prices(example_fleet(), **EXAMPLE)
    assert placed(router.handle(NOW_S, [])) == {"a": "g1", "c": "g0"}
    router.check_invariants()
    assert [entry.request.id for entry in router.queue] == ["b"]


def test_peaks_and_reservation_of_the_worked_example(at_prices):
    """Exact peaks: a on g1 makes 3 * 200 + 110 = 710 tokens when its residents end, in 10 steps, where a forecast by
    buckets says 716; so b fits there in 10 steps."""
    router = at_prices(example_fleet(), **EXAMPLE)
    forecast = Forecast(router.ledger, router.calibration, NOW_S, 0.7, math.inf)
    assert forecast.kv_now[1] + 100 + 1 + 3 == 674  # the engine's own check of a
    forecast.admit(1, 100.0, 32.0)
    assert forecast.kv_now[1] + (3 + 1) * 10 == 710
    assert not forecast.fits(1, np.array([300.0]), np.array([64.0]))[0]
    assert forecast.earliest_fit(1, 300.0, 64.0) == 10
    forecast.admit(0, 200.0, 16.0)
    assert forecast.kv_now[0] + 4 == 684  # and that of c
    assert forecast.kv_now[0] + 4 * 16 == 744
    (b,) = router.explain(NOW_S, "b")
    assert (b.reason, b.expected_start_s, b.start_rule) == (WaitReason.BEHIND, NOW_S + 10, StartRule.RESERVATION)
    assert b.on("g0").reasons == (WaitReason.PRICE,)


def test_one_price_step_of_the_worked_example():
    """Demand 6 on 4 slots of which 3 are taken: x = 1.25 and p = .05 + .1 * .125 * 1.25 (one bucket, no KV)."""
    scalars = PriceScalars(16.0, 0.1, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)
    start = np.array([[[0.05], [0.0]]])
    block = PriceBlock([0], start, 0)
    occupied, capacity = np.array([[[3.0], [0.0]]]), np.array([[[4.0], [1e12]]])
    sample = np.zeros((1, 5))
    sample[0, :4] = 0.0, 0.0, 16.0, 6.0
    per_device = PerDevice(occupied, capacity, np.ones(1), np.full(1, -1))
    block.begin(0, np.array(scalars), per_device, sample, np.array([[[2.0], [-1.0], [-1.0], [-1.0]]]))
    bids = block.best(0)
    block.accept(pick_winners([bids], np.array(scalars)))
    tables = block.finish()
    assert tables[0, SLOT_PRICE, 0] == pytest.approx(0.065625, rel=1e-12)


@pytest.mark.parametrize(("reservation", "device_id"), [(True, "g0"), (False, "g1")])
def test_b_keeps_g1_for_ten_steps(at_prices, reservation, device_id):
    """With a fifth slot c would fit on g1, where it is cheaper, but is longer than the ten steps until b fits there."""
    router = at_prices(example_fleet(slots=5), **EXAMPLE, guard=0.5, reservation=reservation)
    assert placed(router.handle(NOW_S, [])) == {"a": "g1", "c": device_id}


def test_what_ends_before_the_reservation_may_use_the_device(at_prices):
    short = (*WAITING[:2], request("c", 200, 10, 60))
    router = at_prices(example_fleet(slots=5), **{**EXAMPLE, "waiting": short}, guard=0.5)
    assert placed(router.handle(NOW_S, [])) == {"a": "g1", "c": "g1"}


# -- gate and guard ---------------------------------------------------------------------------------------------------

DEAR = {"prices": {"g0": (0.2, 0.0)}}


@pytest.mark.parametrize(("length", "starts"), [(14, True), (15, False)])
def test_the_gate_refuses_what_is_not_worth_its_price(at_prices, length, starts):
    """V = 2 against .7 * .2 * length, on a device at the guard."""
    busy = {"g0": [(10, 500, 5)] * 7}
    router = at_prices([Device("g0", 10, 10**5, 1.0)], busy, **DEAR, waiting=[request("r", 5, length, 5)])
    assert bool(placed(router.handle(NOW_S, []))) == starts


@pytest.mark.parametrize("reward_window_s", [2048.0, 3.0])
def test_without_deadlines_there_is_no_gate(at_prices, make_objective, reward_window_s):
    """Nor for what has waited so long that a start earns nothing any more."""
    busy = {"g0": [(10, 500, 5)] * 7}
    objective = make_objective(e2e=1e-9)
    waiting = [request("r", 5, 400, 5)]
    router = at_prices(
        [Device("g0", 10, 10**5, 1.0)],
        busy,
        **DEAR,
        waiting=waiting,
        objective=objective,
        reward_window_s=reward_window_s,
    )
    assert placed(router.handle(NOW_S, [])) == {"r": "g0"}


@pytest.mark.parametrize(("residents", "starts"), [(0, 7), (5, 2), (6, 1), (7, 0), (9, 0)])
def test_below_the_guard_refused_requests_fill_up_to_it(at_prices, residents, starts):
    busy = {"g0": [(10, 500, 5)] * residents}
    waiting = [request(f"r{i}", 5, 40, 5) for i in range(9)]
    router = at_prices([Device("g0", 10, 10**5, 1.0)], busy, **DEAR, waiting=waiting)
    assert len(placed(router.handle(NOW_S, []))) == starts


@pytest.mark.parametrize(("length", "starts"), [(50, True), (51, False)])
def test_refused_requests_respect_reservations(at_prices, length, starts):
    """`big` is worth its price and keeps g0 until its residents end, 50 steps from now."""
    busy = {"g0": [(50, 60, 10)] * 6}
    waiting = [request("big", 800, 10, 5), request("refused", 5, length, 5)]
    router = at_prices([Device("g0", 10, 1000, 1.0)], busy, **DEAR, waiting=waiting)
    assert placed(router.handle(NOW_S, [])) == ({"refused": "g0"} if starts else {})


# -- starvation bound and rejection -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("late", "first"), [(1, "short"), (2, "old")])
def test_the_shortest_goes_first_until_more_than_a_few_are_late(at_prices, late, first):
    waiting = [request("old", 10, 60, 40.0), request("short", 10, 20, 1.0)]
    waiting += [request(f"late{i}", 10, 60, 50.0) for i in range(late)]
    router = at_prices(
        [Device("g1", 1, 1000, 1)],
        {},
        {"g1": (0.001, 0.0)},
        waiting=waiting,
        urgency_s=10.0,
        calm_urgency_s=200.0,
        calm_late_requests=1.0,
    )
    assert next(iter(placed(router.handle(NOW_S, [])))) == first


@pytest.mark.parametrize(("rejects", "reason"), [("deadline", "DEADLINE_PASSED"), ("max_wait", "PRICE")])
def test_who_is_turned_away_in_this_decision_is_not_waiting_late(at_prices, rejects, reason):
    """Neither for what starts first, nor for what is said of it beforehand."""
    kept = [request("old", 10, 60, 40.0), request("short", 10, 20, 1.0)]
    late = [request(f"late{i}", 10, 150, 50.0) for i in range(2)]
    found = []
    for waiting in (kept, kept + late):
        router = at_prices(
            [Device("g1", 1, 1000, 1)],
            {},
            {"g1": (0.01, 0.0)},
            waiting=waiting,
            rejects=rejects,
            urgency_s=10.0,
            calm_urgency_s=200.0,
            calm_late_requests=1.0,
            max_wait_s=45.0,
        )
        keys = [answer(router, name).key for name in ("old", "short")]
        step = router.handle(NOW_S, [])
        turned_away = [d.reason for d in step.decisions if not isinstance(d, Assign)]
        assert turned_away == [RejectReason[reason]] * (len(waiting) - len(kept))
        found.append((keys, placed(step)))
    assert found[0] == found[1]
    assert found[0][1] == {"short": "g1"}


def test_a_request_at_the_bound_goes_first_and_is_not_gated(at_prices):
    busy = {"g0": [(10, 500, 5)] * 9}
    waiting = [request("fresh", 5, 5, 5), request("late", 5, 60, 31)]
    devices = [Device("g0", 10, 10**5, 1.0)]
    router = at_prices(devices, busy, **DEAR, waiting=waiting, max_wait_s=31.0)
    assert placed(router.handle(NOW_S, [])) == {"late": "g0"}
    router = at_prices(devices, busy, **DEAR, waiting=waiting, max_wait_s=32.0)
    assert placed(router.handle(NOW_S, [])) == {"fresh": "g0"}


def test_a_request_goes_first_at_its_own_wake_whatever_sums_round_to(at_prices):
    """63.0 - 60.7 is less than 2.3, and 60.7 + 2.3 is 63.0."""
    wake_s = 60.7 + 2.3
    assert wake_s - 60.7 < 2.3
    busy = {"g0": [(10, 500, 5)] * 9}
    waiting = [Request("late", 60.7, 5, 60.0), Request("fresh", 62.0, 5, 5.0)]
    for now_s, first in ((math.nextafter(wake_s, 0.0), "fresh"), (wake_s, "late")):
        router = at_prices([Device("g0", 10, 10**5, 1.0)], busy, **DEAR, waiting=waiting, max_wait_s=2.3)
        assert placed(router.handle(now_s, [])) == {first: "g0"}


@pytest.mark.parametrize(("length", "rejected"), [(10, False), (11, True)])
def test_at_the_bound_the_price_of_a_fresh_request_decides(at_prices, length, rejected):
    """V = 2 when fresh, against .2 for each token; what waits below the bound is not looked at."""
    busy = {"g0": [(10, 500, 5)] * 9}
    waiting = [request("fresh", 5, 30, 5), request("late", 5, length, 31)]
    devices = [Device("g0", 10, 10**5, 1.0)]
    router = at_prices(devices, busy, **DEAR, waiting=waiting, max_wait_s=31.0, rejects="max_wait")
    (decision,) = router.handle(NOW_S, []).decisions
    assert decision.request.id == "late"
    assert (getattr(decision, "reason", None) is RejectReason.PRICE) == rejected


@pytest.mark.parametrize("slots", [10, 9])
def test_what_came_back_from_a_lost_device_is_offered_before_its_price_counts_at_the_bound(at_prices, slots):
    busy = {"g0": [(10, 500, 5)] * 9}
    devices = [Device("g0", slots, 10**5, 1.0)]
    router = at_prices(devices, busy, **DEAR, max_wait_s=31.0, rejects="max_wait")
    router.queue.add(request("back", 5, 150, 31), 1, came_back=True)
    step = router.handle(NOW_S, [])
    if slots > 9:
        assert placed(step) == {"back": "g0"}
        return
    assert step.decisions == ()
    assert step.next_wake_s <= NOW_S + 1
    (decision,) = router.handle(NOW_S + 1, []).decisions
    assert (decision.request.id, decision.reason) == ("back", RejectReason.PRICE)


def test_a_full_fleet_is_no_excuse_to_wait_beyond_the_bound(at_prices):
    """Too dear: rejected at the bound; worth its price but without room: an E2E threshold later, and woken for."""
    busy = {"g0": [(10, 500, 5)] * 2}
    devices = [Device("g0", 2, 10**5, 1.0)]
    waiting = [request("dear", 5, 11, 31), request("cheap", 5, 10, 31)]
    router = at_prices(devices, busy, **DEAR, waiting=waiting, max_wait_s=31.0, rejects="max_wait")
    step = router.handle(NOW_S, [])
    assert [(d.request.id, d.reason) for d in step.decisions] == [("dear", RejectReason.PRICE)]
    router = at_prices(
        devices, busy, **DEAR, waiting=[request("cheap", 5, 10, 131)], max_wait_s=31.0, rejects="max_wait"
    )
    assert [d.reason for d in router.handle(NOW_S, []).decisions] == [RejectReason.MAX_WAIT]
    router = at_prices(devices, busy, **DEAR, waiting=[request("r", 5, 10, 30)], max_wait_s=31.0, rejects="max_wait")
    assert router.handle(NOW_S, []).next_wake_s == NOW_S + 1
    router = at_prices(devices, busy, **DEAR, waiting=waiting, max_wait_s=31.0)
    assert router.handle(NOW_S, []).decisions == ()


@pytest.mark.parametrize(
    ("rejects", "waited_s", "refused"), [("deadline", 90, True), ("deadline", 89, False), ("max_wait", 90, False)]
)
def test_a_request_past_its_last_deadline_is_rejected(at_prices, rejects, waited_s, refused):
    busy = {"g0": [(10, 500, 5)] * 2}
    devices = [Device("g0", 2, 10**5, 1.0)]
    router = at_prices(devices, busy, **DEAR, waiting=[request("r", 5, 10, waited_s)], rejects=rejects)
    step = router.handle(NOW_S, [])
    assert [d.reason for d in step.decisions] == [RejectReason.DEADLINE_PASSED] * refused


def test_nothing_is_hopeless_without_deadlines(at_prices, make_objective):
    busy, devices = {"g0": [(10, 500, 5)] * 2}, [Device("g0", 2, 10**5, 1.0)]
    options = {"waiting": [request("r", 5, 10, 500)], "objective": make_objective(e2e=1, ttft=1), "max_wait_s": 900.0}
    router = at_prices(devices, busy, **DEAR, **options, rejects="deadline")
    assert router.handle(NOW_S, []).decisions == ()


# -- before prices ----------------------------------------------------------------------------------------------------


def test_the_order_is_fifo_while_there_are_no_prices(at_prices):
    waiting = [request("long", 5, 90, 20), request("short", 5, 5, 10)]
    router = at_prices([Device("g0", 1, 1000, 1.0)], {}, {"g0": (0.0, 0.0)}, base_price=0.0, waiting=waiting)
    assert placed(router.handle(NOW_S, [])) == {"long": "g0"}


def test_prices_stay_zero_before_enough_has_arrived(make_settings, limits):
    router = Router(example_fleet(), "online_lp", make_settings(min_arrivals=8), limits, seed=0)
    for i in range(8):
        step = router.handle(float(4 * i), [Arrived(Request(f"r{i}", 4.0 * i, 10, 20.0))])
        assert (step.price_work is not None) == (i == 7)
        assert (router.policy.prices.base_price > 0) == (i == 7)


def test_stamps_ahead_of_the_clock_do_not_raise_the_price_of_all(make_settings, limits):
    base_price = []
    for ahead_s in (0.0, 1000.0):
        router = Router([Device("g0", 4, 1000, 1.0)], "online_lp", make_settings(), limits, 0)
        for tick in range(60):
            stamp_s = tick + (ahead_s if tick in (20, 21) else 0.0)
            router.handle(float(tick), [Arrived(Request(f"r{tick}", stamp_s, 10, 20.0))])
        base_price.append(router.policy.prices.base_price)
    assert base_price[0] == base_price[1] > 0


@pytest.mark.parametrize(
    ("deliveries", "learned", "missed"),
    [
        ((("g0", "g1"), ("g1", "g0")), {"g0", "g1"}, 0),
        ((("g0",), ("g0",)), {"g0"}, 1),
        ((("g0", "g0"),), {"g0"}, 1),
        ((("elsewhere", "g1"),), {"g1"}, 1),
        ((("elsewhere",),), set(), 2),
        ((), set(), 2),
    ],
)
@pytest.mark.parametrize("late_s", [0.0, 8.0])
def test_each_device_takes_its_tables_once_whatever_else_comes(
    make_settings, limits, deliveries, learned, missed, late_s
):
    """At the same time an arrival is told, which is decided as ever."""
    router = Router([Device("g0", 4, 1000, 1.0), Device("g1", 4, 1000, 1.0)], "online_lp", make_settings(), limits, 0)
    prices = router.policy.prices
    events = [Arrived(Request(f"r{i}", 0.0, 10, 20.0)) for i in range(3)]
    router.handle(0.0, events)
    work = router.handle(2.0, [Arrived(Request("r3", 2.0, 10, 20.0))]).price_work
    assert work is not None
    shape = prices.tables.shape[1:]
    flat = {"g0": 0.1, "g1": 0.2, "elsewhere": 0.9}
    ready = []
    for ids in deliveries:
        level = np.array([flat[name] for name in ids])[:, None, None] * np.ones((1, 2, shape[1] - 1))
        ready.append(PricesReady(work.update_id, work.grid, ids, build_tables(level, 4.0)))
    step = router.handle(4.0 + late_s, [*ready, Arrived(Request("r4", 4.0, 10, 20.0))])
    assert [decision.request.id for decision in step.decisions] == ["r4"]
    assert prices.missed == missed
    expected = [flat[name] if name in learned else 0.0 for name in prices.device_ids]
    assert prices.tables[:, SLOT_PRICE, 0].tolist() == expected


def test_a_first_burst_leaves_no_price_behind():
    """Sixteen at the instant of the first update are no rate: the next sixteen find four idle devices alike."""
    config, fleet = RouterConfig(), FleetConfig.parse("4xa100-8b")
    requests = [
        SimRequest(Request(f"{at_s}-{n:02d}", at_s, 50, 100.0), 100) for at_s in (0.0, 1.0, 5.0) for n in range(16)
    ]
    router = build_priced_router(config, fleet, "timed", seed=0)
    update_s = config.settings("timed").online_lp.update_s
    table = simulate(requests, fleet, "timed", router, update_s=update_s).requests
    for _, together in table.groupby("arrival_s"):
        assert together["device_id"].value_counts().tolist() == [4, 4, 4, 4]


def burst(steps_s, seen_s):
    """Where 16 requests that come at once go on idle devices, whose engines were seen to take seen_s per iteration."""
    iteration = IterationModel(5e-5, 1e-7, 5e-5)
    devices = [
        Device(f"g{i}", 128, 400_000, step_s, prefill_tokens_per_s=1e4, iteration=iteration)
        for i, step_s in enumerate(steps_s)
    ]
    settings = RouterConfig(preset="e2e").settings("timed")
    router = Router(devices, "online_lp", settings, RouterConfig().limits(), seed=0)
    router.handle(0.0, [EngineObserved(f"g{i}", 0, 0, 0, step_s, 0.0) for i, step_s in enumerate(seen_s)])
    arrivals = [Arrived(Request(f"r{n:02d}", 1.0, 50, 100.0)) for n in range(16)]
    placed = [decision.key.device_id for decision in router.handle(1.0, arrivals).decisions]
    return [placed.count(device.id) for device in devices]


def test_a_burst_spreads_over_alike_devices_whatever_was_learned_of_their_speed():
    assert burst([0.04] * 4, [0.015, 0.016, 0.0155, 0.0158]) == [4, 4, 4, 4]


def test_a_faster_device_gets_more_of_a_burst_and_not_all_of_it():
    fast, slow = burst([0.0395, 0.04], [0.0145, 0.015])
    assert fast + slow == 16
    assert fast > slow > 0


# -- whose request, and where -----------------------------------------------------------------------------------------


def answer(router, name):
    (found,) = router.explain(NOW_S, name)
    return found


def full(at_prices, waiting, objective, **overrides):
    """A router whose one device is full, so that everything waits."""
    return at_prices(
        [Device("g0", 1, 10**5, 1.0)],
        {"g0": [(10, 500, 5)]},
        {"g0": (0.05, 0.0)},
        waiting=waiting,
        objective=objective,
        **overrides,
    )


@pytest.mark.parametrize(
    ("changes", "fields", "factor"),
    [
        ({"class_weights": (("chat", 3.0),)}, {"request_class": "chat"}, 3.0),
        ({"class_weights": (("chat", 3.0),)}, {"request_class": "other"}, 1.0),
        ({"priority_factor": 2.0}, {"priority": 2}, 4.0),
        ({"priority_factor": 2.0}, {"priority": -1}, 0.5),
        ({"class_weights": (("chat", 3.0),), "priority_factor": 2.0}, {"request_class": "chat", "priority": 1}, 6.0),
    ],
)
def test_classes_and_priority_tiers_multiply_the_reward_and_the_key(at_prices, make_objective, changes, fields, factor):
    objective = dataclasses.replace(make_objective(e2e=1, ttft=1), **changes)
    waiting = [request("plain", 5, 40, 5), request("special", 5, 40, 5, **fields)]
    router = full(at_prices, waiting, objective)
    plain, special = answer(router, "plain"), answer(router, "special")
    assert special.reward == pytest.approx(factor * plain.reward)
    assert special.key == pytest.approx(factor * plain.key)


def test_a_tenant_that_got_much_lately_comes_after_one_that_got_little(at_prices, make_objective):
    waiting = [
        request("first-heavy", 50, 40, 9, tenant="heavy"),
        request("then-heavy", 50, 40, 8, tenant="heavy"),
        request("then-light", 50, 40, 7, tenant="light"),
    ]
    ratio = {}
    for fairness in (0.0, 1.0):
        objective = dataclasses.replace(make_objective(e2e=1, ttft=1), tenant_fairness=fairness)
        devices = [Device("g0", 2, 10**5, 1.0)]
        router = at_prices(
            devices, {"g0": [(10, 500, 5)]}, {"g0": (0.05, 0.0)}, waiting=waiting[:1], objective=objective
        )
        assert placed(router.handle(NOW_S, [])) == {"first-heavy": "g0"}
        for late in waiting[1:]:
            router.queue.add(late, 0)
        ratio[fairness] = answer(router, "then-light").key / answer(router, "then-heavy").key
    assert 0.9 < ratio[0.0] < 1.1  # devices get dearer, requests do not
    # heavy has all of the service of two tenants, twice the mean: 1/2; light has none: the limit of 10
    assert ratio[1.0] == pytest.approx(20.0 * ratio[0.0])


@pytest.mark.parametrize("ahead_s", [0.0, 1e5])
def test_questions_change_no_share_of_a_tenant_and_no_decision(make_settings, make_objective, limits, ahead_s):
    objective = dataclasses.replace(make_objective(e2e=1, ttft=1), tenant_fairness=1.0)
    rng, tenants = np.random.default_rng(4), ("big", "big", "big", "small")
    routers = [Router([Device("g0", 2, 10**5, 1.0)], "online_lp", make_settings(objective), limits, 0) for _ in "ab"]
    running = []
    for tick in range(80):
        now_s = 0.7 * tick
        new = Request(f"r{tick}", now_s, 50, float(rng.integers(2, 9)), tenant=str(rng.choice(tenants)))
        ended = [Finished(key, 5) for key, end_s in running if end_s <= now_s]
        running = [(key, end_s) for key, end_s in running if end_s > now_s]
        told = [router.handle(now_s, [*ended, Arrived(new)]).decisions for router in routers]
        assert told[0] == told[1]
        running += [(d.key, now_s + 5.0) for d in told[0] if isinstance(d, Assign)]
        routers[1].explain(now_s + 0.3 + ahead_s)
        shares = [router.snapshot()["policy"]["shares"] for router in routers]
        assert shares[0] == shares[1]
    assert set(shares[0]["tokens"]) == {"big", "small"}


@pytest.mark.parametrize(("load_weight", "device_id"), [(0.0, "g0"), (1e-3, "g0"), (1.0, "g1")])
def test_the_load_term_sends_to_the_emptier_device_unless_it_costs_more(at_prices, load_weight, device_id):
    """g0 is a little cheaper and holds nearly all that it can; g1 is empty."""
    devices = [Device("g0", 10, 1000, 1.0), Device("g1", 10, 1000, 1.0)]
    router = at_prices(
        devices,
        {"g0": [(400, 20, 5), (400, 20, 5)]},
        {"g0": (0.010, 0.0), "g1": (0.011, 0.0)},
        waiting=[request("r", 20, 10, 1)],
        load_weight=load_weight,
    )
    assert placed(router.handle(NOW_S, [])) == {"r": device_id}


@pytest.mark.parametrize(("end_s", "window_s"), [(math.inf, 2048.0), (200.0, 145.0), (50.0, 0.0)])
def test_with_a_fixed_end_latency_earns_what_is_left_to_it(at_prices, make_objective, end_s, window_s):
    """The request came at 55: beta (T - k - o)+ + gamma (T - k)+ of the paper, with k = 60 and o = 40."""
    objective = make_objective(e2e=1, ttft=1)
    found = answer(full(at_prices, [request("r", 5, 40, 5)], objective, end_s=end_s), "r")
    assert found.reward == pytest.approx(max(window_s - 45, 0) + max(window_s - 5, 0))


def test_a_fixed_end_prices_what_comes_by_the_time_that_is_left(make_settings, make_objective, limits):
    """V-bar of requests that came now: beta (T - k - o) and gamma (T - k); nothing once T has passed."""
    router = Router(
        [Device("g0", 4, 1000, 1.0)],
        "online_lp",
        make_settings(make_objective(e2e=1, ttft=1), end_s=100.0),
        limits,
        seed=0,
    )
    for at_s in range(0, 90, 6):
        router.handle(float(at_s), [Arrived(Request(f"r{at_s}", float(at_s), 10, 20.0))])
    policy = router.policy
    rate = policy.snapshot()["history"]["times_s"]
    assert policy.prices.base_price == pytest.approx((len(rate) - 1) / (84 - rate[0]) * ((100 - 84 - 20 > 0) + 16))
    router.handle(120.0, [])
    assert policy.prices.base_price == 0


def test_grace_beyond_the_bound_follows_the_objective_in_force(at_prices, make_objective):
    """t1 is 100 s when the router is built and 5 s later: overdue 5 s after the bound, also after a restart."""
    busy = {"g0": [(10, 500, 5)] * 2}
    devices = [Device("g0", 2, 10**5, 1.0)]
    waiting = [request("late", 5, 10, 36)]
    free = {"prices": {"g0": (0.0, 0.0)}, "base_price": 0.0}
    router = at_prices(devices, busy, **free, waiting=waiting, max_wait_s=31.0, rejects="max_wait")
    assert router.handle(NOW_S, []).decisions == ()
    saved = router.snapshot()
    (decision,) = router.handle(NOW_S, [Reconfigure(make_objective(tail_e2e=1, tail_ttft=1, t1=5, t2=4))]).decisions
    assert decision.reason is RejectReason.MAX_WAIT
    router.restore(saved)
    assert router.handle(NOW_S, []).decisions == ()


def test_without_devices_what_waits_is_turned_away_as_with_a_full_fleet(at_prices, make_objective):
    devices = [Device("g0", 1, 10**5, 1.0)]
    router = at_prices(devices, {"g0": [(10, 500, 5)]}, **DEAR, waiting=[request("r", 5, 10, 5)], rejects="max_wait")
    lost = router.handle(NOW_S, [DeviceLost("g0", 0)])
    assert lost.decisions == ()
    assert lost.next_wake_s < math.inf
    end_s = NOW_S + router.snapshot()["settings"].online_lp.max_wait_s + 100.0
    turned_away = router.handle(end_s, []).decisions
    assert {(d.request.id, d.reason) for d in turned_away} == {
        ("g0-0", RejectReason.MAX_WAIT),
        ("r", RejectReason.MAX_WAIT),
    }


def test_the_bound_is_reached_at_the_time_that_was_woken_for(at_prices):
    """60.7 + 2.3 rounds to less than 2.3 after 60.7."""
    late = Request("late", 60.7, 5, 200.0)
    router = at_prices(
        [Device("g0", 1, 10**5, 1.0)],
        {"g0": [(10, 500, 5)]},
        **DEAR,
        waiting=[late],
        max_wait_s=2.3,
        rejects="max_wait",
    )
    (decision,) = router.handle(60.7 + 2.3, []).decisions
    assert decision.reason is RejectReason.PRICE
