"""Three nodes on one machine, in a process of its own; one of them goes while requests run."""

import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, sys, time
import ray
from ray.cluster_utils import Cluster
from benchmarks.chaos import FLEET, Load
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.runtime.client import deliver
from olp_ray.runtime.names import find_actor
from olp_ray.runtime.wiring import start_coordinator

WITH_COORDINATOR = sys.argv[1] == "with coordinator"
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
workers = [cluster.add_node(num_cpus=1, resources={"price_shard": 2, f"node{i}": 1}) for i in range(2)]
ray.init(address=cluster.address, log_to_driver=False)
runtime = RuntimeConfig(shards=2, placement="spread", shard_resources={"price_shard": 1}, detached=WITH_COORDINATOR)
devices = FleetConfig.parse(FLEET).core_devices("timed")


@ray.remote(num_cpus=0, resources={"node0": 1})
def start_there():
    start_coordinator(devices, RouterConfig(), runtime, seed=0)


if WITH_COORDINATOR:
    ray.get(start_there.remote())
    coordinator = find_actor(runtime.coordinator_name)
else:
    running = start_coordinator(devices, RouterConfig(), runtime, seed=0)
    coordinator = running.actor
load = Load(coordinator, list(devices), seed=0)


async def main():
    line = asyncio.ensure_future(load.line.run())
    pids = await coordinator.shard_process_ids.remote()
    assert len(set(pids)) == 2

    async def remove():
        await asyncio.sleep(4.0)
        await asyncio.to_thread(cluster.remove_node, workers[0], False)

    await asyncio.gather(load.submit(time.monotonic() + 10.0), remove())
    async with asyncio.timeout(60):
        while load.waiting or load.running:
            await asyncio.sleep(0.05)
        status = await deliver(coordinator.status.remote)
        while sum(status["residents"].values()) + status["waiting"] + status["orphans"]:
            await asyncio.sleep(0.05)
            status = await deliver(coordinator.status.remote)
    await deliver(coordinator.check_invariants.remote)
    assert (status["restarts"] > 0) == WITH_COORDINATOR, status
    line.cancel()
    print("finished", load.outcome, status["prices"])


asyncio.run(main())
assert load.outcome.finished == load.outcome.submitted > 300
assert load.outcome.finished_twice == 0
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.ray_local
@pytest.mark.parametrize("gone", ["with a shard", "with coordinator"])
def test_admission_goes_on_when_a_node_goes(gone):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, gone], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "finished" in done.stdout
