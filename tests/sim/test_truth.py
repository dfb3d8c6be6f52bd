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


def gaps_of(rate: float, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).exponential(1 / rate, count)


def requests_at(arrivals: np.ndarray, outputs: np.ndarray) -> list[SimRequest]:
    rows = zip(arrivals.tolist(), outputs.tolist(), strict=True)
    return [SimRequest(Request(f"r{i:05d}", t, 1, float(o)), o) for i, (t, o) in enumerate(rows)]


def all_to_first(requests: Sequence[SimRequest]) -> AsGiven:
    return AsGiven(dict.fromkeys((r.request.id for r in requests), "d0"))


def queue_waits(outputs: np.ndarray, gaps: np.ndarray, servers: int, *, routed: bool) -> np.ndarray:
    """Waits in periods of one device with `servers` slots and KV to spare, arrivals on whole periods; through the
    router, or past it."""
    requests = requests_at(np.cumsum(gaps), outputs)
    fleet = FleetConfig.parse(f"1xB{servers}M100000000")
    router = build_priced_router(RouterConfig(policy="round_robin"), fleet, "period", 0)
    driver = router if routed else all_to_first(requests)
    table = simulate(requests, fleet, "period", driver, update_s=1e9).requests
    return (table["start_s"] - table["arrival_s"]).to_numpy()


def waits_by_recursion(outputs: np.ndarray, gaps: np.ndarray, servers: int) -> list[float]:
    """Kiefer and Wolfowitz' recursion: the next request takes the server that is free first."""
    free, waits = [0.0] * servers, []
    for arrival_s, output in zip(np.ceil(np.cumsum(gaps)).tolist(), outputs.tolist(), strict=True):
        start_s = max(arrival_s, heapq.heappop(free))
        heapq.heappush(free, start_s + output)
        waits.append(start_s - arrival_s)
    return waits


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (4, 0.8), (16, 0.8)])
def test_waits_are_those_of_mmc(servers: int, load: float) -> None:
    """Exponential lives, long against a period; half widths from eight independent runs."""
    mean_tokens = 200.0
    rate = load * servers / mean_tokens
    means = []
    for seed in range(8):
        rng = np.random.default_rng([seed, 0])
        outputs = np.maximum(1, np.rint(rng.exponential(mean_tokens, 3000))).astype(int)
        means.append(queue_waits(outputs, gaps_of(rate, len(outputs), seed), servers, routed=True)[300:].mean())
    expected = erlang_c_wait(rate, mean_tokens, servers)
    half_width = 3.5 * np.std(means, ddof=1) / math.sqrt(len(means))  # 99 % of Student's t with 7 degrees
    assert abs(np.mean(means) - expected) < half_width + 1.0  # plus a period of rounding
    assert half_width < 0.6 * expected


@pytest.mark.parametrize(("servers", "load"), [(3, 0.9), (16, 0.95)])
def test_waits_are_exactly_those_of_a_queue_with_as_many_servers(servers: int, load: float) -> None:
    rng = np.random.default_rng([9, 0])
    outputs = rng.integers(1, 400, 2000)
    rate = load * servers / outputs.mean()
    gaps = gaps_of(rate, len(outputs), 9)
    assert queue_waits(outputs, gaps, servers, routed=True).tolist() == waits_by_recursion(outputs, gaps, servers)


def test_waits_of_many_servers_near_saturation_are_those_of_mmc() -> None:
    """16 servers at load .9: from empty it takes thousands of requests until waits are the stationary ones, and their
    mean hangs on the load that each run happens to draw. So the first 2000 are dropped, and the drawn means of lives
    and gaps, whose expectations are known, serve as control variates (Lavenberg and Welch, 1981). Two of the runs are
    simulated and agree with the recursion wait by wait; the recursion alone makes the others."""
    servers, mean_tokens, runs = 16, 200.0, 16
    rate = 0.9 * servers / mean_tokens
    drawn, means = np.ones((runs, 3)), np.empty(runs)
    for seed in range(runs):
        lives = np.random.default_rng([seed, 0]).exponential(mean_tokens, 8000)
        gaps = gaps_of(rate, len(lives), seed)
        outputs = np.maximum(1, np.rint(lives)).astype(int)
        waits = waits_by_recursion(outputs, gaps, servers)
        if seed < 2:
            assert queue_waits(outputs, gaps, servers, routed=False).tolist() == waits
        means[seed] = np.mean(waits[2000:])
        drawn[seed, 1:] = lives.mean() / mean_tokens - 1, gaps.mean() * rate - 1
    fit, squares, _, _ = np.linalg.lstsq(drawn, means)
    half_width = 3.02 * math.sqrt(squares[0] / (runs - 3) * np.linalg.inv(drawn.T @ drawn)[0, 0])  # 99 %, 13 degrees
    expected = erlang_c_wait(rate, mean_tokens, servers)
    assert abs(fit[0] - expected) < half_width + 1.0  # plus a period of rounding
    assert half_width < 0.25 * expected


@pytest.mark.parametrize(("short", "long", "share"), [(100, 100, 0.5), (20, 420, 0.8)])
def test_responses_are_those_of_processor_sharing(short: int, long: int, share: float) -> None:
    """Iterations as long as the batch is large are M/G/1-PS: E[T] = E[S] / (1 - load), whatever the lives' spread."""
    token_s, load, count = 0.001, 0.7, 3000
    time = IterationTime(0, 0, 0, 0, 0, sequence=round(token_s * 1e15))
    spec = EngineSpec(10_000, 10_000_000, 1, 10_000, 0, False, False, time)
    mean_s = token_s * (share * short + (1 - share) * long)
    means = []
    for seed in range(8):
        outputs = np.where(np.random.default_rng([seed, 0]).random(count) < share, short, long)
        requests = requests_at(np.cumsum(gaps_of(load / mean_s, count, seed)), outputs)
        table = Simulation(requests, {"d0": spec}, all_to_first(requests)).run().requests
        means.append((table["finish_s"] - table["arrival_s"])[200:].mean())
    expected = mean_s / (1 - load)
    half_width = 3.5 * np.std(means, ddof=1) / math.sqrt(len(means))  # 99 % of Student's t with 7 degrees
    assert abs(np.mean(means) - expected) < half_width + 5 * token_s  # plus part of an iteration before each start
    assert half_width < 0.25 * expected


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
