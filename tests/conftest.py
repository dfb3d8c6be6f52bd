"""One local Ray for all tests that need it, started when the first of them runs; no test fails for being slow."""

import logging
import os

import pytest
from hypothesis import settings

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


settings.register_profile("no_deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no_deadline")


@pytest.fixture(scope="session")
def ray_local():
    """A Ray of two CPUs and eight pretended GPUs on this machine."""
    ray = pytest.importorskip("ray")
    ray.init(
        address="local",
        num_cpus=2,
        num_gpus=8,
        resources={"price_shard": 16},
        include_dashboard=False,
        object_store_memory=120_000_000,
        log_to_driver=False,
        logging_level=logging.WARNING,
    )
    yield ray
    ray.shutdown()
