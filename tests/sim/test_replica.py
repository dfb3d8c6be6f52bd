"""The event-skipping engine against its stepped twin, under the same loop and router: exactly equal."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from olp_ray.core.types import Arrived, Assign, AssignmentKey, Request, Step
from olp_ray.errors import ConfigError, SimulationError
from olp_ray.hardware import DEVICE_KINDS
from olp_ray.sim import devices
from olp_ray.sim import run as loop
from olp_ray.sim.engine import EngineSpec, Sequence
from olp_ray.sim.latency import IterationTime
from olp_ray.sim.replica import Replica
from olp_ray.workload import SimRequest
from tests.sim.plain_replica import PlainReplica


class Recorder:
    """Round robin by arrival that keeps everything it was told."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.told: list[Any] = []
        self.count = 0

    def handle(self, now_s: float, events: Any) -> Step:
        decisions = []
        for event in events:
            told = [now_s, type(event).__name__]
            for name in ("key", "keys", "output_tokens", "decoded_tokens"):
                value = getattr(event, name, None)
                told.append(value.tolist() if isinstance(value, np.ndarray) else value)
            self.told.append(told)
            if isinstance(event, Arrived):
                key = AssignmentKey(event.request.id, event.request.stage, f"d{self.count % self.devices}", 0, 0)
                self.count += 1
                decisions.append(Assign(key, event.request))
        return Step(tuple(decisions))


def spec_of(
    slots: int = 4,
    kv_tokens: int = 200,
    block: int = 4,
    budget: int = 16,
    watermark: int = 0,
    prefill: bool = True,
    recompute: bool = True,
    time: IterationTime | None = None,
) -> EngineSpec:
    time = time or IterationTime.of_kind(DEVICE_KINDS["a100-7b"])
    return EngineSpec(slots, kv_tokens, block, budget, watermark, prefill, recompute, time)


def requests_of(rows: list[tuple[float, int, int]]) -> list[SimRequest]:
    return [SimRequest(Request(f"r{i:03d}", t, s, float(o)), o) for i, (t, s, o) in enumerate(rows)]


def run_with(
    replica: type, spec: EngineSpec, rows: list[tuple[float, int, int]], update_s: float, period: bool = False
) -> tuple[pd.DataFrame, list[Any], loop.Simulation]:
    with mock.patch.object(devices, "Replica", replica):
        router = Recorder(2)
        simulation = loop.Simulation(
            requests_of(rows), {"d0": spec, "d1": spec}, router, period=period, update_s=update_s, timeline=True
        )
        result = simulation.run()
    told = [entry for entry in router.told if entry[1] != "Progressed"]
    progress = [
        [*entry[:3], sorted(zip(entry[3], entry[5], strict=True))] for entry in router.told if entry[1] == "Progressed"
    ]
    assert result.timeline is not None
    return result.requests, [told, progress, result.timeline.values.tolist()], simulation


rows = st.lists(
    st.tuples(
        st.one_of(st.floats(0, 2, allow_nan=False), st.integers(0, 2).map(float)),
        st.integers(0, 60),
        st.integers(1, 120),
    ),
    min_size=1,
    max_size=14,
)
specs = st.builds(
    spec_of,
    slots=st.integers(1, 6),
    kv_tokens=st.integers(80, 400),
    block=st.sampled_from([1, 4, 16]),
    budget=st.integers(6, 40),
    watermark=st.integers(0, 2),
    prefill=st.booleans(),
    recompute=st.booleans(),
).filter(lambda spec: spec.prefill <= spec.recompute)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=rows, spec=specs, update_s=st.sampled_from([math.inf, 0.05]))
def test_skipping_equals_stepping(rows: list[tuple[float, int, int]], spec: EngineSpec, update_s: float) -> None:
    fast, fast_told, _ = run_with(Replica, spec, rows, update_s)
    plain, plain_told, _ = run_with(PlainReplica, spec, rows, update_s)
    assert fast_told == plain_told
    pd.testing.assert_frame_equal(fast, plain, check_exact=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=rows, slots=st.integers(1, 5), kv_tokens=st.integers(80, 300))
def test_skipping_equals_stepping_in_periods(rows: list[tuple[float, int, int]], slots: int, kv_tokens: int) -> None:
    spec = spec_of(slots, kv_tokens, 1, slots, 0, False, False, IterationTime.constant(1.0))
    fast, fast_told, _ = run_with(Replica, spec, rows, 8.0, period=True)
    plain, plain_told, _ = run_with(PlainReplica, spec, rows, 8.0, period=True)
    assert fast_told == plain_told
    pd.testing.assert_frame_equal(fast, plain, check_exact=True)


def test_finished_requests_have_their_true_length_and_leave_the_engine_empty() -> None:
    spec = spec_of(slots=3, kv_tokens=160)
    table, _, simulation = run_with(Replica, spec, [(0.0, 30, 50), (0.01, 40, 60), (0.02, 20, 70), (0.5, 5, 1)], 0.1)
    assert table["generated_tokens"].tolist() == [50, 60, 70, 1]
    for replica in simulation.devices.replicas.values():
        assert replica.free_blocks == spec.blocks
        assert not replica.running
        assert replica.kv_tokens(simulation.now_s) == 0


def test_latest_admitted_is_evicted_when_kv_runs_out_and_is_recomputed() -> None:
    spec = spec_of(slots=4, kv_tokens=64, block=4)
    table, _, _ = run_with(Replica, spec, [(0.0, 16, 40), (0.0, 1, 1), (0.0, 16, 40)], math.inf)
    assert table["preemptions"].tolist() == [0, 0, 1]
    assert table["generated_tokens"].tolist() == [40, 1, 40]


def test_an_output_beyond_the_kv_capacity_is_cut_there() -> None:
    table, _, _ = run_with(Replica, spec_of(kv_tokens=64), [(0.0, 30, 1000)], math.inf)
    assert table["generated_tokens"].tolist() == [34]


def test_a_prompt_that_can_never_fit_is_an_error() -> None:
    request = Request("big", 0.0, 64, 1.0)
    key = AssignmentKey("big", request.stage, "d0", 0, 0)
    with pytest.raises(SimulationError, match=r"'big'.*d0.*64 \+ 1 tokens, KV capacity 64"):
        Replica(spec_of(kv_tokens=64)).enqueue(Sequence(key, 64, 1), 0.0)


def test_budget_below_slots_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"prefill_chunk_tokens is 3; expected at least slots \(4\)"):
        spec_of(budget=3)
