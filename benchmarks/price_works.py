"""Random price updates of one fleet, for tests and measurements of whatever carries them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from olp_ray.core.prices import PriceScalars
from olp_ray.core.types import PricesReady, PriceWork


class WorkStream:
    """Successive updates; `took` tells which tables came in time, as the router would."""

    def __init__(self, devices: int = 5, buckets: int = 24, samples: int = 40, rounds: int = 2, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.device_ids = tuple(f"d{i}" for i in range(devices))
        self.buckets, self.samples, self.rounds = buckets, samples, rounds
        self.accepted = np.full(devices, -1)
        self.update_id = 0

    def next(self, due_s: float = float("inf")) -> PriceWork:
        """The next update; the first one has start prices."""
        devices, update_id = len(self.device_ids), self.update_id
        self.update_id += 1
        grid, next_grid = update_id // 2, (update_id + 1) // 2
        capacity = np.stack([np.full((devices, self.buckets), 8.0), np.full((devices, self.buckets), 4000.0)], axis=1)
        lookahead = self.buckets * 2 // 3
        samples = self._samples()
        return PriceWork(
            update_id=update_id,
            due_s=due_s,
            grid=grid,
            next_grid=next_grid,
            rounds=self.rounds,
            device_ids=self.device_ids,
            scalars=np.array(
                PriceScalars(1.0, 0.1, 0.5, 0.1, 0.02, 1e-4, update_id % devices, devices, lookahead, grid, next_grid),
                dtype=np.float64,
            ),
            occupied=capacity * self.rng.uniform(0.5, 1.0, capacity.shape),
            capacity=capacity,
            step_s=self.rng.uniform(0.02, 0.2, devices),
            accepted=self.accepted.copy(),
            samples=samples,
            value=self.rng.uniform(0, 3, (len(samples), 4, 1)),
            start_prices=np.zeros_like(capacity) if update_id == 0 else None,
        )

    def took(self, ready: Sequence[PricesReady]) -> None:
        """These tables are applied."""
        for item in ready:
            for device_id in item.device_ids:
                self.accepted[self.device_ids.index(device_id)] = item.update_id

    def _samples(self) -> np.ndarray:
        count, rng = self.samples * self.rounds, self.rng
        columns = [
            rng.uniform(0, self.buckets / 2, count),
            rng.integers(10, 400, count),
            rng.uniform(5, 60, count),
            rng.uniform(0.5, 3, count),
            np.repeat(np.arange(self.rounds), self.samples),
        ]
        return np.stack(columns, axis=1).astype(np.float64)
