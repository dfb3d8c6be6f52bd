"""The LP of an update: shipped prices never beat its optimum, and it is the problem that gradient steps descend."""

from __future__ import annotations

import numpy as np

from benchmarks.exactness import batch_packing, run
from benchmarks.quality.cells import PeriodCell, period_workload
from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_router
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import InlinePricer, PriceBlock, pick_winners, rows_of, split_devices
from olp_ray.core.update_packing import look_ahead
from olp_ray.sim.simulate import simulate
from olp_ray.workload.predictors import parse_predictor
from olp_ray.workload.requests import make_requests

CELL = PeriodCell("small", "2xB6M10000", (0.08,))


def test_no_prices_beat_the_optimum():
    found = run(CELL, "balanced", 600, 5, None, seed=1)
    assert len(found) > 3
    assert min(min(m.dual, m.dual_at_zero) for m in found) > 1 - 1e-6


class LastWork:
    """A pricer that keeps the last work with prices above zero."""

    def __init__(self):
        self._pricer = InlinePricer()
        self.work = None

    def submit(self, work):
        self.work = work
        self._pricer.submit(work)

    def collect(self):
        return self._pricer.collect()


def test_the_dual_falls_along_the_excess_demand_of_a_step():
    frame = period_workload(CELL, 600, 1, None)
    requests = make_requests(frame, parse_predictor("perfect"), 1, rotate=False)
    fleet, pricer = FleetConfig.parse(CELL.fleet), LastWork()
    simulate(
        requests, fleet, "period", PricedRouter(build_router(RouterConfig(), fleet, "period", 1), pricer), update_s=8
    )
    work = pricer.work
    prices = np.abs(np.random.default_rng(0).normal(size=work.capacity.shape)) * 5 / work.capacity
    ahead = look_ahead(work)
    prices[:, :, ahead:] = prices[:, :, ahead // 2 : ahead].mean(axis=2, keepdims=True)
    problem, flat = batch_packing(work, prices)
    step = 1e-6 * np.random.default_rng(1).normal(size=flat.shape) * flat
    demand = _demand_over_capacity(work, prices)
    slope = ((np.maximum(work.capacity - work.occupied, 0) - demand)[:, :, :ahead].ravel() * 16.0) @ step
    difference = problem.dual_objective(flat + step) - problem.dual_objective(flat - step)
    assert difference / 2 == np.float64(slope) or abs(difference / 2 - slope) < 1e-3 * abs(slope)


def _demand_over_capacity(work, prices):
    """Mean demand per bucket at these prices over all rounds of the batch."""
    total = np.zeros(work.capacity.shape)
    for round_index in range(work.rounds):
        (indices,) = split_devices(len(work.device_ids), 1)
        block = PriceBlock(indices, prices, work.grid)
        block.begin(0, work.scalars, *_rows(work, indices))
        winners = pick_winners([block.best(round_index)], work.scalars)
        total += block._demand(winners) / work.rounds
    return total


def _rows(work, indices):
    per_device, value = rows_of(work, indices)
    return per_device, work.samples, value
