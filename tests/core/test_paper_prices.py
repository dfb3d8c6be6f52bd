"""Prices of the paper's policy against plain sums over dense columns, and Algorithm 2 against the exact dual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.exact_prices import solve_packing
from olp_ray.core.paper_prices import PaperPrices

SCALE = 1 / 50
moderate = settings(max_examples=40, deadline=None)


def dense(columns, devices, slots):
    """Every column over the whole horizon, (n, G, 2, T), KV scaled."""
    full = np.zeros((len(columns), devices, 2, slots))
    for row, (g, start, stop, level, growth, _) in zip(full, columns, strict=True):
        for q in range(int(start), int(stop)):
            row[int(g), :, q] = 1.0, SCALE * (level + growth * (q - start))
    return full


def book(seed, devices=2, slots=20, count=12, now=8):
    """Prices with random columns that began up to `now`, as they are recorded online."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, now + 1, count)
    growth = rng.choice([1.0, 2.5], count)
    stop = np.minimum(start + rng.integers(1, 12, count), slots)
    level = rng.integers(0, 20, count) + growth
    columns = np.stack([rng.integers(0, devices, count), start, stop, level, growth, rng.uniform(0, 1, count)], axis=1)
    prices = PaperPrices(slots, history=100)
    prices.follow([f"g{i}" for i in range(devices)], SCALE)
    prices.record(columns)
    prices.prices[:, :, : prices.slots_ahead(0)] = rng.exponential(0.05, (devices, 2, prices.slots_ahead(0)))
    scarcity = rng.uniform(0, 0.3, (devices, 2, prices.slots_ahead(now)))
    return prices, scarcity, rng


@moderate
@given(st.integers(0, 10**6))
def test_cost_is_the_plain_sum_over_the_full_extent(seed):
    prices, _, _ = book(seed)
    expected = (dense(prices.columns, 2, 20) * prices.prices).sum(axis=(1, 2, 3))
    assert prices.cost(prices.columns) == pytest.approx(expected, abs=1e-12)


@moderate
@given(st.integers(0, 10**6), st.integers(0, 12))
def test_saa_is_the_dense_problem(seed, now):
    """f_k(p) of eq. 6 written out, at random prices of the slots to come."""
    prices, _, rng = book(seed, now=now)
    width = prices.slots_ahead(now)
    scarcity = rng.uniform(0, 0.3, (2, 2, width))
    rewards = prices.columns[:, 5]
    problem = prices.saa(now, scarcity, rewards)
    ahead = rng.exponential(0.05, scarcity.shape)
    prices.set_ahead(now, ahead)
    hinge = np.maximum(rewards - (dense(prices.columns, 2, 20) * prices.prices).sum(axis=(1, 2, 3)), 0.0)
    assert problem.dual_objective(ahead.ravel()) == pytest.approx((scarcity * ahead).sum() + hinge.mean(), abs=1e-12)


@moderate
@given(st.integers(0, 10**6))
def test_one_round_of_algorithm_2_line_by_line(seed):
    prices, scarcity, _ = book(seed)
    now, width, eta = 8, scarcity.shape[2], 0.02
    rewards, before = prices.columns[:, 5], prices.prices.copy()
    full = dense(prices.columns, 2, 20)
    drawn = np.random.default_rng(seed).choice(12, 5, replace=False)
    gradient = scarcity.copy()
    for n in drawn:
        if rewards[n] - (full[n] * before).sum() > 0:
            gradient -= full[n][:, :, now : now + width] / 5
    prices.update(now, scarcity, rewards, eta, rounds=1, batch=5, rng=np.random.default_rng(seed))
    expected = np.maximum(before[:, :, now : now + width] - eta * gradient, 0.0)
    assert prices.prices[:, :, now : now + width] == pytest.approx(expected, abs=1e-12)
    assert (prices.prices[:, :, :now] == before[:, :, :now]).all()  # past slots are frozen


def test_subgradient_objective_is_above_the_exact_dual_and_comes_close():
    """Share of the way from price 0 to the exact dual of eq. 7 that is left after many rounds with falling steps."""
    left = []
    for seed in range(8):
        prices, scarcity, rng = book(seed)
        rewards = prices.columns[:, 5]
        problem = prices.saa(8, scarcity, rewards)
        best = solve_packing(problem).objective
        prices.set_ahead(8, np.zeros(scarcity.shape))
        at_zero = problem.dual_objective(np.zeros(scarcity.size))
        for eta in (0.05, 0.01, 0.002):
            prices.update(8, scarcity, rewards, eta, rounds=300, batch=12, rng=rng)
        reached = problem.dual_objective(prices.prices[:, :, 8 : 8 + scarcity.shape[2]].ravel())
        assert reached >= best - 1e-9
        left.append((reached - best) / (at_zero - best))
    assert np.median(left) < 0.03
    assert max(left) < 0.15


def test_empty_history_means_price_zero():
    prices, scarcity, rng = book(0)
    prices.forget()
    prices.update(8, scarcity, np.zeros(0), 0.1, 5, 64, rng)
    assert not prices.prices.any()


def test_devices_keep_prices_and_columns_when_the_fleet_changes():
    prices, _, _ = book(3)
    of_g1 = prices.columns[prices.columns[:, 0] == 1]
    cost, row = prices.cost(of_g1), prices.prices[1].copy()
    prices.follow(["g2", "g1"], SCALE)
    assert (prices.prices[1] == row).all()
    assert not prices.prices[0].any()
    assert (prices.columns[:, 1:] == of_g1[:, 1:]).all()
    assert prices.cost(prices.columns) == pytest.approx(cost)


def test_history_is_bounded_and_restores():
    prices = PaperPrices(20, history=3)
    prices.follow(["g0"], SCALE)
    for start in range(5):
        prices.record(np.array([[0, start, start + 2, 5, 1, 0.5]]))
    assert prices.columns[:, 1].tolist() == [2, 3, 4]
    other = PaperPrices(20, history=3)
    other.restore(prices.snapshot())
    assert (other.columns == prices.columns).all()
    assert (other.device_ids, other.slots_ahead(0)) == (("g0",), 6)
