"""Random price updates for tests of whatever carries them."""

import numpy as np
import pytest

from olp_ray.core.prices import PriceScalars
from olp_ray.core.types import PriceWork


class WorkStream:
    """Successive updates of one fleet; `took` tells which devices' tables came in time, as the router would."""

    def __init__(self, devices=5, buckets=24, samples=40, rounds=2, seed=0):
        self.rng = np.random.default_rng(seed)
        self.device_ids = tuple(f"d{i}" for i in range(devices))
        self.buckets, self.samples, self.rounds = buckets, samples, rounds
        self.accepted = np.full(devices, -1)
        self.update_id = 0

    def next(self, due_s=float("inf")):
        rng, devices, n = self.rng, len(self.device_ids), self.samples * self.rounds
        capacity = np.stack([np.full((devices, self.buckets), 8.0), np.full((devices, self.buckets), 4000.0)], axis=1)
        first = self.update_id == 0
        grid = self.update_id // 2
        samples = np.stack(
            [
                rng.uniform(0, 10, n),
                rng.integers(10, 400, n),
                rng.uniform(5, 60, n),
                rng.uniform(0.5, 3, n),
                np.repeat(np.arange(self.rounds), self.samples),
            ],
            axis=1,
        )
        work = PriceWork(
            update_id=self.update_id,
            due_s=due_s,
            grid=grid,
            next_grid=(self.update_id + 1) // 2,
            rounds=self.rounds,
            device_ids=self.device_ids,
            scalars=np.array(
                PriceScalars(1.0, 0.1, 0.5, self.update_id % devices, devices, 16, grid, (self.update_id + 1) // 2)
            ),
            occupied=capacity * rng.uniform(0.5, 1.0, capacity.shape),
            capacity=capacity,
            step_s=rng.uniform(0.02, 0.2, devices),
            accepted=self.accepted.copy(),
            samples=samples,
            value=rng.uniform(0, 3, (n, 4, 1)),
            start_prices=np.zeros_like(capacity) if first else None,
        )
        self.update_id += 1
        return work

    def took(self, ready):
        for item in ready:
            for device_id in item.device_ids:
                self.accepted[self.device_ids.index(device_id)] = item.update_id


@pytest.fixture
def work_stream():
    """Builds a `WorkStream`."""
    return WorkStream
