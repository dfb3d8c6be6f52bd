"""An engine in real time without a GPU: the simulator's continuous batching, paced by the clock.

A plain asyncio object. It runs what it is given in its own order, tells what happened as events, and passes tokens on
in batches, one stream per ingress.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from olp_ray.core.types import AssignmentKey, Event, Finished, Preempted, Progressed, Started
from olp_ray.runtime.outbox import Outbox
from olp_ray.sim.engine import EngineSpec, Sequence
from olp_ray.sim.replica import Replica


@dataclass(frozen=True, slots=True)
class Work:
    """One assignment, and the output length that only the engine knows."""

    key: AssignmentKey
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """So many more output tokens of an assignment; over with the last of them."""

    key: AssignmentKey
    count: int
    over: bool


@dataclass(slots=True, eq=False)
class _Job:
    ingress_id: str
    sequence: Sequence
    passed_on: int = 0


class EmulatedEngine:
    """clock is in seconds; report is told events; `outbox` has a stream of `Tokens` for each ingress.

    Tokens are passed on every chunk_interval_s, and at once where a request gets its first or last one. Progress is
    reported every progress_s.
    """

    def __init__(
        self,
        spec: EngineSpec,
        clock: Callable[[], float],
        report: Callable[[Event], None],
        chunk_interval_s: float,
        progress_s: float,
    ) -> None:
        self.outbox = Outbox()
        self._replica = Replica(spec)
        self._clock = clock
        self._report = report
        self._chunk_interval_s = chunk_interval_s
        self._progress_s = progress_s
        self._jobs: dict[AssignmentKey, _Job] = {}
        self._next_chunk_s = math.inf
        self._next_progress_s = math.inf
        self._awake = asyncio.Event()

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._replica.running)

    @property
    def waiting(self) -> int:
        """Sequences in the engine's own queue."""
        return len(self._replica.waiting)

    @property
    def used_kv_tokens(self) -> int:
        spec = self._replica.spec
        return (spec.blocks - self._replica.free_blocks) * spec.block_tokens

    def start(self, ingress_id: str, works: Iterable[Work]) -> None:
        """Take assignments in. Raises `SimulationError` for a prompt that can never fit."""
        now_s = self._clock()
        for work in works:
            if work.key in self._jobs:
                continue
            sequence = Sequence(work.key, work.prompt_tokens, work.output_tokens)
            self._replica.enqueue(sequence, now_s)
            self._jobs[work.key] = _Job(ingress_id, sequence)
        self._awake.set()

    def abort(self, keys: Iterable[AssignmentKey]) -> None:
        """Let go of assignments, wherever they are; unknown ones are over already."""
        now_s = self._clock()
        for key in keys:
            job = self._jobs.pop(key, None)
            if job is not None:
                self._replica.withdraw(job.sequence, now_s)
        self._awake.set()

    def forget(self, ingress_id: str) -> None:
        """Let go of everything of an ingress that left."""
        self.abort([key for key, job in self._jobs.items() if job.ingress_id == ingress_id])
        self.outbox.forget(ingress_id)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            wake_s = self.turn()
            try:
                async with asyncio.timeout(None if wake_s == math.inf else max(0.0, wake_s - self._clock())):
                    await self._awake.wait()
            except TimeoutError:
                pass
            self._awake.clear()

    def turn(self) -> float:
        """Do everything that is due; when there is something to do again."""
        replica = self._replica
        now_s = self._clock()
        if replica.idle:
            self._begin(now_s)
        while replica.end_s <= now_s:
            self._boundary(replica.end_s)
        if replica.idle:
            self._next_chunk_s = self._next_progress_s = math.inf
            return math.inf
        self._next_chunk_s = min(self._next_chunk_s, now_s + self._chunk_interval_s)
        self._next_progress_s = min(self._next_progress_s, now_s + self._progress_s)
        if now_s >= min(self._next_chunk_s, self._next_progress_s):
            self._pass_on(now_s)
        return min(replica.end_s, self._next_chunk_s, self._next_progress_s)

    def _begin(self, at_s: float) -> None:
        boundary = self._replica.begin(at_s)
        for sequence in boundary.preempted:
            self._report(Preempted(sequence.key, sequence.generated))
        for sequence in boundary.started:
            self._report(Started(sequence.key))

    def _boundary(self, at_s: float) -> None:
        replica = self._replica
        for sequence in replica.complete():
            job = self._jobs.pop(sequence.key, None)
            if job is not None:
                self._report(Finished(sequence.key, sequence.generated))
                self._send(job, sequence.generated, over=True)
        for sequence in replica.first_tokens:
            if sequence.key in self._jobs:
                self._send(self._jobs[sequence.key], sequence.generated, over=False)
        self._begin(at_s)

    def _pass_on(self, now_s: float) -> None:
        keys, generated = self._replica.progress(now_s)
        if now_s >= self._next_progress_s:
            self._next_progress_s = now_s + self._progress_s
            if keys:
                self._report(Progressed(keys, generated))
        self._next_chunk_s = now_s + self._chunk_interval_s
        for key, count in zip(keys, generated.tolist(), strict=True):
            if key in self._jobs:
                self._send(self._jobs[key], count, over=False)

    def _send(self, job: _Job, generated: int, over: bool) -> None:
        count = max(0, generated - job.passed_on)
        if count or over:
            job.passed_on += count
            self.outbox.put(job.ingress_id, Tokens(job.sequence.key, count, over))
