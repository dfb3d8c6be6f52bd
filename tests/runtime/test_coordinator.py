import asyncio
import os
import signal
import time
from uuid import uuid4

import pytest

from benchmarks.chaos import break_connections
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.core.types import Assign, Cancelled, Finished, Request
from olp_ray.runtime.client import IngressLine
from olp_ray.runtime.lines import GRACE_S
from olp_ray.runtime.messages import InFlight, Report, Submission
from olp_ray.runtime.wiring import start_coordinator

pytestmark = pytest.mark.ray_local


class Client:
    """An ingress that finishes requests by hand."""

    def __init__(self, coordinator, ingress_id="i"):
        self.waiting: dict[str, Submission] = {}
        self.assigned: dict[str, Assign] = {}
        self.times_assigned: dict[str, int] = {}
        self.sent_s: dict[str, float] = {}
        self.latency_s: list[float] = []
        self.line = IngressLine(coordinator, ingress_id, self._answer, self._report)
        self.reporter = self.line.reporter

    def submit(self, *ids):
        for name in ids:
            self.waiting[name] = Submission(Request(name, 0.0, 10, 20.0), 0.0)
            self.sent_s[name] = time.perf_counter()
            self.line.submit(self.waiting[name])

    def finish(self, *ids):
        for name in ids:
            self.reporter.report(Finished(self.assigned.pop(name).key, 5))

    def cancel(self, name):
        self.waiting.pop(name, None)
        self.assigned.pop(name, None)
        self.reporter.report(Cancelled(Request(name, 0.0, 0, 1.0).key))

    def _answer(self, answer):
        name = answer.request.id
        if self.waiting.pop(name, None) is not None:
            self.latency_s.append(time.perf_counter() - self.sent_s[name])
            self.assigned[name] = answer
            self.times_assigned[name] = self.times_assigned.get(name, 0) + 1

    def _report(self):
        flights = tuple(InFlight(answer.key, answer.request) for answer in self.assigned.values())
        return Report(tuple(self.waiting.values()), flights)

    async def until(self, condition, timeout_s=20.0):
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)


@pytest.fixture
def start(ray_local):
    """Starts coordinators of plain devices, each with its own name, and ends them."""
    actors = []

    def build(fleet, policy="online_lp", **runtime):
        config = RuntimeConfig(coordinator_name=f"coordinator-{uuid4().hex[:8]}", **runtime)
        devices = FleetConfig.parse(fleet).core_devices("period")
        actors.append(start_coordinator(devices, RouterConfig(policy=policy), config, seed=0))
        return actors[-1].actor

    yield build
    for running in actors:
        running.stop()


def drive(coordinator, scenario):
    """Run `scenario(client)` beside the client's line."""

    async def main():
        client = Client(coordinator)
        tasks = [asyncio.ensure_future(client.line.run())]
        try:
            await scenario(client)
        finally:
            for task in tasks:
                task.cancel()

    asyncio.run(main())


def test_submit_assign_finish_in_batches(start, ray_local):
    coordinator = start("2xB2M1000", shards=2)

    async def scenario(client):
        client.submit(*"abcdef")
        await client.until(lambda: len(client.assigned) == 4)
        client.finish("a", "b")
        client.cancel("c")
        await client.until(lambda: set(client.assigned) == {"d", "e", "f"})
        client.finish("d", "e", "f")
        await asyncio.sleep(0.1)
        status = await coordinator.status.remote()
        assert sum(status["residents"].values()) == 0
        assert status["waiting"] == 0
        await coordinator.check_invariants.remote()
        await coordinator.check_health.remote()

    drive(coordinator, scenario)
    pids = ray_local.get(coordinator.shard_process_ids.remote())
    assert len({*pids, ray_local.get(coordinator.status.remote())["process_id"], os.getpid()}) == 4


def test_the_same_name_is_the_same_coordinator(ray_local):
    config = RuntimeConfig(coordinator_name="the-one", shards=0)
    devices = FleetConfig.parse("1xB1M1000").core_devices("period")
    running = [start_coordinator(devices, RouterConfig(), config, seed=0) for _ in range(2)]
    pids = [ray_local.get(each.actor.status.remote())["process_id"] for each in running]
    assert pids[0] == pids[1]
    ray_local.kill(running[0].actor)


def test_a_killed_coordinator_goes_on_where_it_was(start):
    coordinator = start("2xB2M1000", shards=0, snapshot_s=0.1)

    async def scenario(client):
        client.submit(*"abcdef")
        await client.until(lambda: len(client.assigned) == 4)
        await asyncio.sleep(0.3)
        client.finish("a")
        await client.until(lambda: len(client.assigned) == 4)
        os.kill((await coordinator.status.remote())["process_id"], signal.SIGKILL)
        client.submit("g")
        client.finish("b")
        await client.until(lambda: len(client.assigned) == 4)
        client.finish(*list(client.assigned))
        await client.until(lambda: "g" in client.assigned)
        client.finish("g")
        await asyncio.sleep(0.3)
        status = await coordinator.status.remote()
        assert sum(status["residents"].values()) == 0
        assert status["orphans"] == 0
        assert client.times_assigned == dict.fromkeys("abcdefg", 1)
        await coordinator.check_invariants.remote()

    drive(coordinator, scenario)


def test_nothing_is_lost_when_the_connection_to_a_coordinator_breaks_that_runs_on(start):
    coordinator = start("1xB8M1000", shards=0)
    rounds, slots = 10, 8

    async def scenario(client):
        pid = (await coordinator.status.remote())["process_id"]
        client.submit(*(f"0-{i}" for i in range(slots)))
        await client.until(lambda: len(client.assigned) == slots)
        for number in range(1, rounds):
            client.submit(*(f"{number}-{i}" for i in range(slots)))
            await asyncio.sleep(0.05)
            for i, name in enumerate(list(client.assigned)):  # each lets one that waits start, over the stream
                client.finish(name)
                await asyncio.sleep(0.003)
                if i == slots // 2:
                    assert break_connections(pid)
            await client.until(lambda: not client.waiting)
        client.finish(*list(client.assigned))
        await asyncio.sleep(0.3)
        status = await coordinator.status.remote()
        assert status["process_id"] == pid
        assert sum(status["residents"].values()) + status["waiting"] + status["orphans"] == 0
        assert client.times_assigned == {f"{number}-{i}": 1 for number in range(rounds) for i in range(slots)}
        await coordinator.check_invariants.remote()

    drive(coordinator, scenario)


class OtherIngress:
    """In a process of its own."""

    async def hold(self, coordinator, count):
        """Wait until this ingress has as many requests running; more wait."""
        self.client = Client(coordinator, "other")
        self.task = asyncio.ensure_future(self.client.line.run())
        self.client.submit(*(f"other-{i}" for i in range(2 * count)))
        await self.client.until(lambda: len(self.client.assigned) == count)


def test_what_an_ingress_had_whose_process_died_is_cancelled_after_the_grace(start, ray_local):
    coordinator = start("2xB2M1000", shards=0)
    other = ray_local.remote(OtherIngress).options(num_cpus=0).remote()

    async def scenario(client):
        await other.hold.remote(coordinator, 4)
        client.submit("a")
        await asyncio.sleep(0.1)
        assert not client.assigned
        ray_local.kill(other)
        await client.until(lambda: "a" in client.assigned, GRACE_S + 10)
        status = await coordinator.status.remote()
        assert sum(status["residents"].values()) == 1
        assert status["waiting"] == 0
        assert status["counts"]["ingresses_left"] == 1
        await coordinator.check_invariants.remote()

    drive(coordinator, scenario)


def test_a_killed_coordinator_gets_the_room_of_its_shards_back(start, ray_local):
    room = {"placement": "pack", "shard_resources": {"price_shard": 12}}  # of 16: two such groups do not fit
    coordinator = start("2xB2M1000", shards=1, snapshot_s=0.1, **room)

    async def scenario(client):
        [before] = await coordinator.shard_process_ids.remote()
        await asyncio.sleep(0.3)
        os.kill((await coordinator.status.remote())["process_id"], signal.SIGKILL)
        client.submit("a")
        await client.until(lambda: "a" in client.assigned)
        [after] = await asyncio.wait_for(coordinator.shard_process_ids.remote(), 20.0)
        assert after != before

    drive(coordinator, scenario)
