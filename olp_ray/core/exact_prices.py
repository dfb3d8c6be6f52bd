"""Exact optima of packing LPs by HiGHS, as the reference that cheap price updates are measured against.

Only solving lives here; the problems are `core.packing.Packing`. Far too slow for a router at work: for tests,
benchmarks and small runs of `online_lp_paper` with `exact`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from olp_ray.core.packing import Packing
from olp_ray.errors import PriceError


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """objective is r'x; prices and option_values are a dual optimum (Section 3.2)."""

    objective: float
    chosen: np.ndarray  # (O,) x
    prices: np.ndarray  # (I,) p
    option_values: np.ndarray  # (N,) y


def solve_packing(problem: Packing) -> Optimum:
    """The LP's optimum and its dual prices. Raises `PriceError` when a capacity or limit is negative."""
    matrix, bounds = _constraints(problem)
    # the stubs of scipy do not know that linprog takes sparse matrices
    result = linprog(-problem.value, A_ub=matrix, b_ub=bounds, method="highs")  # type: ignore[call-overload]
    if result.status != 0:
        raise PriceError(f"packing LP of {len(problem.value)} options: {result.message}")
    dual = -result.ineqlin.marginals
    resources = len(problem.capacity)
    return Optimum(-float(result.fun), result.x, np.maximum(dual[:resources], 0.0), np.maximum(dual[resources:], 0.0))


def solve_packing_integral(problem: Packing) -> np.ndarray:
    """The best x of whole numbers, (O,). Raises `PriceError` as `solve_packing`."""
    matrix, bounds = _constraints(problem)
    options = len(problem.value)
    result = milp(
        -problem.value,
        constraints=LinearConstraint(matrix, -np.inf, bounds),
        integrality=np.ones(options, dtype=np.int64),
        bounds=Bounds(0, np.inf),
    )
    if result.status != 0:
        raise PriceError(f"packing integer programme of {options} options: {result.message}")
    return np.rint(result.x)


def _constraints(problem: Packing) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Rows of resources, then of groups, and their upper bounds."""
    bounds = np.concatenate([problem.capacity, problem.limit])
    if not (bounds >= 0).all():
        raise PriceError(f"packing LP: capacities and limits must be >= 0, the least is {bounds.min():g}")
    options = len(problem.value)
    row = np.concatenate([problem.row, len(problem.capacity) + problem.group])
    column = np.concatenate([problem.option, np.arange(options)])
    coefficient = np.concatenate([problem.coefficient, np.ones(options)])
    return sparse.csr_matrix((coefficient, (row, column)), shape=(len(bounds), options)), bounds
