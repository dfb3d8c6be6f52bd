"""A round of a price update as an LP: its dual function against prices written out, and gradient steps against it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.exact_prices import solve_packing
from olp_ray.core.kernels import pricing
from olp_ray.core.prices import PriceBlock, PriceScalars, SampleColumn, build_tables, run_update
from olp_ray.core.update_packing import look_ahead, round_packing

DELAYS = np.array([0.0, 1.0, 2.0, 4.0])


def with_tail(prices, buckets):
    """(G, 2, La) prolonged to all buckets by the mean of its second half."""
    tail = prices[:, :, prices.shape[2] // 2 :].mean(axis=2, keepdims=True)
    return np.concatenate([prices, np.repeat(tail, buckets - prices.shape[2], axis=2)], axis=2)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["one", "per device"]))
def test_dual_function_is_that_of_the_samples_and_free_capacity(work_stream, seed, columns):
    work = work_stream(seed, devices=3, columns=columns).next()
    terms, problem = PriceScalars(*work.scalars), round_packing(work, 1)
    prices = np.random.default_rng(seed).exponential(0.02, (3, 2, look_ahead(work)))
    full = with_tail(prices, 12)
    samples = work.samples[work.samples[:, SampleColumn.ROUND] == 1]
    tables = build_tables(full, terms.bucket_s)
    cost = np.empty((3, len(samples), 4))
    for g, i, d in np.ndindex(cost.shape):
        start_s, prompt, output, *_ = samples[i].tolist()
        life = (start_s + DELAYS[d] * terms.bucket_s, prompt, output * work.step_s[g], work.step_s[g])
        cost[g, i, d] = pricing.life_cost(tables[g], terms.bucket_s, *life)
    value = np.broadcast_to(work.value[work.samples[:, SampleColumn.ROUND] == 1], (len(samples), 4, 3))
    best = np.maximum((value.transpose(2, 0, 1) - cost).max(axis=(0, 2)), 0.0)
    free = terms.bucket_s * np.maximum(work.capacity - work.occupied, 0.0)
    expected = (free * full).sum() + samples[:, SampleColumn.WEIGHT] @ best
    assert problem.dual_objective(prices.ravel()) == pytest.approx(expected)


def test_small_steps_on_one_batch_come_near_the_exact_prices(work_stream):
    """Share of the way from price 0 to the exact dual that the best of many iterates leaves; never below the exact."""
    left = []
    for seed in range(4):
        work = work_stream(seed, devices=2, rounds=1, samples=40).next()
        # prices are neither capped nor drawn anywhere; look ahead over all buckets, and keep the grid
        terms = PriceScalars(*work.scalars)._replace(
            base_price=20.0, anchor_pull=0.0, lookahead_buckets=12, grid=0, next_grid=0
        )
        scalars = np.array(terms, dtype=float)
        problem = round_packing(dataclasses.replace(work, scalars=scalars), 0)
        exact = solve_packing(problem).objective
        block, reached = PriceBlock(np.arange(2), np.zeros((2, 2, 12)), 0), []
        for update_id, rate in enumerate(np.repeat([0.03, 0.01, 0.003, 0.001, 0.0003], 60)):
            scalars[1] = rate
            now = dataclasses.replace(
                work, update_id=update_id, scalars=scalars.copy(), accepted=np.full(2, update_id - 1)
            )
            (ready,) = run_update([block], now)
            reached.append(problem.dual_objective(ready.tables[:, :2, :-1].ravel()))
        assert min(reached) >= exact - 1e-9
        left.append((min(reached) - exact) / (problem.dual_objective(np.zeros(2 * 2 * 12)) - exact))
    assert max(left) < 0.1
