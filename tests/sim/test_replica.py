"""The event-skipping engine against its stepped twin, under the same loop and router: exactly equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from olp_ray.core.types import (
    Arrived,
    Assign,
    AssignmentKey,
    Device,
    DeviceJoined,
    DeviceLost,
    Finished,
    Request,
    Stage,
    Step,
)
from olp_ray.errors import ConfigError, SimulationError
from olp_ray.hardware import DEVICE_KINDS
from olp_ray.sim import devices, engine
from olp_ray.sim import run as loop
from olp_ray.sim.engine import EngineSpec
from olp_ray.sim.incidents import Incident, Joined, Lost, SpeedChanged
from olp_ray.sim.latency import IterationTime
from olp_ray.sim.replica import Replica
from olp_ray.workload import SimRequest
from tests.sim.plain_replica import PlainReplica


class Recorder:
    """Round robin over the devices that are up; keeps everything it was told, and starts over what a device lost."""

    def __init__(self, devices: int) -> None:
        self.up = {f"d{g}": 0 for g in range(devices)}
        self.held: dict[str, Assign] = {}
        self.waiting: list[tuple[Request, int]] = []
        self.told: list[Any] = []
        self.count = 0

    def handle(self, now_s: float, events: Any) -> Step:
        for event in events:
            told = [now_s, type(event).__name__]
            for name in ("key", "keys", "output_tokens", "decoded_tokens"):
                value = getattr(event, name, None)
                told.append(value.tolist() if isinstance(value, np.ndarray) else value)
            self.told.append(told)
            if isinstance(event, Arrived):
                self.waiting.append((event.request, 0))
            elif isinstance(event, Finished):
                del self.held[event.key.request_id]
            elif isinstance(event, DeviceLost):
                del self.up[event.device_id]
                lost = [a for a in self.held.values() if a.key.device_id == event.device_id]
                self.waiting += [(a.request, a.key.attempt + 1) for a in lost]
            elif isinstance(event, DeviceJoined):
                self.up[event.device.id] = event.device.incarnation
        decisions = []
        while self.waiting and self.up:
            request, attempt = self.waiting.pop(0)
            device_id = sorted(self.up)[self.count % len(self.up)]
            self.count += 1
            key = AssignmentKey(request.id, request.stage, device_id, self.up[device_id], attempt)
            self.held[request.id] = Assign(key, request)
            decisions.append(self.held[request.id])
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
    swap_token_fs: int | None = None,
    prefix_block_tokens: int | None = None,
) -> EngineSpec:
    time = time or IterationTime.of_kind(DEVICE_KINDS["a100-7b"])
    return EngineSpec(
        slots, kv_tokens, block, budget, watermark, prefill, recompute, time, swap_token_fs, prefix_block_tokens
    )


Row = tuple[float, int, int] | tuple[float, int, int, int]  # arrival, prompt, output, family of shared prefixes


def requests_of(rows: Sequence[Row], stage: Stage) -> list[SimRequest]:
    """A prompt of family f has the hashes (f, 1), (f, 2), ... of its blocks of 8 tokens."""
    made = []
    for i, (arrival_s, prompt, output, *family) in enumerate(rows):
        blocks = tuple(100 * f + block for f in family for block in range(prompt // 8))
        request = Request(f"r{i:03d}", arrival_s, prompt, float(output), stage=stage, prefix_blocks=blocks)
        made.append(SimRequest(request, output))
    return made


def run_with(
    replica: type,
    spec: EngineSpec,
    rows: Sequence[Row],
    update_s: float,
    *,
    period: bool = False,
    incidents: Sequence[Incident] = (),
) -> tuple[pd.DataFrame, list[Any], loop.Simulation]:
    stage = Stage.MIXED if spec.prefill or period else Stage.DECODE
    with mock.patch.object(devices, "Replica", replica):
        router = Recorder(2)
        simulation = loop.Simulation(
            requests_of(rows, stage),
            {"d0": spec, "d1": spec},
            router,
            period=period,
            update_s=update_s,
            incidents=incidents,
            timeline=True,
        )
        result = simulation.run()
    told = [entry for entry in router.told if entry[1] != "Progressed"]
    reports = [entry for entry in router.told if entry[1] == "Progressed"]
    progress = [[*entry[:3], sorted(zip(entry[3], entry[5], strict=True))] for entry in reports]
    assert result.timeline is not None
    return result.requests, [told, progress, result.timeline.to_numpy().tolist()], simulation


def rows_of(least_output: int) -> st.SearchStrategy[list[Row]]:
    """A decode stage gets requests whose first token is there: at least two in all."""
    arrivals = st.one_of(st.floats(0, 2, allow_nan=False), st.integers(0, 2).map(float))
    row = st.tuples(arrivals, st.integers(0, 60), st.integers(least_output, 120), st.integers(0, 2))
    return st.lists(row, min_size=1, max_size=14)


specs = st.builds(
    spec_of,
    slots=st.integers(1, 6),
    kv_tokens=st.integers(80, 400),
    block=st.sampled_from([1, 4, 16]),
    budget=st.integers(6, 40),
    watermark=st.integers(0, 2),
    prefill=st.booleans(),
    swap_token_fs=st.sampled_from([None, 10**10]),
    prefix_block_tokens=st.sampled_from([None, 8]),
)


@st.composite
def incidents_of(draw: st.DrawFn, spec: EngineSpec) -> list[Incident]:
    made: list[Incident] = []
    for device_id in ("d0", "d1"):
        times = st.floats(0, 3, allow_nan=False)
        changes = draw(st.lists(st.tuples(times, st.sampled_from([0.5, 0.8, 1.25, 2.0])), max_size=3))
        made += [SpeedChanged(time_s, device_id, speed) for time_s, speed in changes]
        if draw(st.booleans()):
            at_s = draw(times)
            made += [
                Lost(at_s, device_id, 0),
                Joined(at_s + draw(st.floats(0.01, 1)), Device(device_id, 4, 200, 0.01, 1), spec),
            ]
    return sorted(made, key=lambda incident: incident.time_s)


def assert_equal_runs(spec: EngineSpec, rows: Sequence[Row], update_s: float, **more: Any) -> None:
    fast, fast_told, _ = run_with(Replica, spec, rows, update_s, **more)
    plain, plain_told, _ = run_with(PlainReplica, spec, rows, update_s, **more)
    assert fast_told == plain_told
    pd.testing.assert_frame_equal(fast, plain, check_exact=True)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), spec=specs, update_s=st.sampled_from([math.inf, 0.05]))
def test_skipping_equals_stepping(data: st.DataObject, spec: EngineSpec, update_s: float) -> None:
    rows = data.draw(rows_of(1 if spec.prefill else 2))
    assert_equal_runs(spec, rows, update_s, incidents=data.draw(incidents_of(spec)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=rows_of(1), slots=st.integers(1, 5), kv_tokens=st.integers(80, 300))
def test_skipping_equals_stepping_in_periods(rows: list[Row], slots: int, kv_tokens: int) -> None:
    spec = spec_of(slots, kv_tokens, 1, slots, 0, False, False, IterationTime.constant(1.0))
    assert_equal_runs(spec, rows, 8.0, period=True)


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
        Replica(spec_of(kv_tokens=64)).enqueue(engine.Sequence(key, 64, 1), 0.0)


def test_budget_below_slots_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"prefill_chunk_tokens is 3; expected at least slots \(4\)"):
        spec_of(budget=3)
