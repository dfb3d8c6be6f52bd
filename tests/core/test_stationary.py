"""The bid price of the fluid relaxation: closed forms, and the LP's own dual."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from olp_ray.core.kernels.records import Fleet
from olp_ray.core.ledger import Ledger
from olp_ray.core.stationary import ITERATION_TIME, KV_TOKENS, SLOTS, prices_of, scarcest
from olp_ray.core.types import Device, IterationModel


def only(resource, shares):
    """(3, n) shares of one resource, little of the others."""
    found = np.full((3, len(shares)), 1e-6)
    found[resource] = shares
    return found


@pytest.fixture
def fleet() -> Fleet:
    model = IterationModel(per_sequence_s=0.001, per_kv_token_s=2e-7, per_prompt_token_s=5e-5)
    devices = [
        Device(f"g{i}", slots=slots, kv_tokens=kv, step_s=0.05, iteration=model)
        for i, (slots, kv) in enumerate(((10, 4000), (30, 8000)))
    ]
    return Ledger(devices).fleet


def test_nothing_costs_anything_while_a_device_could_serve_all():
    assert scarcest(np.ones(4), only(SLOTS, [1.0, 2.0, 3.0, 4.0]), 0.4) == (SLOTS, 0.0)


def test_the_price_is_the_worth_per_share_of_the_last_that_is_served():
    value, shares = np.array([8.0, 6.0, 4.0, 2.0]), np.array([2.0, 2.0, 2.0, 2.0])
    # .8 requests a second of 2 s each are a load of 1.6: the two best fill .8, half of the third the rest
    resource, price = scarcest(value, only(KV_TOKENS, shares), 0.8)
    assert (resource, price) == (KV_TOKENS, 2.0)


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=12),
    st.floats(0.05, 3.0),
)
def test_it_is_the_dual_of_the_fluid_lp(requests, rate):
    value, share = (np.array(column) for column in zip(*requests, strict=True))
    load = share * rate / len(value)
    _, price = scarcest(value, only(SLOTS, share), rate)
    solved = linprog(-value * rate / len(value), A_ub=load[None], b_ub=[1.0], bounds=(0, 1))
    dual = price + np.maximum(value * rate / len(value) - price * load, 0.0).sum()
    assert dual == pytest.approx(-solved.fun, rel=1e-9)


def test_prices_of_each_resource(fleet):
    assert prices_of(SLOTS, 4.0, fleet) == pytest.approx((4.0 / 20, 0.0, 0.0))
    assert prices_of(KV_TOKENS, 4.0, fleet) == pytest.approx((0.0, 4.0 / 6000, 0.0))
    step_s = fleet.step_s.mean()
    assert prices_of(ITERATION_TIME, 4.0, fleet) == pytest.approx((0.004 / step_s, 8e-7 / step_s, 2e-4))


def test_iteration_time_is_sold_in_full(fleet):
    """A life pays the price for every second that it adds to iterations."""
    prices, step_s = prices_of(ITERATION_TIME, 3.0, fleet), float(fleet.step_s.mean())
    prompt, output = 200.0, 80.0
    held = prompt + output / 2
    paid = output * step_s * (prices.slot + prices.kv * held) + prices.prefill * prompt
    assert paid == pytest.approx(3.0 * (5e-5 * prompt + output * (0.001 + 2e-7 * held)))


def test_a_load_that_is_all_of_a_device_but_for_rounding_has_a_price_too():
    """In order of arrival the shares add up to a bit more than 1, by worth to a bit less."""
    shares = np.array([1.9, 0.3, 1.2, 0.2, 0.3, 0.3, 0.6, 0.8, 0.3])
    resource, price = scarcest(shares**2, only(SLOTS, shares), len(shares) / shares.sum())
    assert (resource, price) == (SLOTS, pytest.approx(0.2))  # the least of them is served, if barely
