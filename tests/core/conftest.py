"""What the tests of the core share: small fleets, requests, quick settings, random price work."""

import dataclasses

import numpy as np
import pytest

from olp_ray.config.router import RouterConfig
from olp_ray.core.prices import PriceScalars
from olp_ray.core.types import Device, Objective, PriceWork, Request


@pytest.fixture(scope="session")
def make_device():
    def build(device_id="g0", slots=4, kv_tokens=1000, step_s=1.0, **fields):
        return Device(device_id, slots, kv_tokens, step_s, **fields)

    return build


@pytest.fixture(scope="session")
def make_request():
    def build(request_id="r", arrival_s=0.0, prompt_tokens=10, predicted=20.0, **fields):
        return Request(request_id, arrival_s, prompt_tokens, predicted, **fields)

    return build


@pytest.fixture(scope="session")
def make_objective():
    def build(throughput=0.0, e2e=0.0, ttft=0.0, qps=0.0, tail_e2e=0.0, tail_ttft=0.0, t1=100.0, t2=49.0):
        return Objective(throughput, e2e, ttft, qps, tail_e2e, tail_ttft, t1, t2)

    return build


@pytest.fixture(scope="session")
def make_settings():
    """Policy settings of the period model; quick ones have few buckets and samples, so that prices move early."""

    def build(objective=None, quick=True, rejects="never", **overrides):
        settings = RouterConfig().settings("period")
        if quick:
            small = {
                "bucket_s": 4.0,
                "horizon_s": 96.0,
                "lookahead_s": 32.0,
                "update_s": 2.0,
                "batch": 12,
                "min_arrivals": 3,
                "history": 32,
                "rate_window": 16,
            }
            overrides = {**small, **overrides}
        return dataclasses.replace(
            settings,
            objective=objective or settings.objective,
            rejects=rejects,
            online_lp=dataclasses.replace(settings.online_lp, **overrides),
        )

    return build


@pytest.fixture(scope="session")
def limits():
    return RouterConfig().limits()


class WorkStream:
    """Successive random price updates of one fleet, two to a bucket, as a router would send them."""

    def __init__(self, seed, devices, columns="one", buckets=12, samples=14, rounds=2):
        self.rng = np.random.default_rng(seed)
        self.devices, self.columns, self.buckets, self.samples, self.rounds = devices, columns, buckets, samples, rounds
        self.accepted = np.full(devices, -1)
        self.update_id = 0

    def next(self, **overrides):
        """The next update; `overrides` replace fields of the work."""
        rng, devices, n = self.rng, self.devices, self.samples * self.rounds
        shape = (devices, self.buckets)
        capacity = np.stack([rng.integers(2, 9, shape), rng.integers(200, 900, shape)], axis=1).astype(float)
        columns = [
            rng.integers(0, 8, n) * 4.0,
            rng.integers(0, 200, n),
            rng.uniform(1, 40, n),
            rng.uniform(0.2, 4, n),
            np.repeat(np.arange(self.rounds), self.samples),
        ]
        grid, next_grid = self.update_id // 2, (self.update_id + 1) // 2
        scalars = PriceScalars(4.0, 0.3, 0.8, 0.1, 0.02, 1e-4, self.update_id % devices, devices, 8, grid, next_grid)
        value = rng.uniform(-0.5, 6, (n, 4, 1 if self.columns == "one" else devices))
        if self.columns != "one":
            value[rng.random(value.shape) < 0.1] = -np.inf
        work = PriceWork(
            update_id=self.update_id,
            due_s=float("inf"),
            grid=grid,
            next_grid=next_grid,
            rounds=self.rounds,
            device_ids=tuple(f"g{i}" for i in range(devices)),
            scalars=np.array(scalars, dtype=float),
            occupied=capacity * rng.uniform(0.2, 1.2, capacity.shape),
            capacity=capacity,
            step_s=rng.choice([0.5, 0.75, 1.0, 1.3], devices),
            accepted=self.accepted.copy(),
            samples=np.stack(columns, axis=1).astype(float),
            value=value,
            start_prices=rng.uniform(0, 0.3, capacity.shape) / capacity if self.update_id == 0 else None,
        )
        self.update_id += 1
        return dataclasses.replace(work, **overrides)


@pytest.fixture(scope="session")
def work_stream():
    """Builds a `WorkStream`."""
    return WorkStream
