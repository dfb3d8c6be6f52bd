"""The processes of the price shards: where they run, and a new one in the place of one that stopped answering.

Only actor handles live here; what is said to them is in `ray_pricer`.
"""

from __future__ import annotations

import logging
from typing import Any

import ray
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from olp_ray.config.runtime import RuntimeConfig
from olp_ray.errors import RuntimeShellError
from olp_ray.runtime.price_shard import PriceShard

_log = logging.getLogger(__name__)
_PLACEMENT_TIMEOUT_S = 60.0


class ShardPool:
    """`count` price-shard actors; incarnations[i] counts the processes that shard i was given on purpose.

    owner names what the shards belong to: a placement group that an earlier process of the same owner left is given
    back first. Raises `RuntimeShellError` when the cluster has no room for the placement group that the config asks
    for; with `again` it is not waited for, since a router that was there before has to go on without prices meanwhile.
    """

    def __init__(
        self,
        count: int,
        config: RuntimeConfig,
        shard_class: type[PriceShard] = PriceShard,
        *,
        owner: str = "",
        again: bool = False,
    ) -> None:
        self._config = config
        self._owner = owner
        self._again = again
        self._actor_class: Any = ray.remote(shard_class)
        self._group = self._reserve(count)
        self.incarnations = [0] * count
        self.handles = [self._start(index) for index in range(count)]

    def __len__(self) -> int:
        return len(self.handles)

    def replace(self, index: int) -> None:
        """Put a new process in the place of shard `index`. The old one, which may be stopped, is told to die."""
        old = self.handles[index]
        self.incarnations[index] += 1
        self.handles[index] = self._start(index)
        ray.kill(old, no_restart=True)
        _log.warning("price shard %d replaced, now incarnation %d", index, self.incarnations[index])

    def close(self) -> None:
        """End all shard processes and give their room back."""
        for handle in self.handles:
            ray.kill(handle, no_restart=True)
        if self._group is not None:
            remove_placement_group(self._group)

    def _reserve(self, count: int) -> PlacementGroup | None:
        if self._config.placement == "any":
            return None
        bundle = {"CPU": self._config.shard_cpus, **self._config.shard_resources}
        bundle = {name: amount for name, amount in bundle.items() if amount > 0}
        if not bundle:
            raise RuntimeShellError(
                f"runtime.placement is {self._config.placement!r} but a shard asks for nothing; "
                "set runtime.shard_cpus or runtime.shard_resources, or placement: any"
            )
        if self._owner:
            give_back_room(self._owner)
        group = placement_group([bundle] * count, strategy=self._config.placement.upper(), name=self._owner)
        if not self._again and not group.wait(timeout_seconds=_PLACEMENT_TIMEOUT_S):
            remove_placement_group(group)
            raise RuntimeShellError(
                f"no room for {count} price shards of {bundle} with placement {self._config.placement!r} "
                f"within {_PLACEMENT_TIMEOUT_S:g} s; the cluster has {ray.cluster_resources()}"
            )
        return group

    def _start(self, index: int) -> Any:
        options: dict[str, Any] = {
            "num_cpus": self._config.shard_cpus,
            "resources": dict(self._config.shard_resources),
            "max_restarts": -1,
        }
        if self._group is not None and self.incarnations[index] == 0:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, index)
        return self._actor_class.options(**options).remote()


def give_back_room(owner: str) -> None:
    """Remove the placement group of this owner, if there is one.

    Ray keeps the group of an actor that restarts, and also of one that was killed after a restart.
    """
    try:
        remove_placement_group(get_placement_group(owner))
    except ValueError:  # there is none
        return


def shards_owner(coordinator_name: str) -> str:
    """What the shards of the coordinator of this name belong to."""
    return f"{coordinator_name}-shards"
