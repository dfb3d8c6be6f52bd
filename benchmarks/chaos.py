"""A coordinator with price shards under load while a seeded killer is at work; checks that nothing is lost.

    python -m benchmarks.chaos [--seconds 300] [--seed 0] [--shards 3]

Engines are imitated by timers in this process: what is under test is the router. Every fault is one of: a shard is
killed, a shard is stopped, the coordinator is killed, the connection to it breaks, a device breaks off and comes back
as a new incarnation.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
import signal
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import click
import numpy as np
from ray.exceptions import RayError

from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.core.types import Assign, AssignmentKey, Cancelled, Device, DeviceLost, Finished, Request, Started
from olp_ray.runtime.client import IngressLine, deliver
from olp_ray.runtime.messages import Answer, InFlight, Report, Submission
from olp_ray.runtime.wiring import open_ray, start_coordinator

FLEET = "6xa100-8b"
RATE = 60.0  # requests per second
SERVICE_S = 0.3  # mean
FAULT_EVERY_S = 2.5
EXTRA_S = 60.0
ANSWER_S = 2.0
FAULTS = ("kill_shard", "stop_shard", "kill_coordinator", "break_connection", "lose_device")


@dataclass
class Outcome:
    """What happened. longest_gap_s is the longest time without an assignment while requests waited."""

    submitted: int = 0
    assigned: int = 0
    finished: int = 0
    finished_twice: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    longest_gap_s: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Requests that the router still holds, although all are over."""
        return sum(self.status["residents"].values()) + self.status["waiting"] + self.status["orphans"]


class Load:
    """An ingress with imitated engines: each assignment is over after a drawn time, if its device lasts."""

    def __init__(self, coordinator: Any, devices: list[Device], seed: int) -> None:
        self.coordinator = coordinator
        self.outcome = Outcome()
        self.devices = {device.id: device for device in devices}
        self.lost: dict[str, DeviceLost] = {}
        self.waiting: dict[str, Submission] = {}
        self.running: dict[str, Assign] = {}
        self._done: set[str] = set()
        self._rng = np.random.default_rng(seed)
        self._last_assign_s = time.monotonic()
        self.line = IngressLine(coordinator, "load", self._answer, self._report)
        self.reporter = self.line.reporter

    async def submit(self, until_s: float) -> None:
        """Poisson arrivals until then."""
        while time.monotonic() < until_s:
            await asyncio.sleep(self._rng.exponential(1 / RATE))
            name = f"r{self.outcome.submitted}"
            request = Request(name, 0.0, int(self._rng.integers(10, 2000)), float(self._rng.uniform(5, 500)))
            self.outcome.submitted += 1
            if not self.waiting:
                self._last_assign_s = time.monotonic()
            self.waiting[name] = Submission(request, 0.0)
            self.line.submit(self.waiting[name])

    async def lose_device(self) -> None:
        """One device breaks off and is back half a second later."""
        device = self.devices.pop(str(self._rng.choice(sorted(self.devices))))
        self.lost[device.id] = DeviceLost(device.id, device.incarnation)
        for name, assign in list(self.running.items()):
            if assign.key.device_id == device.id:
                del self.running[name]
                self.waiting[name] = Submission(assign.request, 0.0)
        await self.reporter.tell(self.lost[device.id])
        await asyncio.sleep(0.5)
        back = dataclasses.replace(device, incarnation=device.incarnation + 1)
        self.devices[device.id] = back
        del self.lost[device.id]
        await deliver(self.coordinator.device_up.remote, back)

    def _answer(self, answer: Answer) -> None:
        assert isinstance(answer, Assign), answer
        key = answer.key
        if key.request_id not in self.waiting:
            if key.request_id not in self.running:  # its end and the loss of its device crossed
                self.reporter.report(Cancelled(key.request_key))
            return
        device = self.devices.get(key.device_id)
        if device is None or device.incarnation != key.incarnation:
            return  # the device broke off meanwhile; the router is told and assigns anew
        del self.waiting[key.request_id]
        now_s = time.monotonic()
        self.outcome.longest_gap_s = max(self.outcome.longest_gap_s, now_s - self._last_assign_s)
        self._last_assign_s = now_s
        self.outcome.assigned += 1
        self.running[key.request_id] = answer
        self.reporter.report(Started(key))
        delay_s = self._rng.exponential(SERVICE_S)
        asyncio.get_running_loop().call_later(delay_s, self._finish, key)

    def _finish(self, key: AssignmentKey) -> None:
        assign = self.running.get(key.request_id)
        if assign is None or assign.key != key:
            return
        del self.running[key.request_id]
        self.outcome.finished += 1
        self.outcome.finished_twice += key.request_id in self._done
        self._done.add(key.request_id)
        self.reporter.report(Finished(key, 10))

    def _report(self) -> Report:
        return Report(
            tuple(self.waiting.values()),
            tuple(InFlight(assign.key, assign.request) for assign in self.running.values()),
            tuple(self.devices.values()),
            tuple(self.lost.values()),
        )


async def disturb(load: Load, until_s: float, seed: int, stopped: list[int]) -> None:
    """One fault after the other until then: rounds of all kinds, each in another order.

    One that finds coordinator or shards still down from the fault before is tried again. On a machine that is too busy
    to bring them up in time the first round goes on for up to `EXTRA_S`.
    """
    rng = np.random.default_rng([seed, 1])
    still_to_do: list[str] = []
    while True:
        await asyncio.sleep(FAULT_EVERY_S)
        if time.monotonic() > (until_s if load.outcome.faults.keys() >= set(FAULTS) else until_s + EXTRA_S):
            return
        still_to_do = still_to_do or rng.permutation(FAULTS).tolist()
        try:
            await strike(load, still_to_do[-1], rng, stopped)
        except (RayError, TimeoutError, ProcessLookupError):
            load.outcome.faults["tried again"] += 1
            continue
        load.outcome.faults[still_to_do.pop()] += 1


async def strike(load: Load, fault: str, rng: np.random.Generator, stopped: list[int]) -> None:
    """Do it. Raises `RayError` or `TimeoutError` when the coordinator or a shard does not answer, `ProcessLookupError`
    when it has gone since it answered."""
    if fault == "lose_device":
        await load.lose_device()
        return
    if fault in ("kill_coordinator", "break_connection"):
        pid = (await asyncio.wait_for(load.coordinator.status.remote(), ANSWER_S))["process_id"]
        if fault == "kill_coordinator":
            os.kill(pid, signal.SIGKILL)
        else:
            break_connections(pid)
        return
    victim = int(rng.choice(await asyncio.wait_for(load.coordinator.shard_process_ids.remote(), ANSWER_S)))
    stop = fault == "stop_shard"
    os.kill(victim, signal.SIGSTOP if stop else signal.SIGKILL)
    if stop:
        stopped.append(victim)


def break_connections(pid: int) -> int:
    """Shut every TCP connection of this process to that one, which runs on; how many there were."""
    sockets, theirs, mine = _sockets(), _inodes(pid), _inodes(os.getpid())
    ports = {each.local for each in sockets if each.state == "0A" and each.inode in theirs}
    broken = [
        mine[each.inode] for each in sockets if each.state == "01" and each.remote in ports and each.inode in mine
    ]
    for number in broken:
        with socket.socket(fileno=os.dup(number)) as connection:
            connection.shutdown(socket.SHUT_RDWR)
    return len(broken)


class _Socket(NamedTuple):
    """Ports in hexadecimal; state 0A listens, 01 is connected."""

    local: str
    remote: str
    state: str
    inode: str


def _sockets() -> list[_Socket]:
    """Every TCP socket of the machine."""
    text = "".join(Path(f"/proc/net/{name}").read_text().partition("\n")[2] for name in ("tcp", "tcp6"))
    lines = [line.split() for line in text.splitlines()]
    return [_Socket(each[1].rpartition(":")[2], each[2].rpartition(":")[2], each[3], each[9]) for each in lines]


def _inodes(pid: int) -> dict[str, int]:
    """File descriptors of a process's sockets."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(entry)
            if target.startswith("socket:["):
                found[target[len("socket:[") : -1]] = int(entry.name)
    return found


async def drive(load: Load, seconds: float, seed: int, stopped: list[int]) -> None:
    """Load and faults together, then wait until everything is over."""
    await load.coordinator.status.remote()  # it is up
    carriers = [asyncio.ensure_future(load.line.run())]
    arrivals = asyncio.ensure_future(load.submit(math.inf))
    await disturb(load, time.monotonic() + seconds, seed, stopped)
    arrivals.cancel()
    async with asyncio.timeout(60):
        while load.waiting or load.running:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        load.outcome.status = await deliver(load.coordinator.status.remote)
        await deliver(load.coordinator.check_invariants.remote)
    for carrier in carriers:
        carrier.cancel()


def run(seconds: float, seed: int, shards: int) -> Outcome:
    """The whole experiment on the Ray that this process is connected to. Raises AssertionError on broken books."""
    runtime = RuntimeConfig(coordinator_name=f"chaos-{uuid4().hex[:8]}", shards=shards, snapshot_s=0.5)
    devices = FleetConfig.parse(FLEET).core_devices("timed")
    running = start_coordinator(devices, RouterConfig(policy="online_lp"), runtime, seed)
    load = Load(running.actor, list(devices), seed)
    stopped: list[int] = []
    try:
        asyncio.run(drive(load, seconds, seed, stopped))
    finally:
        for pid in stopped:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        running.stop()
    return load.outcome


@click.command()
@click.option("--seconds", default=300.0, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--shards", default=3, show_default=True)
def main(seconds: float, seed: int, shards: int) -> None:
    """Print what happened; exit code 1 when something was lost."""
    open_ray()
    outcome = run(seconds, seed, shards)
    click.echo(f"requests: {outcome.submitted}, finished {outcome.finished}, twice {outcome.finished_twice}")
    click.echo(f"faults: {dict(outcome.faults)}")
    click.echo(f"longest time without an assignment while requests waited: {outcome.longest_gap_s:.2f} s")
    click.echo(f"left on devices, waiting or unknown: {outcome.left}")
    click.echo(f"price shards since the last start of the coordinator: {outcome.status['prices']}")
    lost_nothing = outcome.finished == outcome.submitted and not outcome.finished_twice and not outcome.left
    click.echo("nothing was lost" if lost_nothing else "SOMETHING WAS LOST")
    raise SystemExit(not lost_nothing)


if __name__ == "__main__":
    main()
