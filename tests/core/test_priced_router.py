"""A router with its prices over many updates: what one request or report says stops neither decisions nor prices."""

import re

import numpy as np
import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.router import ObjectiveConfig
from olp_ray.core.history import PREDICTED
from olp_ray.core.prices import InlinePricer
from olp_ray.core.router import Router
from olp_ray.core.types import Arrived, Assign, Device, EngineObserved, Finished, Request, Started
from olp_ray.errors import EventError, PriceError

STEP_S = 0.1


@pytest.fixture
def make_priced():
    def build(**objective):
        config = RouterConfig(objective=ObjectiveConfig(**objective))
        return build_priced_router(config, FleetConfig.parse("2xa100-8b"), "timed", seed=0)

    return build


def decided(priced, count, first_s=0.0, special=None, events=()):
    """How many of so many requests, one each step, are decided at once; the 20th is special, and events come with it.

    special are fields of that request.
    """
    answered = 0
    for k in range(count):
        at_s = first_s + k * STEP_S
        fields = {"prompt_tokens": 100, "predicted_output_tokens": 50.0, **((special or {}) if k == 20 else {})}
        arrived = Arrived(Request(f"{first_s:g}-{k}", at_s, **fields))
        step = priced.handle(at_s, [arrived, *(events if k == 20 else ())])
        answered += len(step.decisions)
        assigned = [decision.key for decision in step.decisions if isinstance(decision, Assign)]
        priced.handle(at_s + STEP_S, [*map(Started, assigned), *(Finished(key, 50) for key in assigned)])
        priced.router.check_invariants()
    return answered


def check_prices(prices):
    assert np.isfinite(prices.tables).all()
    assert np.isfinite(prices.scarcity).all()
    assert 0 < prices.base_price < np.inf


@pytest.mark.parametrize("factor", [2.0, 16.0, 1 / 16])
@pytest.mark.parametrize("priority", [100, -100])
def test_the_highest_and_the_lowest_priority_leave_prices_finite(make_priced, factor, priority):
    priced = make_priced(priority_factor=factor)
    assert decided(priced, 100, special={"priority": priority}) == 100
    check_prices(priced.router.policy.prices)


class FailingPricer(InlinePricer):
    """Takes no update while it is broken."""

    broken = False

    def submit(self, work):
        if self.broken:
            raise OverflowError("too large")
        super().submit(work)


def test_what_was_decided_stands_when_a_price_update_fails(make_priced):
    priced = make_priced()
    priced.pricer = FailingPricer()
    assert decided(priced, 20) == 20
    prices = priced.router.policy.prices
    priced.pricer.broken = True
    at_s = prices.next_update_s()
    step = priced.handle(at_s, [Arrived(Request("last", at_s, 100, 50.0))])
    assert [decision.request.id for decision in step.decisions] == ["last"]
    (fault,) = step.faults
    assert isinstance(fault, PriceError)
    assert re.fullmatch(r"price update \d+ failed: OverflowError: too large", str(fault))
    assert step.price_work is None
    priced.router.check_invariants()
    missed = prices.missed
    assert len(priced.handle(prices.next_update_s(), []).faults) == 1
    priced.pricer.broken = False
    for _ in range(2):
        assert not priced.handle(prices.next_update_s(), []).faults
    assert prices.missed == missed + 2 * len(prices.device_ids)  # of the two that failed


@pytest.mark.parametrize("early", [1e-16, 1e-12, 1e-10, 1e-8])
def test_a_call_a_hair_before_an_update_is_due_misses_no_tables(make_priced, early):
    priced = make_priced()
    assert decided(priced, 20) == 20
    prices = priced.router.policy.prices
    missed = prices.missed
    for _ in range(200):
        due_s = prices.next_update_s()
        update_id = prices.snapshot()["index"]
        priced.handle(due_s * (1 - early), [])
        assert prices.snapshot()["index"] == update_id + (due_s * (1 - early) == due_s)
        priced.handle(due_s, [])
        assert prices.snapshot()["index"] == update_id + 1
    assert prices.missed == missed


@pytest.mark.parametrize("update_s", [0.1, 0.3, 0.7, 1.0, 1 / 3])
def test_updates_come_one_by_one_whatever_quotients_round_to(make_settings, limits, make_request, update_s):
    settings = make_settings(update_s=update_s, bucket_s=2 * update_s)
    router = Router([Device("g", 4, 1000, 1.0)], "online_lp", settings, limits, seed=0)
    router.handle(0.0, [Arrived(make_request())])
    for index in range(1, 500):
        assert router.policy.prices.next_update_s() == index * update_s
        router.handle(index * update_s, [])


@pytest.mark.parametrize("predicted", [1e9, 1e160, 1e300])
def test_a_huge_prediction_leaves_prices_and_history_finite(make_priced, predicted):
    priced = make_priced()
    assert decided(priced, 100, special={"predicted_output_tokens": predicted}) == 100
    check_prices(priced.router.policy.prices)
    most = max(device.kv_tokens for device in priced.router.ledger.devices)
    assert priced.router.snapshot()["policy"]["history"]["rows"][:, PREDICTED].max() == most


@pytest.mark.parametrize("step_s", [1e300, 1e3])
def test_an_absurd_step_time_is_a_fault_and_not_believed(make_priced, step_s):
    priced = make_priced()
    step = priced.handle(0.0, [EngineObserved("d0", 0, 0, 0, step_s, 0.0)])
    assert [type(fault) for fault in step.faults] == [EventError]
    assert "expected at most" in str(step.faults[0])
    assert priced.router.ledger.step_s[0] == priced.router.ledger.step_s[1]
