"""How the router's processes are laid out on Ray."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from olp_ray.config.base import Count, Model, NotNegative, Positive

Shards = Annotated[int, Field(ge=0)] | Literal["auto", "per_device"]


class RuntimeConfig(Model):
    """Price shards and coordinator.

    shards: 0 prices in the coordinator's process, n is the number of price-shard actors, `per_device` one for each
    device, `auto` picks by fleet size (see `olp_ray.runtime.wiring.resolve_shards`). shard_resources are what each
    shard asks of its node, for example {price_shard: 1}; with `spread` or `pack` the shards form one placement group.
    """

    shards: Shards = "auto"
    placement: Literal["any", "spread", "pack"] = "any"
    shard_cpus: NotNegative = 0
    shard_resources: dict[str, Positive] = Field(default_factory=dict)
    max_missed_updates: Count = 3  # a shard that misses more in a row is replaced by a new process
    coordinator_name: Annotated[str, Field(min_length=1)] = "olp-ray-coordinator"
    detached: bool = False  # the coordinator outlives the process that started it
    snapshot_s: Positive = 1.0
    stall_s: Positive = 5.0  # the coordinator is unhealthy when its loop stands still for longer
