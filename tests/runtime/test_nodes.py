"""Three nodes on one machine, in a process of its own; one of them goes while requests run."""

import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, time
import ray
from ray.cluster_utils import Cluster
from benchmarks.chaos import FLEET, Load
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.runtime.wiring import start_coordinator

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
workers = [cluster.add_node(num_cpus=1, resources={"price_shard": 2}) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False)
runtime = RuntimeConfig(shards=2, placement="spread", shard_resources={"price_shard": 1})
devices = FleetConfig.parse(FLEET).core_devices("timed")
running = start_coordinator(devices, RouterConfig(), runtime, seed=0)
load = Load(running.actor, list(devices), seed=0)


async def main():
    carriers = [asyncio.ensure_future(load.line.run())]
    pids = await running.actor.shard_process_ids.remote()
    assert len(set(pids)) == 2

    async def remove():
        await asyncio.sleep(4.0)
        await asyncio.to_thread(cluster.remove_node, workers[0], False)

    await asyncio.gather(load.submit(time.monotonic() + 10.0), remove())
    async with asyncio.timeout(30):
        while load.waiting or load.running:
            await asyncio.sleep(0.05)
    status = await running.actor.status.remote()
    assert sum(status["residents"].values()) + status["waiting"] <= 1, status
    for carrier in carriers:
        carrier.cancel()
    print("finished", load.outcome, status["prices"])


asyncio.run(main())
assert load.outcome.finished == load.outcome.submitted > 300
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.ray_local
def test_admission_goes_on_when_a_node_with_a_shard_goes():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "finished" in done.stdout
