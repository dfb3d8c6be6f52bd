"""How long the runtime takes to be whole again after one fault, under load.

    python -m benchmarks.ray_faults [--repeats 3] [--write-page]

A shard is killed or stopped: seconds until its block is built again elsewhere, until the router has tables of all
shards again, and the longest time without an assignment meanwhile. The coordinator is killed: seconds until its next
process is there, which is Ray's doing, and from there until the next assignment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import NamedTuple
from uuid import uuid4

import click

from benchmarks.chaos import FLEET, Load
from benchmarks.results_page import records_table, replace_section
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.runtime.client import deliver
from olp_ray.runtime.wiring import open_ray, start_coordinator

SETTLE_S = 4.0
SHARDS = 3


class Recovery(NamedTuple):
    """Seconds. back: until a shard's block was built again, or the coordinator's next process ran."""

    back: float
    at_work: float
    longest_gap: float


async def shard_fault(load: Load, number: signal.Signals) -> Recovery:
    """at_work is from the fault until no shard lags, after one did."""
    before = (await load.coordinator.status.remote())["prices"]
    pid = (await load.coordinator.shard_process_ids.remote())[0]
    os.kill(pid, number)
    began, back, lagged = time.perf_counter(), None, False
    while True:
        prices = (await load.coordinator.status.remote())["prices"]
        now = time.perf_counter() - began
        if back is None and prices.rebuilt > before.rebuilt:
            back = now
        behind = len(prices.lag) < SHARDS or any(prices.lag.values())
        if lagged and back is not None and not behind:
            break
        lagged = lagged or behind
        assert now < 60, f"still behind: {prices}"
        await asyncio.sleep(0.02)
    if number == signal.SIGSTOP:
        with contextlib.suppress(ProcessLookupError):  # Ray may have ended it
            os.kill(pid, signal.SIGKILL)
    return Recovery(back, now, load.outcome.longest_gap_s)


async def coordinator_fault(load: Load) -> Recovery:
    """at_work is from the start of the next process until the next assignment."""
    pid = (await load.coordinator.status.remote())["process_id"]
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.1)  # what it had assigned is in
    assigned = load.outcome.assigned
    while load.outcome.assigned == assigned:
        assert time.perf_counter() - began < 60, "no assignment"
        await asyncio.sleep(0.005)
    resumed = time.perf_counter() - began
    status = await deliver(load.coordinator.status.remote)
    assert status["process_id"] != pid
    up_s = status["now_s"] - status["started_s"]
    back = time.perf_counter() - began - up_s
    return Recovery(back, resumed - back, load.outcome.longest_gap_s)


async def fault(load: Load, kind: str) -> Recovery:
    """One fault on a service that is whole."""
    await asyncio.sleep(SETTLE_S)
    load.outcome.longest_gap_s = 0.0
    if kind == "coordinator killed":
        return await coordinator_fault(load)
    return await shard_fault(load, signal.SIGSTOP if kind == "shard stopped" else signal.SIGKILL)


async def measure(load: Load, repeats: int) -> list[dict[str, str]]:
    carriers = [asyncio.ensure_future(load.line.run())]
    arrivals = asyncio.ensure_future(load.submit(float("inf")))
    await load.coordinator.status.remote()  # it is up
    rows = []
    for kind in ("shard killed", "shard stopped", "coordinator killed"):
        found = [await fault(load, kind) for _ in range(repeats)]
        back, at_work, gap = (max(column) for column in zip(*found, strict=True))
        rows.append(
            {
                "fault": kind,
                "back s (worst)": f"{back:.2f}",
                "at work s (worst)": f"{at_work:.2f}",
                "no assignment s (worst)": f"{gap:.2f}",
            }
        )
        click.echo(rows[-1])
    for task in (arrivals, *carriers):
        task.cancel()
    return rows


@click.command()
@click.option("--repeats", default=3, show_default=True)
@click.option("--write-page", is_flag=True, help="Write the table into docs/results.md.")
def main(repeats: int, write_page: bool) -> None:
    """Measure and print."""
    busy = os.getloadavg()[0]
    open_ray()
    devices = FleetConfig.parse(FLEET).core_devices("timed")
    runtime = RuntimeConfig(coordinator_name=f"faults-{uuid4().hex[:8]}", shards=SHARDS)
    running = start_coordinator(devices, RouterConfig(), runtime, seed=0)
    rows = asyncio.run(measure(Load(running.actor, list(devices), seed=0), repeats))
    running.stop()
    text = (
        f"## Recovery from faults\n\nUnder 60 requests/s, {SHARDS} shards, worst of {repeats}; {os.cpu_count()} cores, "
        f"load average before the run {busy:.1f} (`python -m benchmarks.ray_faults --write-page`). A shard is back "
        "when its block is built again in the spare process, and at work when the router has its tables, both since "
        "the fault; its devices keep their last prices meanwhile. A stopped one is given up after 3 missed updates. "
        "The coordinator is back when Ray has started its next process, since the fault, and at work with its next "
        f"assignment, since that start.\n\n{records_table(rows)}"
    )
    click.echo(text)
    if write_page:
        replace_section("ray_faults", text)


if __name__ == "__main__":
    main()
