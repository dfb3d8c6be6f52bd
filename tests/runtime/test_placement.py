"""Price shards on several nodes with pretended A100, in a process of its own: packed, spread, and one per device."""

import subprocess
import sys

import pytest

SCRIPT = """
import ray
from ray.cluster_utils import Cluster
from olp_ray.config import RuntimeConfig
from olp_ray.runtime.price_shard import PriceShard
from olp_ray.runtime.shard_pool import ShardPool


class Located(PriceShard):
    def node_id(self):
        return ray.get_runtime_context().get_node_id()


cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0, "include_dashboard": False})
a100 = {"num_cpus": 4, "num_gpus": 8, "resources": {"accelerator_type:A100": 1, "price_shard": 8}}
workers = [cluster.add_node(**a100).node_id for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False)


def nodes_of(placement, shards):
    config = RuntimeConfig(placement=placement, shard_cpus=0.25, shard_resources={"price_shard": 1})
    pool = ShardPool(shards, config, Located, spare=True)
    nodes = [ray.get(process.handle.node_id.remote()) for process in pool.processes]
    free = ray.available_resources()
    pool.close()
    return nodes, free


packed, free = nodes_of("pack", 4)
assert len(set(packed)) == 1 and packed[0] in workers, packed
assert free["price_shard"] == 12 and free["GPU"] == 16, free
spread, free = nodes_of("spread", 4)
assert set(spread) == set(workers), spread
per_device, free = nodes_of("spread", 16)
assert sorted(map(per_device.count, workers)) == [8, 8], per_device
assert free.get("price_shard", 0) == 0 and free["GPU"] == 16, free
ray.shutdown()
cluster.shutdown()
print("placed")
"""


@pytest.mark.ray_local
def test_shards_are_packed_spread_and_one_per_device_on_pretended_a100():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "placed" in done.stdout
