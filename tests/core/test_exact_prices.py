"""Packing LPs: the dual function, HiGHS' optimum, and brute force over whole assignments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.exact_prices import solve_packing, solve_packing_integral
from olp_ray.core.packing import Packing
from olp_ray.errors import PriceError


def per_step_lp(seed):
    """Eq. 4 and 5 with few requests, devices and periods, from plain kernels (eq. 1)."""
    rng = np.random.default_rng(seed)
    requests, devices, periods = rng.integers(1, 5), rng.integers(1, 3), rng.integers(1, 6)
    prompt, output = rng.integers(0, 6, requests), rng.integers(1, 6, requests)
    free = np.stack([rng.integers(0, 3, (devices, periods)), rng.integers(0, 25, (devices, periods))], axis=1)
    entries = []
    for j, g in itertools.product(range(requests), range(devices)):
        for theta in range(min(output[j], periods)):
            for u, used in ((0, 1), (1, prompt[j] + theta + 1)):
                entries.append(((g * 2 + u) * periods + theta, j * devices + g, used))
    row, option, coefficient = np.array(entries).T
    return Packing(
        capacity=free.ravel().astype(float),
        value=rng.integers(0, 20, requests * devices).astype(float),
        group=np.repeat(np.arange(requests), devices),
        limit=np.ones(requests),
        row=row,
        option=option,
        coefficient=coefficient.astype(float),
    )


def brute_force(problem):
    """The best value over every way of sending each request to one device or none."""
    groups = [[-1, *np.flatnonzero(problem.group == n)] for n in range(len(problem.limit))]
    best = 0.0
    for choice in itertools.product(*groups):
        taken = np.zeros(len(problem.value))
        taken[[o for o in choice if o >= 0]] = 1.0
        used = np.zeros(len(problem.capacity))
        np.add.at(used, problem.row, problem.coefficient * taken[problem.option])
        if (used <= problem.capacity).all():
            best = max(best, float(problem.value @ taken))
    return best


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_per_step_lp_against_brute_force(seed):
    problem = per_step_lp(seed)
    best = brute_force(problem)
    assert problem.value @ solve_packing_integral(problem) == pytest.approx(best)
    assert solve_packing(problem).objective >= best - 1e-7


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_duality(seed):
    """The optimal prices close the gap, their option values are the closed form, and no other prices go below."""
    problem = per_step_lp(seed)
    found = solve_packing(problem)
    assert problem.dual_objective(found.prices) == pytest.approx(found.objective, abs=1e-6)
    assert problem.option_value(found.prices) == pytest.approx(found.option_values, abs=1e-6)
    other = np.random.default_rng(seed).exponential(2.0, len(found.prices))
    assert problem.dual_objective(other) >= found.objective - 1e-6


def test_closed_form():
    """One slot, two requests that want it: its price is the loser's value, the winner keeps the difference."""
    one = np.ones(2)
    problem = Packing(np.ones(1), np.array([5.0, 3.0]), np.arange(2), one, np.zeros(2, int), np.arange(2), one)
    found = solve_packing(problem)
    assert found.objective == pytest.approx(5.0)
    assert found.chosen == pytest.approx([1.0, 0.0])
    assert problem.dual_objective(np.array([3.0])) == pytest.approx(5.0)
    assert problem.option_value(np.array([3.0])).tolist() == [2.0, 0.0]


def test_negative_capacity_is_refused():
    one = np.ones(1)
    problem = Packing(-one, one, np.zeros(1, int), one, np.zeros(1, int), np.zeros(1, int), one)
    with pytest.raises(PriceError, match="must be >= 0, the least is -1"):
        solve_packing(problem)
