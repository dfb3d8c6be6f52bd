"""An emulated engine in an actor of its own, with a line to the coordinator. Only carries calls."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence

import ray

from olp_ray.core.types import AssignmentKey, Device
from olp_ray.runtime.background import background
from olp_ray.runtime.client import Reporter, deliver
from olp_ray.runtime.names import find_actor
from olp_ray.serve.engines.emulated import EmulatedEngine, Tokens, Work
from olp_ray.sim.engine import EngineSpec


class EngineActor:
    """The actor's class. A process that Ray restarted is a new incarnation of its device."""

    def __init__(
        self, device: Device, spec: EngineSpec, coordinator_name: str, chunk_interval_s: float, progress_s: float
    ) -> None:
        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        self._device = dataclasses.replace(device, incarnation=int(time.time())) if restarted else device
        self._coordinator = find_actor(coordinator_name)
        self._reporter = Reporter(self._coordinator)
        self._engine = EmulatedEngine(spec, time.monotonic, self._reporter.report, chunk_interval_s, progress_s)
        self._tasks: list[asyncio.Task[None]] = []

    async def announce(self) -> Device:
        """Tell the coordinator that this process is there; the device as it is known from now on."""
        self._running()
        await deliver(self._coordinator.device_up.remote, self._device)
        return self._device

    async def start(self, ingress_id: str, works: Sequence[Work]) -> None:
        """Many assignments in one call; their tokens come over `tokens`."""
        self._running().start(ingress_id, works)

    async def abort(self, keys: Sequence[AssignmentKey]) -> None:
        """Let go of these."""
        self._running().abort(keys)

    async def forget(self, ingress_id: str) -> None:
        """Let go of everything of an ingress."""
        self._running().forget(ingress_id)

    async def tokens(self, ingress_id: str, incarnation: int) -> AsyncIterator[list[Tokens]]:
        """The long-lived stream to an ingress; empty when this process is not the incarnation that it knows."""
        if incarnation == self._device.incarnation:
            async for batch in self._running().outbox.stream(ingress_id):
                yield batch

    async def status(self) -> dict[str, int]:
        engine = self._running()
        return {"running": engine.running, "waiting": engine.waiting, "kv_tokens": engine.used_kv_tokens}

    def _running(self) -> EmulatedEngine:
        if not self._tasks:
            self._tasks = [background(self._engine.run()), background(self._reporter.run())]
        return self._engine
