"""The simulator against what is known elsewhere: another simulator, measured kernels, queueing theory, conservation.

Runs of Vidur (round robin, 4 x A100 Llama-2-7B, chunked prefill 512) on AzurePublicDataset conversations and iteration
times of NVIDIA AIConfigurator are read from the folder `shared` beside the checkout; without it those tests skip.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.core.types import Arrived, Assign, AssignmentKey, Event, Request, Step
from olp_ray.hardware import DEVICE_KINDS
from olp_ray.sim import simulate
from olp_ray.sim.engine import EngineSpec
from olp_ray.sim.latency import IterationTime
from olp_ray.sim.run import Simulation
from olp_ray.workload import SimRequest

SHARED = Path(__file__).parents[3] / "shared"
FS_PER_MS = 10**12
# t(ms) = 5.0 + max(5.0, .0622 (B + P)) + .0054 P + 2.9e-4 KV + 4.1e-6 pairs, fitted to that run
VIDUR_TIME = IterationTime(
    *(round(ms * FS_PER_MS) for ms in (5.0, 5.0, 0.0622, 2.9e-4, 4.1e-6 / 2, 0.0)),
    prefill_token=round(0.0054 * FS_PER_MS),
)
VIDUR_ENGINE = EngineSpec(128, 118_137, 16, 512, 73, True, True, VIDUR_TIME)


def shared_table(name: str) -> pd.DataFrame:
    """A table of the folder beside the checkout; skips the test where it is absent."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs {name} in the folder shared beside the checkout")
    return pd.read_csv(path)


class AsGiven:
    """Assigns every request at its arrival to the device that the table names."""

    def __init__(self, device_of: dict[str, str]) -> None:
        self._device_of = device_of

    def handle(self, now_s: float, events: Sequence[Event]) -> Step:
        arrived = [event.request for event in events if isinstance(event, Arrived)]
        return Step(tuple(Assign(AssignmentKey(r.id, r.stage, self._device_of[r.id], 0, 0), r) for r in arrived))


@pytest.mark.parametrize("run", ["q14", "q28"])
def test_vidur_runs_within_ten_percent(run: str) -> None:
    known = shared_table(f"vidur/conv_{run}_round_robin.csv")
    ids = [f"r{i:04d}" for i in range(len(known))]
    rows = zip(ids, known["arrival"], known["prefill"], known["decode"], strict=True)
    requests = [SimRequest(Request(i, float(t), int(s), float(o)), int(o)) for i, t, s, o in rows]
    router = AsGiven(dict(zip(ids, (f"d{g}" for g in known["replica"]), strict=True)))
    table = Simulation(requests, {f"d{g}": VIDUR_ENGINE for g in range(4)}, router).run().requests
    ours, theirs = table["finish_s"] - table["arrival_s"], known["completion"] - known["arrival"]
    assert abs(ours.mean() / theirs.mean() - 1) < 0.1
    assert abs(ours.quantile(0.99) / theirs.quantile(0.99) - 1) < 0.1
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
    at = np.searchsorted(np.sort(ours), np.sort(theirs)) / len(ours)
    assert np.abs(at - np.arange(len(ours)) / len(ours)).max() < 0.1  # distance of the CDFs


# mean and largest relative error over the measured points, rounded up; docs/simulator.md shows them
POINT_ERRORS = {
    "a100-7b": (0.061, 0.36),
    "a100-8b": (0.049, 0.23),
    "a100-70b": (0.045, 0.15),
    "h100-7b": (0.064, 0.23),
    "h100-8b": (0.051, 0.16),
    "h100-70b": (0.066, 0.20),
    "l40s-7b": (0.068, 0.32),
    "l40s-8b": (0.060, 0.17),
    "l40s-70b": (0.119, 0.28),
}


@pytest.mark.parametrize("name", DEVICE_KINDS)
def test_latency_model_against_measured_points(name: str) -> None:
    gpu, size = name.split("-")
    points = shared_table("timing/aiconfigurator_mixed_points.csv")
    points = points[points["system"].str.startswith(gpu) & points["model"].str.endswith(size)]
    time = IterationTime.roofline(DEVICE_KINDS[name].roofline, 0.0)
    ours_ms = [
        time.iteration_fs(decode, kv, prefill, round(2 * pairs)) / FS_PER_MS
        for decode, kv, prefill, pairs in points[
            ["num_decode_seqs", "total_kv_tokens", "prefill_tokens", "prefill_attn_pairs"]
        ].itertuples(index=False, name=None)
    ]
    error = (np.array(ours_ms) / points["time_ms"] - 1).abs()
    mean, most = POINT_ERRORS[name]
    assert len(points) > 100
    assert error.mean() < mean
    assert error.max() < most


def erlang_c_wait(rate: float, service_s: float, servers: int) -> float:
    """Mean wait of M/M/c (Erlang, 1917)."""
    load = rate * service_s
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(terms) + last) * service_s / (servers - load)


def queue_waits(outputs: np.ndarray, rate: float, servers: int, seed: int) -> np.ndarray:
    """Waits in periods of one device with `servers` slots and KV to spare, arrivals on whole periods."""
    rng = np.random.default_rng([seed, 1])
    arrivals = np.cumsum(rng.exponential(1 / rate, len(outputs)))
    rows = zip(arrivals.tolist(), outputs.tolist(), strict=True)
    requests = [SimRequest(Request(f"r{i:05d}", t, 1, float(o)), o) for i, (t, o) in enumerate(rows)]
    fleet = FleetConfig.parse(f"1xB{servers}M100000000")
    router = build_priced_router(RouterConfig(policy="round_robin"), fleet, "period", 0)
    table = simulate(requests, fleet, "period", router, update_s=1e9).requests
    return (table["start_s"] - table["arrival_s"]).to_numpy()


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (4, 0.8), (16, 0.8)])
def test_waits_are_those_of_mmc(servers: int, load: float) -> None:
    """Exponential lives, long against a period; half widths from eight independent runs."""
    mean_tokens = 200.0
    rate = load * servers / mean_tokens
    means = []
    for seed in range(8):
        rng = np.random.default_rng([seed, 0])
        outputs = np.maximum(1, np.rint(rng.exponential(mean_tokens, 3000))).astype(int)
        means.append(queue_waits(outputs, rate, servers, seed)[300:].mean())
    expected = erlang_c_wait(rate, mean_tokens, servers)
    half_width = 3.5 * np.std(means, ddof=1) / math.sqrt(len(means))  # 99 % of Student's t with 7 degrees
    assert abs(np.mean(means) - expected) < half_width + 1.0  # plus a period of rounding
    assert half_width < 0.6 * expected


@pytest.mark.parametrize(("servers", "load"), [(3, 0.9), (16, 0.95)])
def test_waits_are_exactly_those_of_a_queue_with_as_many_servers(servers: int, load: float) -> None:
    """Kiefer and Wolfowitz' recursion on the same draws: the next request takes the server that is free first."""
    rng = np.random.default_rng([9, 0])
    outputs = rng.integers(1, 400, 2000)
    rate = load * servers / outputs.mean()
    arrivals = np.ceil(np.cumsum(np.random.default_rng([9, 1]).exponential(1 / rate, len(outputs))))
    free = [0.0] * servers
    waits = []
    for arrival_s, output in zip(arrivals, outputs, strict=True):
        start_s = max(arrival_s, heapq.heappop(free))
        heapq.heappush(free, start_s + output)
        waits.append(start_s - arrival_s)
    assert queue_waits(outputs, rate, servers, 9).tolist() == waits


def test_equal_lives_on_many_slots_share_the_device_like_processors() -> None:
    """A batch of n equal sequences: each gets one token per iteration, so all end together after the sum of steps."""
    fleet = FleetConfig.parse("1xa100-8b")
    requests = [SimRequest(Request(f"r{i:02d}", 0.0, 64, 100.0), 100) for i in range(8)]
    router = build_priced_router(RouterConfig(policy="round_robin"), fleet, "timed", 0)
    table = simulate(requests, fleet, "timed", router, update_s=1.0).requests
    time = IterationTime.of_kind(DEVICE_KINDS["a100-8b"])
    steps = [time.iteration_fs(0, 0, 512, 8 * 64 * 64)]  # all eight prompts fit one chunk and give the first token
    steps += [time.iteration_fs(8, 8 * (64 + k), 0, 0) for k in range(1, 100)]
    assert set(table["finish_s"]) == {sum(steps) / 1e15}


@pytest.mark.parametrize("policy", ["round_robin", "central_fifo", "online_lp"])
def test_conservation_under_pressure(policy: str) -> None:
    """Tokens in are tokens out, and no sample of the timeline is over a limit, though KV runs out all the time."""
    fleet = FleetConfig.parse("2xa100-7b").model_copy()
    tight = FleetConfig(devices=tuple(d.model_copy(update={"kv_tokens": 8000, "slots": 24}) for d in fleet.devices))
    rng = np.random.default_rng(0)
    requests = [
        SimRequest(Request(f"r{i:03d}", 0.05 * i, int(s), float(o)), int(o))
        for i, (s, o) in enumerate(zip(rng.integers(1, 1500, 150), rng.integers(1, 600, 150), strict=True))
    ]
    router = build_priced_router(RouterConfig(policy=policy, preset="e2e"), tight, "timed", 0)
    result = simulate(requests, tight, "timed", router, update_s=0.2, timeline=True)
    table, timeline = result.requests, result.timeline
    assert (table["status"] == "finished").all()
    assert table["generated_tokens"].sum() == sum(r.output_tokens for r in requests)
    assert timeline is not None
    assert timeline["kv_tokens"].max() <= 8000
    assert timeline["running"].max() <= 24
    assert max(result.busy_s.values()) <= result.end_s
