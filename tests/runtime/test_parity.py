"""Decisions and prices are the same, to the bit, for every number of shards: in this process and on Ray.

Event streams are drawn by hypothesis; whole simulations take 500 requests of two generated traces, and of two shared
ones where the folder `shared` stands beside the checkout. Ray's actors live for all examples of a test.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.config.build import build_router
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import InlinePricer
from olp_ray.core.types import (
    Arrived,
    Assign,
    Cancelled,
    DeviceDraining,
    DeviceJoined,
    DeviceLost,
    Finished,
    Preempted,
    Progressed,
    ReplicaRefused,
    Request,
    Started,
)
from olp_ray.runtime.ray_pricer import RayPricer
from olp_ray.runtime.shard_pool import ShardPool
from olp_ray.sim.simulate import simulate
from olp_ray.workload.generators import generate
from olp_ray.workload.predictors import parse_predictor
from olp_ray.workload.requests import make_requests
from olp_ray.workload.traces import read_trace

FLEET = FleetConfig.parse("3xB3M900+2xB2M500")
DEVICES = 5
CONFIG = RouterConfig(policy="online_lp", preset="attainment")
RARE_UPDATES = CONFIG.model_copy(update={"online_lp": CONFIG.online_lp.model_copy(update={"update_s": 16.0})})
SHARED = Path(__file__).parents[3] / "shared" / "traces"

KINDS = ("arrive", "arrive", "finish", "finish", "progress", "cancel", "preempt", "refuse", "lose", "join", "drain")
OPERATIONS = st.tuples(st.sampled_from(KINDS), st.integers(0, 10**6))
STEPS = st.lists(
    st.tuples(st.sampled_from((0.0, 1.0, 3.0, 8.0, 17.0)), st.lists(OPERATIONS, max_size=5)), min_size=5, max_size=20
)


class Play:
    """Drives a router by a script; which request an operation hits follows from what the router decided before."""

    def __init__(self, pricer):
        self.core = build_router(CONFIG, FLEET, "period", seed=3)
        self.router = PricedRouter(self.core, pricer)
        self.running = {}
        self.waiting = {}
        self.seen = []
        self._events = [
            Arrived(Request(f"first{i}", 0.0, 40 + 10 * i, 60.0 + i, slo_e2e_s=80.0)) for i in range(3 * DEVICES)
        ]

    def run(self, script):
        """The decisions of each call, and the price tables after it."""
        self._handle(0.0)
        now_s = 0.0
        for number, (later_s, operations) in enumerate([(8.0, []), (8.0, []), *script]):
            now_s += later_s
            for position, (kind, pick) in enumerate(operations):
                self._events += getattr(self, f"_{kind}")(f"r{number}-{position}", pick, now_s)
            self._handle(now_s)
        self.core.check_invariants()
        return self.seen

    def _handle(self, now_s):
        events, self._events = self._events, []
        step = self.router.handle(now_s, events)
        for decision in step.decisions:
            if isinstance(decision, Assign):
                self.running[decision.key] = decision.request
                self._events.append(Started(decision.key))
        self.seen.append((step.decisions, step.next_wake_s, self.core.policy.prices.tables.copy()))

    def _arrive(self, name, pick, now_s):
        return [Arrived(Request(name, now_s, 5 + pick % 300, 2.0 + pick % 97, priority=pick % 2))]

    def _finish(self, name, pick, now_s):
        return [Finished(key, 1 + pick % 90) for key in self._one(pick, remove=True)]

    def _progress(self, name, pick, now_s):
        first = next(iter(self._one(pick)), None)
        keys = tuple(key for key in self.running if first is not None and key.device_id == first.device_id)
        return [Progressed(keys, np.full(len(keys), pick % 120))] if keys else []

    def _cancel(self, name, pick, now_s):
        waiting = [entry.request.key for entry in self.core.queue]
        return [Cancelled(waiting[pick % len(waiting)])] if waiting else []

    def _preempt(self, name, pick, now_s):
        return [Preempted(key, pick % 30) for key in self._one(pick)]

    def _refuse(self, name, pick, now_s):
        return [ReplicaRefused(key, "full") for key in self._one(pick, remove=True)]

    def _lose(self, name, pick, now_s):
        devices = self.core.ledger.devices
        if len(devices) < 2:
            return []
        gone = devices[pick % len(devices)]
        self.running = {key: request for key, request in self.running.items() if key.device_id != gone.id}
        return [DeviceLost(gone.id, gone.incarnation)]

    def _join(self, name, pick, now_s):
        known = self.core.ledger.devices[pick % len(self.core.ledger.devices)]
        return [DeviceJoined(dataclasses.replace(known, id=name))]

    def _drain(self, name, pick, now_s):
        devices = self.core.ledger.devices
        return [DeviceDraining(devices[pick % len(devices)].id)] if len(devices) > 2 else []

    def _one(self, pick, remove=False):
        keys = list(self.running)
        if not keys:
            return []
        key = keys[pick % len(keys)]
        if remove:
            del self.running[key]
        return [key]


def assert_same(ours, expected):
    assert len(ours) == len(expected)
    for (decisions, wake_s, tables), (decisions_2, wake_s_2, tables_2) in zip(ours, expected, strict=True):
        assert decisions == decisions_2
        assert wake_s == wake_s_2
        np.testing.assert_array_equal(tables, tables_2)


@pytest.mark.parametrize("blocks", [3, DEVICES])
@settings(max_examples=60, deadline=None)
@given(script=STEPS)
def test_event_streams_decide_the_same_for_every_number_of_blocks(blocks, script):
    assert_same(Play(InlinePricer(blocks)).run(script), Play(InlinePricer()).run(script))


def test_the_streams_that_are_drawn_have_prices():
    seen = Play(InlinePricer()).run([(8.0, [("arrive", 250)])] * 4)
    assert seen[-1][2].any()


@pytest.fixture(scope="module")
def pricers(ray_local):
    """By number of shards; a pricer serves one router after another, each begins with start prices."""
    built = {shards: RayPricer(ShardPool(shards, RuntimeConfig())) for shards in (1, 3, DEVICES)}
    yield built
    for pricer in built.values():
        pricer.close()


@pytest.mark.ray_local
@pytest.mark.parametrize("shards", [1, 3, DEVICES])
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=STEPS)
def test_event_streams_decide_the_same_on_ray(pricers, shards, script):
    pricers[shards].collect()  # what the example before left
    assert_same(Play(pricers[shards]).run(script), Play(InlinePricer()).run(script))


def trace(name):
    """500 requests, at about twice the rate that the fleet can carry."""
    if name.endswith(".csv"):
        if not (SHARED / name).exists():
            pytest.skip(f"needs traces/{name} in the folder shared beside the checkout")
        frame = read_trace(SHARED / name)
    else:
        frame = generate(name, 500, 1.0, seed=5)
    return make_requests(frame, parse_predictor("uniform:0.2"), 5, count=500, rate=0.3)


class Watched(PricedRouter):
    """Remembers the digest of the prices in force after each call, and whether any was above 0."""

    def __init__(self, core, pricer):
        super().__init__(core, pricer)
        self.digests = []
        self.priced = False

    def handle(self, now_s, events):
        step = super().handle(now_s, events)
        tables = self.router.policy.prices.tables
        self.digests.append(hashlib.sha1(tables.tobytes()).hexdigest())
        self.priced = self.priced or bool(tables.any())
        return step


def simulated(requests, pricer):
    fleet = FleetConfig.parse("5xB6M40000")
    router = Watched(build_router(RARE_UPDATES, fleet, "period", seed=5), pricer)
    return simulate(requests, fleet, "period", router, update_s=16.0), router


@pytest.mark.ray_local
@pytest.mark.parametrize("name", ["chat1m", "lmsys", "azure2023_conv.csv", "azure2023_code.csv"])
def test_500_requests_of_a_trace_give_the_same_rows_and_prices(pricers, name):
    requests = trace(name)
    expected, inline = simulated(requests, InlinePricer())
    assert len(expected.requests) == 500
    assert inline.priced
    for shards, pricer in pricers.items():
        pricer.collect()
        ours, router = simulated(requests, pricer)
        pd.testing.assert_frame_equal(ours.requests, expected.requests, check_exact=True)
        pd.testing.assert_frame_equal(ours.decisions, expected.decisions, check_exact=True)
        assert router.digests == inline.digests, f"{shards} shards"
