"""Policies that send every request on at once: which device, and that random ones depend on the seed only."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from olp_ray.core.router import Router
from olp_ray.core.types import Arrived, Device, Progressed, Request, Started

POLICIES = ["round_robin", "random", "least_outstanding", "power_of_two", "least_kv"]


@pytest.fixture(scope="module")
def route(make_settings, limits):
    def build(policy, devices=4, seed=0, **fields):
        fleet = [Device(f"g{i}", 4, 1000, 1.0, **fields) for i in range(devices)]
        return Router(fleet, policy, make_settings(), limits, seed)

    return build


def send(router, count, start=0, at_s=0.0, prompt_tokens=10):
    """Devices of `count` requests that arrive together."""
    events = [Arrived(Request(f"{start + i:04d}", at_s, prompt_tokens, 20.0)) for i in range(count)]
    decisions = router.handle(at_s, events).decisions
    return [d.key.device_id for d in decisions], decisions


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_waits_even_beyond_the_slots(policy, route):
    router = route(policy)
    devices, _ = send(router, 40)
    assert len(devices) == 40
    assert len(router.queue) == 0
    router.check_invariants()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_seed_fixes_every_choice(policy, route):
    first, again = send(route(policy, seed=3), 40)[0], send(route(policy, seed=3), 40)[0]
    other = send(route(policy, seed=4), 40)[0]
    assert first == again
    assert (first != other) == (policy in ("random", "power_of_two"))


def test_random_is_uniform_over_open_devices(route):
    counts = Counter(send(route("random"), 4000)[0])
    expected = 4000 / 4
    chi_square = sum((counts[f"g{i}"] - expected) ** 2 / expected for i in range(4))
    assert chi_square < 16.3  # 0.1% point of chi-square with 3 degrees of freedom


def test_power_of_two_never_takes_the_fullest_and_beats_random(route):
    router = route("power_of_two")
    _, decisions = send(router, 3)
    fullest = max(Counter(d.key.device_id for d in decisions).items(), key=lambda item: item[1])
    if fullest[1] > 1:
        assert send(router, 1, start=10)[0] != [fullest[0]]
    spread = {policy: np.ptp(list(Counter(send(route(policy), 400)[0]).values())) for policy in POLICIES[1:4]}
    assert spread["least_outstanding"] <= spread["power_of_two"] < spread["random"]


def test_power_of_two_on_one_device(route):
    assert send(route("power_of_two", devices=1), 3)[0] == ["g0"] * 3


def test_least_kv_counts_tokens_not_requests(route):
    router = route("least_kv", devices=2)
    (big,), _ = send(router, 1, prompt_tokens=100)
    others, _ = send(router, 3, start=1, prompt_tokens=20)
    assert others == [next(d for d in ("g0", "g1") if d != big)] * 3


def test_least_kv_follows_decoding_and_capacity(make_settings, limits):
    fleet = [Device("g0", 4, 1000, 1.0), Device("g1", 4, 500, 1.0)]
    router = Router(fleet, "least_kv", make_settings(), limits, seed=0)
    _, decisions = send(router, 2, prompt_tokens=40)
    assert [d.key.device_id for d in decisions] == ["g0", "g1"]
    router.handle(0.0, [Started(d.key) for d in decisions])
    router.handle(50.0, [Progressed((decisions[0].key,), np.array([90]))])
    assert send(router, 1, start=5, at_s=50.0)[0] == ["g0"]  # 130 of 1000 against 90 of 500
