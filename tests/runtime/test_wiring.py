import numpy as np
import pandas as pd
import pytest

from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.config.build import build_priced_router
from olp_ray.core.types import Request
from olp_ray.errors import ConfigError
from olp_ray.runtime.wiring import ray_router, resolve_shards
from olp_ray.sim.engine import engine_spec
from olp_ray.sim.run import Simulation
from olp_ray.workload.request import SimRequest

FLEET = FleetConfig.parse("3xB6M4000")
CONFIG = RouterConfig(policy="online_lp", preset="attainment")


def requests(count, seed):
    """Poisson arrivals somewhat above what the fleet can carry."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(3.0, count))
    prompts, outputs = rng.integers(5, 300, count), rng.integers(2, 150, count)
    predicted = np.maximum(1.0, outputs * rng.uniform(0.8, 1.2, count))
    return [
        SimRequest(Request(f"r{i}", float(arrivals[i]), int(prompts[i]), float(predicted[i])), int(outputs[i]))
        for i in range(count)
    ]


def simulate(router, count, seed):
    engines = {f"d{i}": engine_spec(device, "period") for i, device in enumerate(FLEET.expand())}
    result = Simulation(requests(count, seed), engines, router, period=True, update_s=8.0).run()
    return result, router.router.policy.snapshot()["prices"]["tables"]


@pytest.mark.ray_local
@pytest.mark.parametrize(("shards", "seed"), [(1, 0), (3, 1)])
def test_500_requests_are_routed_as_inline_row_for_row_and_prices_are_equal_to_the_bit(ray_local, shards, seed):
    inline, inline_tables = simulate(build_priced_router(CONFIG, FLEET, "period", seed), 500, seed)
    with ray_router(CONFIG, FLEET, "period", seed, shards) as router:
        ours, tables = simulate(router, 500, seed)
    assert len(ours.requests) == 500
    pd.testing.assert_frame_equal(ours.requests, inline.requests, check_exact=True)
    pd.testing.assert_frame_equal(ours.decisions, inline.decisions, check_exact=True)
    assert inline_tables.any()
    np.testing.assert_array_equal(tables, inline_tables)


@pytest.mark.ray_local
def test_shards_are_up_before_the_first_call(ray_local):
    with ray_router(CONFIG, FLEET, "period", 0, 2) as router:
        assert [process.up.done() for process in router.pricer._pool.processes] == [True, True]


def test_less_than_one_shard_is_an_error():
    with (
        pytest.raises(ConfigError, match="--shards is 0; expected at least 1"),
        ray_router(CONFIG, FLEET, "period", 0, 0),
    ):
        pass


@pytest.mark.parametrize(
    ("shards", "devices", "nodes", "expected"),
    [
        ("auto", 4, 1, 0),
        ("auto", 4, 3, 3),
        ("auto", 1024, 1, 2),
        ("auto", 399, 1, 0),
        ("auto", 400, 1, 2),
        ("per_device", 7, 1, 7),
        (3, 7, 1, 3),
        (9, 7, 1, 7),
        (0, 7, 2, 0),
    ],
)
def test_how_many_shards(shards, devices, nodes, expected):
    count, reason = resolve_shards(RuntimeConfig(shards=shards), devices, nodes)
    assert count == expected
    assert reason


def test_the_policy_that_keeps_its_own_prices_takes_no_shards():
    config = RouterConfig(policy="online_lp_paper")
    with (
        pytest.raises(ConfigError, match=r"shards is 2 with policy 'online_lp_paper'.*shards 0"),
        ray_router(config, FLEET, "period", 0, 2),
    ):
        pass
