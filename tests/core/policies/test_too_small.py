"""Which devices are too small for a request: by hand, and that no holding policy sends a request to one."""

import pytest

from olp_ray.core.policies import POLICIES
from olp_ray.core.router import Router
from olp_ray.core.types import Arrived, Device, DeviceDraining, Finished, Request, Started

FLEET = (Device("small", 4, 100, 1.0), Device("large", 4, 1000, 1.0), Device("blocks", 4, 1000, 1.0, block_tokens=16))
IMMEDIATE = {"round_robin", "random", "least_outstanding", "power_of_two", "least_kv"}


@pytest.fixture
def start(make_settings, limits):
    """Builds a router on the fleet and tells it of requests {name: (prompt, predicted)}; where they went."""

    def run(policy, requests, devices=FLEET, draining=()):
        router = Router(devices, policy, make_settings(), limits, seed=0)
        router.handle(0.0, [DeviceDraining(device_id) for device_id in draining])
        arrivals = [Arrived(Request(name, 1.0, prompt, float(n))) for name, (prompt, n) in requests.items()]
        decisions = router.handle(1.0, arrivals).decisions
        return router, {decision.request.id: decision.key.device_id for decision in decisions}

    return run


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - IMMEDIATE))
def test_a_request_goes_only_where_its_planned_end_fits(start, policy):
    """60 + 60 tokens on 100: an empty small device is no place for them, whatever it would be cut to."""
    router, placed = start(policy, {f"r{i}": (60, 60) for i in range(5)})
    assert len(placed) == 5
    assert set(placed.values()) <= {"large", "blocks"}
    router.check_invariants()


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - IMMEDIATE))
def test_while_the_large_are_full_it_waits_and_then_goes_there(start, policy):
    devices = (FLEET[0], Device("large", 1, 1000, 1.0))
    router, placed = start(policy, {"a": (60, 60), "b": (60, 60)}, devices)
    assert list(placed.values()) == ["large"]
    (key,) = [key for key, _ in router.ledger]
    router.handle(1.0, [Started(key)])
    step = router.handle(61.0, [Finished(key, 60)])
    assert [decision.key.device_id for decision in step.decisions] == ["large"]


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - IMMEDIATE))
@pytest.mark.parametrize(("length", "draining", "device_id"), [(5000, (), "large"), (60, ("large", "blocks"), "small")])
def test_where_none_could_hold_it_the_largest_that_may_run_it_tries(start, policy, length, draining, device_id):
    _, placed = start(policy, {"r": (60, length)}, draining=draining)
    assert placed == {"r": device_id}


@pytest.mark.parametrize(
    ("length", "expected"), [(40, [False] * 3), (41, [True, False, False]), (925, [True, False, False])]
)
def test_too_small_by_hand(start, length, expected):
    router, _ = start("central_fifo", {})
    router.queue.add(Request("r", 1.0, 60, float(length)), 0)
    view = router._view()
    queue = view.waiting
    found = view.too_small(queue.prompt_tokens, queue.predicted_output_tokens)
    assert found[:, 0].tolist() == expected
    assert view.may_hold(queue.prompt_tokens, queue.predicted_output_tokens)[:, 0].tolist() == [not x for x in expected]


def test_blocks_round_up(start):
    """60 + 930 fits 1000 tokens, and not in blocks of 16, where the last may be nearly empty."""
    router, _ = start("central_fifo", {})
    router.queue.add(Request("r", 1.0, 60, 930.0), 0)
    view = router._view()
    assert view.too_small(view.waiting.prompt_tokens, view.waiting.predicted_output_tokens)[:, 0].tolist() == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(("prompt", "expected"), [(99, [True]), (100, [False])])
def test_a_prompt_has_a_place_where_it_and_one_token_fit_an_open_device(start, prompt, expected):
    router, _ = start("central_fifo", {}, draining=("large", "blocks"))
    router.queue.add(Request("r", 1.0, prompt, 5000.0), 0)
    view = router._view()
    assert view.has_a_place(view.waiting.prompt_tokens).tolist() == expected
