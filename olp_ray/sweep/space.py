"""Points of a sweep's space, and the router config at a point. Knows nothing of Ray or of running anything.

A point is a dict from dotted router keys (`objective.ttft`) to numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from olp_ray.config.base import validate
from olp_ray.config.router import RouterConfig
from olp_ray.config.sweep import Axis, SweepConfig

Point = dict[str, float]


def grid_points(space: Mapping[str, Axis]) -> list[Point]:
    """Every combination of the axes' values, the last axis fastest."""
    columns = [axis.values or () for axis in space.values()]
    return [dict(zip(space, row, strict=True)) for row in itertools.product(*columns)]


def random_points(space: Mapping[str, Axis], trials: int, seed: int) -> list[Point]:
    """`trials` independent draws: uniform over values or range, uniform in the logarithm where `log` is set."""
    rng = np.random.default_rng(seed)
    return [{key: _draw(axis, rng) for key, axis in space.items()} for _ in range(trials)]


def fixed_points(sweep: SweepConfig) -> list[Point] | None:
    """The points to run, or None when the search picks them as results come in."""
    if sweep.search.method == "grid":
        return grid_points(sweep.space)
    if sweep.search.method == "random":
        assert sweep.search.trials is not None
        return random_points(sweep.space, sweep.search.trials, sweep.search.seed)
    return None


def router_at(base: RouterConfig, point: Mapping[str, float]) -> RouterConfig:
    """The router config with the point's numbers put in. Raises `ConfigError` naming the key that is out of domain."""
    data: dict[str, Any] = base.model_dump()
    for key, value in point.items():
        section, _, name = key.partition(".")
        data[section][name] = value
    return validate(data, RouterConfig, f"space point {describe(point)}")


def describe(point: Mapping[str, float]) -> str:
    """`objective.ttft=1 objective.e2e=0.5`"""
    return " ".join(f"{key}={value:g}" for key, value in point.items())


def _draw(axis: Axis, rng: np.random.Generator) -> float:
    if axis.values is not None:
        return float(rng.choice(axis.values))
    assert axis.low is not None
    assert axis.high is not None
    if axis.log:
        return float(np.exp(rng.uniform(np.log(axis.low), np.log(axis.high))))
    return float(rng.uniform(axis.low, axis.high))
