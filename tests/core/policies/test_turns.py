"""When the turn of a waiting request is planned to come: closed forms, and how far off whole runs find it."""

from __future__ import annotations

import numpy as np
import pytest

from olp_ray.config.scenario import ScenarioConfig
from olp_ray.core.explanation import StartRule
from olp_ray.core.router import Router
from olp_ray.core.types import Arrived, AssignmentKey, Device, DeviceDraining, Request, Stage
from olp_ray.sweep.trial import run_seed

DEVICE = Device("g0", 2, 1000, 2.0)


def full_router(make_settings, limits, policy="central_fifo", devices=(DEVICE,), waiting=4):
    """Two residents on each device, planned to end 10 and 20 steps from now; requests of 5 tokens wait."""
    router = Router(devices, policy, make_settings(), limits, seed=0)
    for device in devices:
        for i, length in enumerate((20, 10)):
            key = AssignmentKey(f"{device.id}held{i}", Stage.MIXED, device.id, 0, 0)
            router.ledger.reserve(key, Request(key.request_id, 0.0, 10, float(length)), 0.0)
            router.ledger.start(key, 0.0)
    router.restore(router.snapshot())
    requests = [Request(f"r{i}", 0.0, 10, 5.0) for i in range(waiting)]
    router.handle(0.0, [Arrived(request) for request in requests])
    return router


def expected(router):
    return [(a.start_rule, a.expected_start_s) for a in router.explain(0.0) if a.rank is not None]


def test_each_start_takes_the_place_that_is_planned_to_come_free_first(make_settings, limits):
    """In steps: places at 10 and 20; the first takes 10 to 15, the next 15 to 20, then both are free at 20."""
    steps = [10, 15, 20, 20]
    rules = [StartRule.EARLIEST_FIT, *[StartRule.ESTIMATED_BY_RANK] * 3]
    assert expected(full_router(make_settings, limits)) == [(r, 2.0 * s) for r, s in zip(rules, steps, strict=True)]


def test_more_devices_have_more_places_and_a_draining_one_none(make_settings, limits):
    devices = Device("g0", 2, 1000, 2.0), Device("g1", 2, 1000, 2.0)
    router = full_router(make_settings, limits, devices=devices)
    assert [at_s for _, at_s in expected(router)] == [20.0, 20.0, 30.0, 30.0]
    router.handle(0.0, [DeviceDraining("g1")])
    assert [at_s for _, at_s in expected(router)] == [20.0, 30.0, 40.0, 40.0]


def test_what_may_run_nowhere_has_no_turn_and_takes_none(make_settings, limits):
    device = Device("g0", 2, 1000, 2.0, models=frozenset({"m"}))
    router = full_router(make_settings, limits, "central_sjf", (device,), waiting=2)
    router.queue.add(Request("other", 0.0, 10, 1.0, model="n"), 0)
    router.queue.add(Request("third", 0.0, 10, 6.0), 0)
    found = {a.request_id: (a.start_rule, a.expected_start_s) for a in router.explain(0.0)}
    assert found["other"] == (StartRule.UNKNOWN, None)
    assert (found["r0"][1], found["r1"][1], found["third"][1]) == (20.0, 30.0, 40.0)
    (alone,) = router.explain(0.0, "third")
    assert (alone.start_rule, alone.expected_start_s) == found["third"]


@pytest.mark.parametrize("fleet", ["2xB12M40000", "2xB96M6000"], ids=["slots bind", "KV binds"])
@pytest.mark.parametrize("policy", ["central_fifo", "central_sjf", "online_lp"])
def test_in_overload_half_of_the_estimates_are_within_a_factor_of_two(policy, fleet):
    scenario = ScenarioConfig.model_validate(
        {
            "mode": "period",
            "fleet": fleet,
            "requests": 300,
            "router": {"policy": policy, "preset": "e2e", "rejects": "never"},
        }
    )
    run = run_seed(scenario, 0, 0.3)
    table = run.result.requests
    late = table[table["assigned_s"] - table["arrival_s"] > 20]
    asked_s = dict(zip(late["request_id"], (late["arrival_s"] + late["assigned_s"]) / 2, strict=True))
    start_s = dict(zip(late["request_id"], late["assigned_s"], strict=True))
    again = run_seed(scenario, 0, 0.3, questions=[(at_s, name) for name, at_s in asked_s.items()])
    answers = [(at_s, a) for at_s, a in again.answers if a.start_rule == StartRule.ESTIMATED_BY_RANK]
    ratio = [(a.expected_start_s - at_s) / (start_s[a.request_id] - at_s) for at_s, a in answers]
    assert len(ratio) > 0.8 * len(late) > 40
    assert np.mean([0.5 <= one <= 2 for one in ratio]) > 0.5
    assert 0.7 < np.median(ratio) < 1.4
