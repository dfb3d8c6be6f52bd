import asyncio
import os
import signal
import time
from uuid import uuid4

import pytest

from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.core.types import Assign, Cancelled, Finished, Request
from olp_ray.runtime.client import IngressLine, Reporter
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
        self.reporter = Reporter(coordinator)

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
        tasks = [asyncio.ensure_future(client.line.run()), asyncio.ensure_future(client.reporter.run())]
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
