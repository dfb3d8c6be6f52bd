"""The coordinator actor: a `LiveRouter` and its pricer in a process with a name. Only carries calls.

It keeps a snapshot of itself in a second actor; a restarted process goes on from there (see `SnapshotKeeper` for what
can be lost), and ingresses tell it what they have in flight.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ray.exceptions import RayActorError

from olp_ray.config import RouterConfig, RuntimeConfig
from olp_ray.core.explanation import Explanation
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import InlinePricer, Pricer
from olp_ray.core.router import Router
from olp_ray.core.types import Device, Event
from olp_ray.runtime.background import background, repeat
from olp_ray.runtime.clock import LiveClock
from olp_ray.runtime.export import RayExporter
from olp_ray.runtime.lines import GRACE_S
from olp_ray.runtime.live_router import LiveRouter
from olp_ray.runtime.messages import Answer, Report, Submission, key_of
from olp_ray.runtime.metrics import MetricSet
from olp_ray.runtime.names import find_actor
from olp_ray.runtime.observe import observe
from olp_ray.runtime.ray_pricer import RayPricer
from olp_ray.runtime.shard_pool import ShardPool, shards_owner
from olp_ray.runtime.warm import warm_router

_log = logging.getLogger(__name__)
_KEEPER_TIMEOUT_S = 30.0
_KEEPER_RETRY_S = 0.1
_EXPORT_S = 5.0
_SHARDS_POLL_S = 0.05
_SHARDS_AFTER_S = 0.5  # since the first call of a restarted process
_SWITCH_S = 0.0005  # each call passes through three threads of this process; by default each may wait 5 ms for the next


class SnapshotKeeper:
    """Holds the coordinator's last snapshot in another process.

    Lost with the coordinator: what happened since the last snapshot (runtime.snapshot_s), less what ingresses report.
    """

    def __init__(self) -> None:
        self._state: bytes | None = None

    def put(self, state: bytes) -> None:
        """A pickled snapshot; this process never looks into it."""
        self._state = state

    def get(self) -> bytes | None:
        return self._state


class Coordinator:
    """The actor's class. shards 0 prices in this process; keeper_name is that of the `SnapshotKeeper`."""

    def __init__(
        self,
        devices: Sequence[Device],
        router: RouterConfig,
        runtime: RuntimeConfig,
        shards: int,
        shards_reason: str,
        seed: int,
        keeper_name: str,
    ) -> None:
        began_s = time.monotonic()
        self._runtime = runtime
        self._shards = (shards, shards_reason)
        self._keeper = find_actor(keeper_name)  # a handle among the arguments would make restarts fail
        state = _last_snapshot(self._keeper)
        self._restarts = 0 if state is None else state["restarts"] + 1
        self._clock = LiveClock() if state is None else LiveClock(state["epoch_s"], state["now_s"])
        self._started_s = self._clock() - (time.monotonic() - began_s)
        self._pricer: Pricer = self._start_shards(shards, again=state is not None) if shards else InlinePricer()
        warm_router(devices, router)
        core = Router(devices, router.policy, router.settings("timed"), router.limits(), seed)
        self._live = LiveRouter(PricedRouter(core, self._pricer), self._clock, runtime.stall_s)
        self._live.metrics.set("olp_ray_coordinator_restarts_total", self._restarts)
        self._core = core
        if state is not None:
            self._live.restore(state, GRACE_S)
            _log.warning("coordinator restarted from a snapshot; waiting for ingresses to report")
        self._exporter = RayExporter()
        self._tasks: list[asyncio.Task[None]] = []
        sys.setswitchinterval(_SWITCH_S)
        gc.freeze()  # what was imported is not looked through again: a full collection takes 45 ms with it

    async def submit(self, ingress_id: str, submissions: Sequence[Submission]) -> tuple[int | None, list[Answer]]:
        """Many requests in one call, or none to say that the ingress is there.

        Returns the number of the newest report that this process has of the ingress, and what is decided at once about
        these requests: nothing else, so that a reply that is lost is made good by calling again. Answers to what waits
        come later, over `answers`.
        """
        live = self._running()
        live.submit(ingress_id, submissions)
        if not submissions:
            return live.lines.number(ingress_id), []
        live.tick()
        keys = {submission.request.key for submission in submissions}
        answers = live.outbox.take_if(ingress_id, lambda answer: key_of(answer) in keys)
        return live.lines.number(ingress_id), answers

    async def report(self, events: Sequence[Event]) -> None:
        """Started, Progressed, Finished, Preempted, Cancelled, ReplicaRefused and device events, many in one call."""
        self._running().report(events)

    async def hello(self, ingress_id: str, report: Report) -> None:
        """What the ingress has going."""
        self._running().hello(ingress_id, report)

    async def device_up(self, device: Device) -> None:
        """A process of this device is there; it takes the place of an older one."""
        self._running().device_up(device)

    async def answers(self, ingress_id: str, number: int) -> AsyncIterator[list[Answer]]:
        """The long-lived stream to an ingress: batches of decisions about its requests.

        Empty when number is not that of its newest report: what it has may have to be told first.
        """
        live = self._running()
        if live.lines.number(ingress_id) == number:
            async for batch in live.outbox.stream(ingress_id):
                yield batch

    async def check_health(self) -> None:
        """Raises `RuntimeShellError` when the loop stands still."""
        self._running().check_health()

    async def check_invariants(self) -> None:
        """Raises AssertionError when the router's state contradicts itself."""
        self._core.check_invariants()

    async def status(self) -> dict[str, Any]:
        """Counts and levels as plain values, for people and metrics."""
        live, core = self._running(), self._core
        return {
            "process_id": os.getpid(),
            "now_s": self._clock(),
            "started_s": self._started_s,
            "restarts": self._restarts,
            "policy": core.policy.name,
            "waiting": len(core.queue),
            "residents": {device.id: int(core.ledger.count[g]) for g, device in enumerate(core.ledger.devices)},
            "counters": dict(core.counters),
            "counts": dict(live.counts),
            "errors": dict(live.errors),
            "orphans": live.orphan_count,
            "shards": self._shards[0],
            "shards_reason": self._shards[1],
            "prices": self._pricer.status() if isinstance(self._pricer, RayPricer) else None,
        }

    async def metrics(self) -> MetricSet:
        """All values of this process, as plain data."""
        return observe(self._running(), self._core, self._pricer)

    async def explain(self, request_id: str | None = None, most: int | None = None) -> tuple[Explanation, ...]:
        """What `Router.explain` says now of every request, or of one; nothing for an id that is not known."""
        return self._core.explain(self._clock(), request_id, most)

    async def shard_process_ids(self) -> list[int]:
        """Process ids of the price shards, in order."""
        if not isinstance(self._pricer, RayPricer):
            return []
        while not self._pricer.shard_handles:  # after a restart they start later
            await asyncio.sleep(_SHARDS_POLL_S)
        return list(await asyncio.gather(*(shard.process_id.remote() for shard in self._pricer.shard_handles)))

    def _start_shards(self, shards: int, again: bool) -> RayPricer:
        """Up when it returns, except after a restart: requests wait already and are routed at the old prices, and
        shards that started now would take the processor from that.
        """
        runtime = self._runtime
        pool = ShardPool(shards, runtime, owner=shards_owner(runtime.coordinator_name), again=again, spare=True)
        pricer = RayPricer(pool, self._clock, runtime.max_missed_updates)
        if not again:
            pricer.wait_until_up()
        return pricer

    def _running(self) -> LiveRouter:
        """The router, its loops started by the first call in this process."""
        if not self._tasks:
            snapshots = repeat(self._runtime.snapshot_s, self._keep_snapshot, self._failed)
            metrics = repeat(_EXPORT_S, self._export_metrics, self._failed)
            loops = (self._live.run(), self._start_shards_again(), snapshots, metrics)
            self._tasks = [background(loop) for loop in loops]
        return self._live

    async def _start_shards_again(self) -> None:
        if isinstance(self._pricer, RayPricer) and not self._pricer.shard_handles:
            await asyncio.sleep(_SHARDS_AFTER_S)
            self._pricer.start()

    async def _keep_snapshot(self) -> None:
        ours = {"epoch_s": self._clock.epoch_s, "now_s": self._clock(), "restarts": self._restarts}
        state = {**self._live.snapshot(), **ours}
        await self._keeper.put.remote(await asyncio.to_thread(pickle.dumps, state))

    async def _export_metrics(self) -> None:
        self._exporter.export(observe(self._live, self._core, self._pricer))

    def _failed(self, error: Exception) -> None:
        self._live.errors[type(error).__name__] += 1
        _log.error("a snapshot or the export of metrics failed", exc_info=error)


def _last_snapshot(keeper: Any) -> dict[str, Any] | None:
    """What the keeper has; a keeper that restarts, because its node died too, is waited for and has nothing."""
    until_s = time.monotonic() + _KEEPER_TIMEOUT_S
    while True:
        try:
            state: bytes | None = keeper.get.remote().future().result(_KEEPER_TIMEOUT_S)
        except RayActorError as error:
            if time.monotonic() > until_s:
                _log.error("starting without a snapshot: %s", error)
                return None
            time.sleep(_KEEPER_RETRY_S)
        else:
            return None if state is None else pickle.loads(state)
