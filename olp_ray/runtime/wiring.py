"""Puts the parts together: a simulated router with prices from shards, and the live coordinator. Decides nothing else
than how many shards `auto` means.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from olp_ray.config import FleetConfig, Mode, RouterConfig, RuntimeConfig
from olp_ray.config.build import build_router, refuse_shards
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.types import Device
from olp_ray.errors import ConfigError
from olp_ray.runtime.coordinator import Coordinator, SnapshotKeeper
from olp_ray.runtime.names import NAMESPACE
from olp_ray.runtime.ray_pricer import RayPricer
from olp_ray.runtime.shard_pool import ShardPool, give_back_room, shards_owner

_log = logging.getLogger(__name__)

CROSSOVER_DEVICES = 400  # from here on an inline update holds admission for over 10 ms (benchmarks/ray_tick.py)
CROSSOVER_SHARDS = 2  # finished first at 1024 devices on two cores
# By default workers have niceness 15, so a busy machine makes the router late, and a call is told only after a second
# that the actor it was made to has died.
_OWN_RAY = {"worker_niceness": 0, "timeout_ms_task_wait_for_death_info": 100}


def resolve_shards(runtime: RuntimeConfig, device_count: int, nodes: int) -> tuple[int, str]:
    """How many price shards, and why, in words."""
    if runtime.shards == "per_device":
        return device_count, "one shard per device was asked for"
    if runtime.shards != "auto":
        return min(runtime.shards, device_count), f"shards={runtime.shards} was asked for"
    if nodes > 1:
        return min(nodes, device_count), f"auto: the cluster has {nodes} nodes"
    if device_count >= CROSSOVER_DEVICES:
        return CROSSOVER_SHARDS, f"auto: from {CROSSOVER_DEVICES} devices on, pricing beside admission wins"
    return 0, f"auto: {device_count} devices on one node are priced faster in the coordinator's process"


@contextmanager
def ray_router(
    config: RouterConfig,
    fleet: FleetConfig,
    mode: Mode,
    seed: int,
    shards: int,
    *,
    missed: Sequence[tuple[int, Sequence[str]]] = (),
) -> Iterator[PricedRouter]:
    """A router under the caller's clock whose prices come from `shards` actors; starts a local Ray when there is none.

    Decisions and prices are those of `olp_ray.config.build.build_priced_router`, to the bit.
    """
    if shards < 1:
        raise ConfigError(f"--shards is {shards}; expected at least 1 with --runtime ray")
    refuse_shards(config, shards)
    if missed:
        raise ConfigError("sim.missed_updates: lost updates are injected with --runtime inline only")
    started = not ray.is_initialized()
    if started:
        open_ray()
    core = build_router(config, fleet, mode, seed)
    pricer = RayPricer(ShardPool(min(shards, len(core.ledger.devices)), RuntimeConfig()))
    try:
        pricer.wait_until_up()  # else the first update waits for them, and decision times show their start
        yield PricedRouter(core, pricer)
    finally:
        pricer.close()
        if started:
            ray.shutdown()


class RunningCoordinator(NamedTuple):
    """Both actors; unless they are detached they live as long as the record that the first starter got."""

    actor: Any
    keeper: Any
    name: str

    def stop(self) -> None:
        """End both actors and the price shards, and give the shards' room in the cluster back."""
        ray.kill(self.actor)
        ray.kill(self.keeper)
        give_back_room(shards_owner(self.name))


def start_coordinator(
    devices: Sequence[Device], router_config: RouterConfig, runtime: RuntimeConfig, seed: int
) -> RunningCoordinator:
    """The coordinator of this name: the running one, or a new one here with its snapshot keeper on another node."""
    nodes = sum(node["Alive"] for node in ray.nodes())
    shards, reason = resolve_shards(runtime, len(devices), nodes)
    refuse_shards(router_config, shards)
    _log.info("price shards: %d (%s)", shards, reason)
    options: dict[str, Any] = {
        "num_cpus": 0,
        "namespace": NAMESPACE,
        "get_if_exists": True,
        "lifetime": "detached" if runtime.detached else None,
        "max_restarts": -1,
        "max_task_retries": -1,  # what is called while it restarts runs as soon as it is up: every call may be repeated
    }
    name = runtime.coordinator_name
    keeper_name = f"{name}-snapshots"
    here = ray.get_runtime_context().get_node_id()
    away = next((node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here), here)
    keeper = ray.remote(SnapshotKeeper).options(name=keeper_name, **_on(away), **options).remote()
    ray.get(keeper.get.remote())
    actor: Any = ray.remote(Coordinator).options(name=name, max_concurrency=10_000, **_on(here), **options)
    handle = actor.remote(list(devices), router_config, runtime, shards, reason, seed, keeper_name)
    return RunningCoordinator(handle, keeper, name)


def _on(node_id: str) -> dict[str, Any]:
    """Actor options: on this node while it lives, else on any.

    Ray 2.60 puts an actor that asks for nothing on any node whatever its affinity; a byte is less than any node has.
    """
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=True), "memory": 1}


def open_ray() -> None:
    """Connect to the cluster that RAY_ADDRESS names; without it, start one on this machine, never join a found one."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**options)
    else:
        ray.init(address="local", include_dashboard=False, _system_config=_OWN_RAY, **options)
