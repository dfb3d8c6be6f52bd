"""How long the runtime takes to be whole again after one fault, under load.

    python -m benchmarks.ray_faults [--repeats 3] [--write-page]

A shard is killed or stopped: seconds until tables of all shards come in again, and the longest time without an
assignment meanwhile. The coordinator is killed: seconds until its next process answers, and until the next assignment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from uuid import uuid4

import click
import numpy as np
from ray.exceptions import RayError

from benchmarks.chaos import FLEET, Load
from benchmarks.results_page import records_table, replace_section
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.runtime.wiring import open_ray, start_coordinator

SETTLE_S = 4.0
SHARDS = 3


async def until_whole(load: Load) -> float:
    """Seconds until no shard lags, after at least one did."""
    began, lagged = time.perf_counter(), False
    while True:
        lag = (await load.coordinator.status.remote())["prices"].lag
        behind = len(lag) < SHARDS or any(lag.values())
        if lagged and not behind:
            return time.perf_counter() - began
        lagged = lagged or behind
        assert time.perf_counter() - began < 60, f"still behind: {lag}"
        await asyncio.sleep(0.02)


async def until_back(load: Load, old_pid: int) -> float:
    """Seconds until another process answers for the coordinator."""
    began = time.perf_counter()
    while True:
        try:
            if (await load.coordinator.status.remote())["process_id"] != old_pid:
                return time.perf_counter() - began
        except RayError:
            await asyncio.sleep(0.01)


async def fault(load: Load, kind: str) -> tuple[float, float]:
    """Recovery, and the longest time without an assignment while requests waited."""
    await asyncio.sleep(SETTLE_S)
    load.outcome.longest_gap_s = 0.0
    if kind == "coordinator killed":
        pid = (await load.coordinator.status.remote())["process_id"]
        os.kill(pid, signal.SIGKILL)
        recovered_s = await until_back(load, pid)
        await asyncio.sleep(SETTLE_S)
        return recovered_s, load.outcome.longest_gap_s
    pid = (await load.coordinator.shard_process_ids.remote())[0]
    stopped = kind == "shard stopped"
    os.kill(pid, signal.SIGSTOP if stopped else signal.SIGKILL)
    recovered_s = await until_whole(load)
    if stopped:
        os.kill(pid, signal.SIGKILL)
    return recovered_s, load.outcome.longest_gap_s


async def measure(load: Load, repeats: int) -> list[dict[str, str]]:
    carriers = [asyncio.ensure_future(load.line.run()), asyncio.ensure_future(load.reporter.run())]
    arrivals = asyncio.ensure_future(load.submit(float("inf")))
    rows = []
    for kind in ("shard killed", "shard stopped", "coordinator killed"):
        found = np.array([await fault(load, kind) for _ in range(repeats)])
        recovered, gap = found.max(axis=0)
        rows.append(
            {"fault": kind, "whole again s (worst)": f"{recovered:.2f}", "no assignment s (worst)": f"{gap:.2f}"}
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
        f"load average before the run {busy:.1f} (`python -m benchmarks.ray_faults --write-page`). A stopped shard is "
        f"replaced after 3 missed updates.\n\n{records_table(rows)}"
    )
    click.echo(text)
    if write_page:
        replace_section("ray_faults", text)


if __name__ == "__main__":
    main()
