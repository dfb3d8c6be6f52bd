"""Points of grids and random searches, and the router at a point."""

from __future__ import annotations

import numpy as np
import pytest

from olp_ray.config import RouterConfig
from olp_ray.config.sweep import Axis, SearchConfig, SweepConfig
from olp_ray.errors import ConfigError
from olp_ray.sweep.space import describe, fixed_points, grid_points, random_points, router_at

SPACE = {"objective.ttft": Axis(values=(0.0, 1.0)), "objective.e2e": Axis(values=(0.0, 0.5, 1.0))}


def test_grid_is_every_combination_in_order() -> None:
    points = grid_points(SPACE)
    assert len(points) == 6
    assert points[:2] == [{"objective.ttft": 0, "objective.e2e": 0}, {"objective.ttft": 0, "objective.e2e": 0.5}]


def test_random_points_repeat_by_seed_and_stay_inside() -> None:
    space = {"a": Axis(low=0.01, high=100, log=True), "b": Axis(low=-1, high=1), "c": Axis(values=(3.0, 4.0))}
    points = random_points(space, 400, seed=1)
    assert points == random_points(space, 400, seed=1)
    assert points != random_points(space, 400, seed=2)
    a, b, c = (np.array([p[key] for p in points]) for key in space)
    assert a.min() >= 0.01
    assert a.max() <= 100
    assert abs(np.log10(a).mean()) < 0.2  # uniform in the logarithm: centred on 1
    assert abs(b.mean()) < 0.1
    assert set(c) == {3.0, 4.0}


def test_fixed_points_by_method() -> None:
    objectives = {"e2e_mean_s": "min"}
    grid = SweepConfig.model_validate({"space": SPACE, "objectives": objectives})
    drawn = grid.model_copy(update={"search": SearchConfig(method="random", trials=3)})
    searched = grid.model_copy(update={"search": SearchConfig(method="optuna", trials=3)})
    assert len(fixed_points(grid) or ()) == 6
    assert len(fixed_points(drawn) or ()) == 3
    assert fixed_points(searched) is None


def test_router_at_a_point_changes_only_that() -> None:
    base = RouterConfig(preset="e2e")
    router = router_at(base, {"objective.ttft": 2.0, "online_lp.rounds": 3.0})
    assert router.core_objective("timed").weights == (0, 1, 2, 0, 0, 0)
    assert router.online_lp.rounds == 3
    assert router.online_lp.guard == base.online_lp.guard


def test_router_at_an_impossible_point_names_it() -> None:
    with pytest.raises(ConfigError, match=r"space point online_lp\.guard=2: online_lp\.guard: .*got 2"):
        router_at(RouterConfig(), {"online_lp.guard": 2.0})


def test_describe() -> None:
    assert describe({"objective.ttft": 1.0, "objective.e2e": 0.5}) == "objective.ttft=1 objective.e2e=0.5"
