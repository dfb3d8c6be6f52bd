"""What one coordinator carries: requests per second through actor calls, and submit-to-assignment latency.

    python -m benchmarks.ray_load [--rates 250,500,1000,2000,3000] [--seconds 10] [--policy online_lp] [--write-page]
    python -m benchmarks.ray_load --soak-minutes 30 --rates 200 [--write-page]

The load is open: requests come at their rate whatever the answers do. Capacity is free (short prompts), so an
assignment never waits for a slot or for prefill; engines are imitated by finishing each request after a fixed time.
The load's process shares the machine's cores with the coordinator; the processor time of both is told. A soak runs the
first rate for long and looks at the coordinator's memory.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import click
import numpy as np

from benchmarks.results_page import records_table, replace_section
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.core.types import Assign, AssignmentKey, Event, Finished, Request, Started
from olp_ray.runtime.client import IngressLine
from olp_ray.runtime.messages import Answer, Report, Submission
from olp_ray.runtime.wiring import open_ray, start_coordinator

FLEET = "8xa100-8b"
SERVICE_S = 0.2
TICK_S = 0.002  # submissions of this long go out together


class Measured(NamedTuple):
    """Assignments per second while requests came, latencies from submit to assignment, and shares of one core."""

    offered: float
    assigned: float
    p50_ms: float
    p99_ms: float
    cpu: float
    load_cpu: float
    memory_mb: float


class Load:
    """Submits at a rate and finishes what is assigned."""

    def __init__(self, coordinator: Any) -> None:
        self.sent_s: dict[str, float] = {}
        self.latency_s: list[float] = []
        self.line = IngressLine(coordinator, f"load-{uuid4().hex[:4]}", self._answer, Report)
        self.reporter = self.line.reporter
        self._ending: list[tuple[float, AssignmentKey]] = []
        self.assigned_in_time = 0

    async def run(self, rate: float, seconds: float, seed: int) -> None:
        """Offer `rate` requests per second for `seconds`."""
        rng = np.random.default_rng(seed)
        self.latency_s = []
        number, prefix = 0, uuid4().hex[:6]
        began = time.perf_counter()
        until = began + seconds
        while (now := time.perf_counter()) < until:
            for _ in range(int((now - began) * rate) - number):
                number += 1
                name = f"{prefix}-{number}"
                request = Request(name, 0.0, int(rng.integers(4, 24)), float(rng.uniform(5, 300)))
                self.sent_s[name] = now
                self.line.submit(Submission(request, 0.0))
            self._finish(now)
            await asyncio.sleep(TICK_S)
        self.assigned_in_time = len(self.latency_s)
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


async def measure(coordinator: Any, load: Load, rate: float, seconds: float, seed: int) -> Measured:
    """One rate on a coordinator that is warm."""
    pid = (await coordinator.status.remote())["process_id"]
    before, ours, began = cpu_s(pid), time.process_time(), time.perf_counter()
    await load.run(rate, seconds, seed)
    took = time.perf_counter() - began
    await coordinator.check_invariants.remote()
    p50, p99 = np.percentile(load.latency_s, [50, 99]) * 1e3
    cpu, load_cpu = (cpu_s(pid) - before) / took, (time.process_time() - ours) / took
    return Measured(rate, load.assigned_in_time / seconds, p50, p99, cpu, load_cpu, memory_mb(pid))


@asynccontextmanager
async def loading(coordinator: Any) -> AsyncIterator[Load]:
    """A load whose lines to the coordinator are open."""
    load = Load(coordinator)
    carriers = [asyncio.ensure_future(load.line.run())]
    yield load
    for carrier in carriers:
        carrier.cancel()


async def measure_all(coordinator: Any, rates: list[float], seconds: float) -> list[Measured]:
    async with loading(coordinator) as load:
        await measure(coordinator, load, min(rates), 2.0, 0)  # warm-up
        return [await measure(coordinator, load, rate, seconds, seed) for seed, rate in enumerate(rates, 1)]


async def soak(coordinator: Any, rate: float, minutes: int) -> list[Measured]:
    """One measurement per minute: memory should stay flat."""
    found = []
    async with loading(coordinator) as load:
        for minute in range(1, minutes + 1):
            now = await measure(coordinator, load, rate, 60.0, minute)
            found.append(now)
            click.echo(f"minute {minute}: {now.assigned:.0f}/s, p99 {now.p99_ms:.1f} ms, memory {now.memory_mb:.1f} MB")
    return found


def soak_text(found: list[Measured], command: str) -> str:
    """Memory at the start, in the middle and at the end, and by how much it rose in the second half."""
    memory = [minute.memory_mb for minute in found]
    middle = len(memory) // 2
    slope = float(np.polyfit(np.arange(len(memory) - middle), memory[middle:], 1)[0]) if len(memory) > 3 else 0.0
    lasting_p99_ms = np.median([minute.p99_ms for minute in found])
    return (
        f"## Soak\n\n{len(found)} minutes at {found[0].offered:g} requests/s through one coordinator "
        f"(`{command} --write-page`): {sum(minute.assigned * 60 for minute in found):.0f} requests. The coordinator's "
        f"resident memory was {memory[0]:.1f} MB after the first minute, {memory[middle]:.1f} MB in the middle and "
        f"{memory[-1]:.1f} MB at the end; over the second half it changed by {slope:+.2f} MB per minute. "
        f"Submit to assignment: p99 of a minute, median over minutes, {lasting_p99_ms:.1f} ms."
    )


def rows(results: list[Measured]) -> list[dict[str, str]]:
    return [
        {
            "offered /s": f"{r.offered:g}",
            "assigned /s": f"{r.assigned:.0f}",
            "p50 ms": f"{r.p50_ms:.1f}",
            "p99 ms": f"{r.p99_ms:.1f}",
            "coordinator CPU": f"{r.cpu:.2f}",
            "load CPU": f"{r.load_cpu:.2f}",
            "memory MB": f"{r.memory_mb:.0f}",
        }
        for r in results
    ]


@click.command()
@click.option("--rates", default="250,500,1000,2000,3000", show_default=True)
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--policy", default="online_lp", show_default=True)
@click.option("--shards", default=0, show_default=True)
@click.option("--soak-minutes", default=0, help="Run the first rate for so long instead.")
@click.option("--write-page", is_flag=True, help="Write the section of docs/results.md.")
def main(rates: str, seconds: float, policy: str, shards: int, soak_minutes: int, write_page: bool) -> None:
    """Measure and print."""
    busy = os.getloadavg()[0]
    open_ray()
    offered = [float(rate) for rate in rates.split(",")]
    runtime = RuntimeConfig(coordinator_name=f"load-{uuid4().hex[:8]}", shards=shards)
    devices = FleetConfig.parse(FLEET).core_devices("timed")
    running = start_coordinator(devices, RouterConfig(policy=policy), runtime, seed=0)
    if soak_minutes:
        command = f"python -m benchmarks.ray_load --soak-minutes {soak_minutes} --rates {offered[0]:g}"
        name, text = "ray_soak", soak_text(asyncio.run(soak(running.actor, offered[0], soak_minutes)), command)
    else:
        table = records_table(rows(asyncio.run(measure_all(running.actor, offered, seconds))))
        command = (
            f"python -m benchmarks.ray_load --rates {rates} --seconds {seconds:g} --policy {policy} --shards {shards}"
        )
        name, text = (
            "ray_load",
            (
                f"## Coordinator under load\n\nSubmit to assignment through actor calls, `{policy}` on {FLEET}, "
                f"{shards} shards, capacity free, {os.cpu_count()} cores shared with the load, load average before "
                f"the run {busy:.1f} (`{command} --write-page`). CPU is in cores.\n\n{table}"
            ),
        )
    click.echo(text)
    if write_page:
        replace_section(name, text)
    running.stop()


if __name__ == "__main__":
    main()
