"""Requests that contradict themselves, each other or the fleet: a clear error, or the rule that is stated for them."""

from __future__ import annotations

import math

import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.core.policies import POLICIES
from olp_ray.core.types import Request
from olp_ray.errors import WorkloadError
from olp_ray.sim import simulate
from olp_ray.sim.result import Result
from olp_ray.workload import SimRequest


def run(requests: list[SimRequest], fleet: str = "2xB2M100", policy: str = "online_lp") -> Result:
    devices = FleetConfig.parse(fleet)
    router = build_priced_router(RouterConfig(policy=policy), devices, "period", seed=0)
    return simulate(requests, devices, "period", router, update_s=8.0)


def one(name: str = "r", at_s: float = 1.0, prompt: int = 5, output: float = 3, predicted: float = 3.0) -> SimRequest:
    return SimRequest(Request(name, at_s, prompt, predicted), output)  # type: ignore[arg-type]


@pytest.mark.parametrize("output", [0, -2, math.nan, math.inf])
def test_a_true_length_that_is_none_is_an_error(output: float) -> None:
    with pytest.raises(WorkloadError, match=r"request 'r': output_tokens is .*; expected >= 1"):
        run([one(output=output)])


def test_an_arrival_before_time_0_is_an_error() -> None:
    with pytest.raises(WorkloadError, match=r"arrival_s is -1.0; expected >= 0"):
        run([one(at_s=-1.0)])


def test_an_id_twice_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="ids are not unique"):
        run([one(), one(at_s=2.0)])


def test_any_order_is_put_in_order_of_arrival_and_equal_times_in_order_of_ids() -> None:
    table = run([one("c", 9.0), one("b", 2.0), one("a", 2.0)], "1xB1M100", "central_fifo").requests
    starts = dict(zip(table["request_id"], table["start_s"], strict=True))
    assert starts == {"a": 2, "b": 5, "c": 9}


def test_no_requests_is_an_empty_run() -> None:
    result = run([])
    assert len(result.requests) == 0


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_no_device_can_ever_hold_is_rejected_at_once_and_the_rest_goes_on(policy: str) -> None:
    table = run([one("big", prompt=100), one("fine")], policy=policy).requests.set_index("request_id")
    assert (table.loc["big", "status"], table.loc["big", "reject_reason"]) == ("rejected", "never_fits")
    assert table.loc["fine", "status"] == "finished"


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_prediction_too_long_for_every_device_blocks_nothing(policy: str) -> None:
    """It is taken for what the device holds: a wrong prediction is no reason never to start."""
    table = run([one("long", predicted=1e6), one("fine", at_s=2.0)], policy=policy).requests
    assert (table["status"] == "finished").all()
