"""Nothing is lost and no limit is broken, over all stages and options of the simulator: looked at in every instant."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from olp_ray.config import DeviceConfig, FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.sim import SimConfig
from olp_ray.core.types import Request
from olp_ray.sim.incidents import schedule
from olp_ray.sim.prefill_pool import FreePrefill
from olp_ray.sim.run import Simulation
from olp_ray.sim.simulate import fleet_engines
from olp_ray.workload import SimRequest

SLOTS, KV_TOKENS, BLOCK_TOKENS = 4, 640, 16
FLEET = FleetConfig(devices=(DeviceConfig(kind="a100-7b", count=2, slots=SLOTS, kv_tokens=KV_TOKENS),))
POLICIES = ("round_robin", "least_kv", "central_fifo", "central_sjf", "online_lp")

options = st.fixed_dictionaries(
    {
        "stage": st.sampled_from(["mixed", "disaggregated"]),
        "watermark": st.sampled_from([0.0, 0.1]),
        "eviction": st.sampled_from(["recompute", "swap"]),
        "prefix_caching": st.booleans(),
        "prefix_block_tokens": st.just(16),
        "speed_jitter": st.sampled_from([0.0, 0.3]),
        "jitter_every_s": st.just(0.5),
        "failures": st.sampled_from([[], [{"device": "d0", "at_s": 0.4, "back_after_s": 0.3}]]),
    }
)
rows = st.lists(
    st.tuples(st.floats(0, 1.5), st.integers(0, 500), st.integers(1, 300), st.integers(0, 2)), min_size=1, max_size=24
)


def requests_of(drawn: list[tuple[float, int, int, int]]) -> list[SimRequest]:
    """(arrival, prompt, output, family of shared prefixes), with hashes of blocks of 16 tokens."""
    made = []
    for i, (arrival_s, prompt, output, family) in enumerate(drawn):
        blocks = tuple(1000 * family + block for block in range(prompt // 16))
        made.append(SimRequest(Request(f"r{i:03d}", arrival_s, prompt, float(output), prefix_blocks=blocks), output))
    return made


def run_watched(requests: list[SimRequest], policy: str, mode: Any, sim: SimConfig) -> None:
    config = RouterConfig(policy=policy, preset="e2e", prefix_block_tokens=sim.prefix_block_tokens)
    simulation = Simulation(
        requests,
        fleet_engines(FLEET, mode, sim),
        build_priced_router(config, FLEET, mode, 0),
        period=mode == "period",
        update_s=config.settings(mode).online_lp.update_s,
        prefill=FreePrefill() if sim.stage == "disaggregated" else None,
        incidents=schedule(FLEET, mode, sim, 4.0, 0),
    )
    while simulation.step():
        for replica in simulation.devices.replicas.values():
            assert len(replica.running) <= SLOTS
            assert replica.free_blocks >= 0
            assert 0 <= replica.kv_tokens(simulation.now_s) <= KV_TOKENS
    for replica in simulation.devices.replicas.values():
        assert replica.free_blocks == replica.spec.blocks
        assert not replica.running
        assert not replica.waiting
    result = simulation.result()
    table = result.requests
    assert (table["status"] == "finished").all()
    room = KV_TOKENS - table["prompt_tokens"].clip(lower=0 if mode == "period" else 1)
    assert (table["generated_tokens"] == table["output_tokens"].clip(upper=room)).all()
    assert all(busy_s <= result.end_s * (1 + 1e-12) for busy_s in result.busy_s.values())
    times = table[["arrival_s", "assigned_s", "start_s", "finish_s"]].dropna().to_numpy()
    assert (times[:, 1:] >= times[:, :-1]).all()
    assert math.isfinite(result.end_s)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=rows, policy=st.sampled_from(POLICIES), sim=options)
def test_timed_mode_conserves(drawn: list[tuple[float, int, int, int]], policy: str, sim: dict[str, Any]) -> None:
    run_watched(requests_of(drawn), policy, "timed", SimConfig.model_validate(sim))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=rows, policy=st.sampled_from(POLICIES))
def test_period_mode_conserves(drawn: list[tuple[float, int, int, int]], policy: str) -> None:
    run_watched(requests_of(drawn), policy, "period", SimConfig())
