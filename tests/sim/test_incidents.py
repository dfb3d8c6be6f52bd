"""Schedules of failures, joins and speeds, and whole runs under them with the real router."""

from __future__ import annotations

import numpy as np
import pytest

from olp_ray.config import DeviceConfig, FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.sim import FailureConfig, JoinConfig, PrefillPoolConfig, SimConfig
from olp_ray.core.types import Request
from olp_ray.errors import ConfigError
from olp_ray.sim import Result, simulate
from olp_ray.sim.incidents import Joined, Lost, SpeedChanged, schedule
from olp_ray.workload import SimRequest

FLEET = FleetConfig.parse("2xa100-8b")
REQUESTS = [SimRequest(Request(f"r{i:03d}", 0.1 * i, 400, 150.0), 150) for i in range(150)]


def run(sim: SimConfig, policy: str = "least_outstanding", fleet: FleetConfig = FLEET) -> Result:
    router = build_priced_router(RouterConfig(policy=policy), fleet, "timed", 0)
    result = simulate(REQUESTS, fleet, "timed", router, update_s=1 / 3, sim=sim, seed=1)
    router.router.check_invariants()
    return result


def test_listed_failures_and_returns() -> None:
    sim = SimConfig(failures=(FailureConfig(device="d1", at_s=5, back_after_s=3), FailureConfig(device="d1", at_s=6)))
    lost, back = schedule(FLEET, "timed", sim, 100.0, 0)
    assert isinstance(lost, Lost)
    assert isinstance(back, Joined)
    assert (lost.time_s, lost.incarnation, back.time_s, back.device.incarnation) == (5, 0, 8, 1)


def test_drawn_failures_have_their_rate_and_follow_the_seed() -> None:
    sim = SimConfig(failure_every_s=100, restart_s=10)
    made = schedule(FLEET, "timed", sim, 20_000.0, 0)
    lost = [incident for incident in made if isinstance(incident, Lost)]
    assert abs(len(lost) / (2 * 20_000 / 110) - 1) < 0.15
    assert made == schedule(FLEET, "timed", sim, 20_000.0, 0)
    assert made != schedule(FLEET, "timed", sim, 20_000.0, 1)
    assert [i.time_s for i in made] == sorted(i.time_s for i in made)


def test_speeds_have_mean_one() -> None:
    sim = SimConfig(speed_jitter=0.3)
    speeds = [i.speed for i in schedule(FLEET, "timed", sim, 40_000.0, 0) if isinstance(i, SpeedChanged)]
    assert abs(np.mean(speeds) - 1) < 0.01
    assert abs(np.log(speeds).std() - 0.3) < 0.01


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"device 'd9' is unknown \(valid: d0, d1\)"):
        schedule(FLEET, "timed", SimConfig(failures=(FailureConfig(device="d9", at_s=1),)), 1.0, 0)


@pytest.mark.parametrize("policy", ["round_robin", "least_outstanding", "central_fifo", "online_lp"])
def test_a_failure_loses_no_request(policy: str) -> None:
    result = run(SimConfig(failures=(FailureConfig(device="d0", at_s=6, back_after_s=4),)), policy)
    table = result.requests
    assert (table["status"] == "finished").all()
    assert (table["generated_tokens"] == 150).all()
    assert (table["attempts"] > 1).any()
    again = table["attempts"] > 1
    assert (table["first_token_s"][again] > 6).all()  # an answer that starts over has its first token then
    used = result.decisions[(result.decisions["time_s"] > 6) & (result.decisions["time_s"] < 10)]
    assert (used["device_id"] == "d1").all()


@pytest.mark.parametrize("policy", ["round_robin", "least_outstanding", "central_fifo", "online_lp"])
def test_a_device_that_is_back_is_used_as_a_new_incarnation(policy: str) -> None:
    result = run(SimConfig(failures=(FailureConfig(device="d0", at_s=6, back_after_s=4),)), policy)
    on_first = result.decisions[result.decisions["device_id"] == "d0"]
    assert set(on_first["incarnation"][on_first["time_s"] < 6]) == {0}
    assert set(on_first["incarnation"][on_first["time_s"] > 6]) == {1}


def test_when_every_device_is_gone_what_comes_is_turned_away() -> None:
    gone = tuple(FailureConfig(device=f"d{g}", at_s=6) for g in range(2))
    table = run(SimConfig(failures=gone), "central_fifo").requests
    assert set(table["status"]) == {"finished", "rejected"}
    came_after = table["arrival_s"] >= 6
    assert (table["reject_reason"][came_after] == "no_device").all()
    assert set(table["reject_reason"][~came_after]) == {"", "max_wait"}  # the lost ones wait in vain


def test_a_joining_device_takes_requests_after_its_start_up() -> None:
    sim = SimConfig(joins=(JoinConfig(device=DeviceConfig(kind="h100-8b"), at_s=2, startup_s=5),))
    result = run(sim)
    on_new = result.decisions[result.decisions["device_id"] == "d2"]
    assert on_new["time_s"].min() >= 7
    assert set(result.busy_s) == {"d0", "d1", "d2"}


def test_jitter_changes_times_and_not_work() -> None:
    steady, shaky = run(SimConfig()), run(SimConfig(speed_jitter=0.3, jitter_every_s=1))
    assert shaky.requests["generated_tokens"].equals(steady.requests["generated_tokens"])
    assert not shaky.requests["finish_s"].equals(steady.requests["finish_s"])


def test_disaggregated_without_a_pool_starts_at_arrival_with_its_first_token() -> None:
    table = run(SimConfig(stage="disaggregated")).requests
    assert (table["first_token_s"] == table["arrival_s"]).all()
    assert (table["generated_tokens"] == 150).all()


def test_disaggregated_pool_queues_prompts() -> None:
    free = run(SimConfig(stage="disaggregated")).requests
    table = run(SimConfig(stage="disaggregated", prefill_pool=PrefillPoolConfig(count=1))).requests
    assert (table["prefilled_s"] > table["arrival_s"]).all()
    assert (table["first_token_s"] == table["prefilled_s"]).all()
    assert (table["start_s"] >= table["prefilled_s"]).all()
    assert (table["finish_s"] - table["arrival_s"]).mean() > (free["finish_s"] - free["arrival_s"]).mean()


def test_a_one_token_answer_ends_with_prefill() -> None:
    one = [SimRequest(Request("a", 0.0, 100, 1.0), 1)]
    router = build_priced_router(RouterConfig(policy="round_robin"), FLEET, "timed", 0)
    result = simulate(one, FLEET, "timed", router, update_s=1.0, sim=SimConfig(stage="disaggregated"))
    assert result.requests[["status", "generated_tokens"]].to_numpy().tolist() == [["finished", 1]]
    assert result.decisions.empty


def test_shared_prefixes_are_computed_once_per_device() -> None:
    shared = tuple(range(20))
    requests = [SimRequest(Request(f"r{i:03d}", 0.5 * i, 320, 20.0, prefix_blocks=shared), 20) for i in range(40)]
    router = build_priced_router(RouterConfig(policy="round_robin"), FLEET, "timed", 0)
    sim = SimConfig(prefix_caching=True, prefix_block_tokens=16)
    table = simulate(requests, FLEET, "timed", router, update_s=1.0, sim=sim).requests
    assert table["cached_prompt_tokens"].tolist() == [0, 0, *[319] * 38]  # the last token is always computed
    ttft = table["first_token_s"] - table["arrival_s"]
    assert ttft[2:].mean() < ttft[:2].mean()


def test_swap_avoids_computing_again() -> None:
    fleet = FleetConfig(devices=(DeviceConfig(kind="a100-7b", kv_tokens=6000),))
    times = {}
    for eviction in ("recompute", "swap"):
        router = build_priced_router(RouterConfig(policy="round_robin"), fleet, "timed", 0)
        sim = SimConfig(eviction=eviction, swap_tokens_per_s=1e6)
        table = simulate(REQUESTS[:40], fleet, "timed", router, update_s=1.0, sim=sim).requests
        assert table["preemptions"].sum() > 0
        times[eviction] = table["finish_s"].max()
    assert times["swap"] < times["recompute"]


def test_period_mode_refuses_what_it_does_not_have() -> None:
    fleet = FleetConfig.parse("1xB2M100")
    router = build_priced_router(RouterConfig(policy="round_robin"), fleet, "period", 0)
    with pytest.raises(ConfigError, match=r"sim eviction, speed_jitter: only timed mode has this"):
        simulate(REQUESTS, fleet, "period", router, update_s=8.0, sim=SimConfig(speed_jitter=0.1, eviction="swap"))
