"""The cluster file passes Ray's own validation, and what it says of price shards fits what the endpoint asks for."""

from pathlib import Path

import yaml

from olp_ray.config import ServeConfig, load_yaml
from olp_ray.runtime.wiring import resolve_shards

FOLDER = Path(__file__).parents[2] / "clusters"


def cluster():
    return yaml.safe_load((FOLDER / "a100.yaml").read_text())


def test_ray_up_would_accept_it():
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(cluster())
    validate_config(prepared)
    assert prepared["provider"]["type"] == "aws"


def test_one_price_shard_per_a100_fits_on_one_worker():
    config = load_yaml(FOLDER / "a100-serve" / "serve.yaml", ServeConfig)
    devices = len(config.fleet.expand())
    assert resolve_shards(config.runtime, devices, nodes=2)[0] == devices
    worker = cluster()["available_node_types"]["a100"]["resources"]
    assert worker["GPU"] == worker["price_shard"] == devices
    asked = config.runtime.shard_resources["price_shard"]
    assert asked * devices <= worker["price_shard"]


def test_the_endpoint_file_is_mounted_and_workers_bring_their_shards():
    assert cluster()["file_mounts"] == {"~/a100-serve": "./clusters/a100-serve"}
    start = cluster()["worker_start_ray_commands"][-1]
    assert start.endswith("""ray start --address=$RAY_HEAD_IP:6379 --resources='{"price_shard": 8}'""")
