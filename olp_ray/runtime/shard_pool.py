"""The processes of the price shards: where they run, and another one in the place of one that broke.

A spare process, warm and asking for nothing, makes that change one of milliseconds. Only actor handles live here; what
is said to them is in `ray_pricer`.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Any, NamedTuple

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
_WATCH = "watch"  # the concurrency group in which a call stays open


class Process(NamedTuple):
    """An actor's process: up has its first answer, gone is done as soon as it has ended."""

    handle: Any
    up: Future[Any]
    gone: Future[Any]


class ShardPool:
    """`count` price-shard actors; incarnations[i] counts the processes that shard i was given on purpose.

    With `spare` one more process is kept that has no work; it runs on any node, outside the placement group. owner
    names what the shards belong to: a placement group that an earlier process of the same owner left is given back
    first. Raises `RuntimeShellError` when the cluster has no room for the placement group that the config asks for.
    With `again` there are no processes before `start`, which does not wait for that room either: a router that was
    there before goes on without prices meanwhile, and needs the processor more.
    """

    def __init__(
        self,
        count: int,
        config: RuntimeConfig,
        shard_class: type[PriceShard] = PriceShard,
        *,
        owner: str = "",
        again: bool = False,
        spare: bool = False,
    ) -> None:
        self._config = config
        self._owner = owner
        self._again = again
        self._actor_class: Any = ray.remote(concurrency_groups={_WATCH: 1})(shard_class)
        self._with_spare = spare
        self._group: PlacementGroup | None = None
        self._spare: Process | None = None
        self.incarnations = [0] * count
        self.processes: list[Process] = []
        if not again:
            self.start()

    def __len__(self) -> int:
        return len(self.incarnations)

    def start(self) -> None:
        """Start all processes, once."""
        if self.processes:
            return
        self._group = self._reserve(len(self))
        self.processes = [self._start(index) for index in range(len(self))]
        self._spare = self._start_anywhere() if self._with_spare else None

    def swap(self, index: int) -> None:
        """Put the spare in the place of shard `index`, whose process died; when Ray has restarted it, it is the spare.

        Without a spare the shard waits for that itself.
        """
        again = _watch(self.processes[index].handle)
        if self._spare is None:
            self.processes[index] = again
            return
        spare = self._spare
        # the spare may have died too, and be back
        self.processes[index] = _watch(spare.handle) if spare.gone.done() else spare
        self._spare = again
        self._count_incarnation(index)

    def replace(self, index: int) -> None:
        """Put the spare, or a new process, in the place of shard `index`. The old one, perhaps stopped, is to die."""
        old = self.processes[index]
        self.processes[index] = self._spare or self._start_anywhere()
        if self._spare is not None:
            self._spare = self._start_anywhere()
        ray.kill(old.handle, no_restart=True)
        self._count_incarnation(index)

    def close(self) -> None:
        """End all shard processes and give their room back."""
        for process in [*self.processes, *([] if self._spare is None else [self._spare])]:
            ray.kill(process.handle, no_restart=True)
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

    def _start(self, index: int) -> Process:
        options: dict[str, Any] = {
            "num_cpus": self._config.shard_cpus,
            "resources": dict(self._config.shard_resources),
            "max_restarts": -1,
        }
        if self._group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, index)
        return _watch(self._actor_class.options(**options).remote())

    def _start_anywhere(self) -> Process:
        """A process that asks for nothing: what a broken one held may not come free before it is gone."""
        return _watch(self._actor_class.options(num_cpus=0, max_restarts=-1).remote())

    def _count_incarnation(self, index: int) -> None:
        self.incarnations[index] += 1
        _log.warning("price shard %d has another process, incarnation %d", index, self.incarnations[index])


def _watch(handle: Any) -> Process:
    stay = handle.stay.options(concurrency_group=_WATCH)
    return Process(handle, future_of(handle.process_id.remote()), future_of(stay.remote()))


def future_of(call: Any) -> Future[Any]:
    """A call's answer as a future of the standard library, which any thread may wait for."""
    future: Future[Any] = call.future()
    return future


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
