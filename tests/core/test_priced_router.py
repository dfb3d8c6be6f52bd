"""A router with its prices over many updates: what one request or report says stops neither decisions nor prices."""

import numpy as np
import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.router import ObjectiveConfig
from olp_ray.core.types import Arrived, Assign, Finished, Request, Started

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
