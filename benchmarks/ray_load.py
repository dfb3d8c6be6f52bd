"""What one coordinator carries: requests per second through actor calls, and submit-to-assignment latency.

    python -m benchmarks.ray_load [--rates 250,500,1000,2000,3000] [--seconds 10] [--policy online_lp] [--write-page]

The load is open: requests come at their rate whatever the answers do. Capacity is free (short prompts), so an
assignment never waits for a slot or for prefill; engines are imitated by finishing each request after a fixed time.
The load's process shares the machine's cores with the coordinator. `--soak-minutes` runs one rate for long and prints
the coordinator's memory instead.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import click
import numpy as np

from benchmarks.results_page import records_table, replace_section
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.core.types import Assign, AssignmentKey, Event, Finished, Request, Started
from olp_ray.runtime.client import IngressLine, Reporter
from olp_ray.runtime.messages import Answer, Report, Submission
from olp_ray.runtime.wiring import open_ray, start_coordinator

FLEET = "8xa100-8b"
SERVICE_S = 0.2
TICK_S = 0.002  # submissions of this long go out together


class Measured(NamedTuple):
    """Latencies in ms from submit to assignment; cpu is the coordinator's share of one core."""

    offered: float
    assigned: float
    p50_ms: float
    p99_ms: float
    cpu: float
    memory_mb: float


class Load:
    """Submits at a rate and finishes what is assigned."""

    def __init__(self, coordinator: Any) -> None:
        self.sent_s: dict[str, float] = {}
        self.latency_s: list[float] = []
        self.line = IngressLine(coordinator, f"load-{uuid4().hex[:4]}", self._answer, Report)
        self.reporter = Reporter(coordinator)
        self._ending: list[tuple[float, AssignmentKey]] = []
        self._prefix = uuid4().hex[:6]
        self._number = 0

    async def run(self, rate: float, seconds: float, seed: int) -> None:
        """Offer `rate` requests per second for `seconds`."""
        rng = np.random.default_rng(seed)
        began = time.perf_counter()
        until = began + seconds
        while (now := time.perf_counter()) < until:
            for _ in range(int((now - began) * rate) - self._number):
                self._number += 1
                name = f"{self._prefix}-{self._number}"
                request = Request(name, 0.0, int(rng.integers(4, 24)), float(rng.uniform(5, 300)))
                self.sent_s[name] = now
                self.line.submit(Submission(request, 0.0))
            self._finish(now)
            await asyncio.sleep(TICK_S)
        while self.sent_s or self._ending:
            self._finish(time.perf_counter())
            await asyncio.sleep(TICK_S)
            assert time.perf_counter() < until + 60, f"{len(self.sent_s)} requests were never assigned"

    def _answer(self, answer: Answer) -> None:
        assert isinstance(answer, Assign), answer
        now = time.perf_counter()
        self.latency_s.append(now - self.sent_s.pop(answer.request.id))
        self._ending.append((now + SERVICE_S, answer.key))

    def _finish(self, now: float) -> None:
        due = 0
        while due < len(self._ending) and self._ending[due][0] <= now:
            due += 1
        events: list[Event] = []
        for _, key in self._ending[:due]:
            events += [Started(key), Finished(key, 20)]
        del self._ending[:due]
        if events:
            self.reporter.report(*events)


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure(coordinator: Any, rate: float, seconds: float, seed: int) -> Measured:
    """One rate on a coordinator that is warm."""
    pid = (await coordinator.status.remote())["process_id"]
    load = Load(coordinator)
    carriers = [asyncio.ensure_future(load.line.run()), asyncio.ensure_future(load.reporter.run())]
    before, began = cpu_s(pid), time.perf_counter()
    await load.run(rate, seconds, seed)
    took = time.perf_counter() - began
    for carrier in carriers:
        carrier.cancel()
    await coordinator.check_invariants.remote()
    p50, p99 = np.percentile(load.latency_s, [50, 99]) * 1e3
    cpu = (cpu_s(pid) - before) / took
    return Measured(rate, len(load.latency_s) / took, p50, p99, cpu, memory_mb(pid))


async def measure_all(coordinator: Any, rates: list[float], seconds: float) -> list[Measured]:
    await measure(coordinator, min(rates), 2.0, 0)  # warm-up
    return [await measure(coordinator, rate, seconds, seed) for seed, rate in enumerate(rates, 1)]


async def soak(coordinator: Any, rate: float, minutes: float) -> None:
    """A line per minute: memory should stay flat."""
    for minute in range(1, round(minutes) + 1):
        found = await measure(coordinator, rate, 60.0, minute)
        click.echo(
            f"minute {minute}: {found.assigned:.0f}/s, p99 {found.p99_ms:.1f} ms, memory {found.memory_mb:.1f} MB"
        )


def rows(results: list[Measured]) -> list[dict[str, str]]:
    return [
        {
            "offered /s": f"{r.offered:g}",
            "assigned /s": f"{r.assigned:.0f}",
            "p50 ms": f"{r.p50_ms:.1f}",
            "p99 ms": f"{r.p99_ms:.1f}",
            "coordinator CPU": f"{r.cpu:.2f}",
            "memory MB": f"{r.memory_mb:.0f}",
        }
        for r in results
    ]


@click.command()
@click.option("--rates", default="250,500,1000,2000,3000", show_default=True)
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--policy", default="online_lp", show_default=True)
@click.option("--shards", default=0, show_default=True)
@click.option("--soak-minutes", default=0.0, help="Run the first rate for so long instead.")
@click.option("--write-page", is_flag=True, help="Write the table into docs/results.md.")
def main(rates: str, seconds: float, policy: str, shards: int, soak_minutes: float, write_page: bool) -> None:
    """Measure and print."""
    busy = os.getloadavg()[0]
    open_ray()
    offered = [float(rate) for rate in rates.split(",")]
    runtime = RuntimeConfig(coordinator_name=f"load-{uuid4().hex[:8]}", shards=shards)
    devices = FleetConfig.parse(FLEET).core_devices("timed")
    running = start_coordinator(devices, RouterConfig(policy=policy), runtime, seed=0)
    if soak_minutes:
        asyncio.run(soak(running.actor, offered[0], soak_minutes))
        return
    table = records_table(rows(asyncio.run(measure_all(running.actor, offered, seconds))))
    click.echo(table)
    if write_page:
        command = (
            f"python -m benchmarks.ray_load --rates {rates} --seconds {seconds:g} --policy {policy} --shards {shards}"
        )
        text = (
            f"## Coordinator under load\n\nSubmit to assignment through actor calls, `{policy}` on {FLEET}, "
            f"{shards} shards, capacity free, {os.cpu_count()} cores shared with the load, load average before the run "
            f"{busy:.1f} (`{command}`).\n\n{table}"
        )
        replace_section("ray_load", text)
    running.stop()


if __name__ == "__main__":
    main()
