"""The devices of a run: engines by id, their boundaries on the agenda, and what happens to them from outside.

Everything here is told as events and written to the log; which request goes where is not decided here.
"""

from __future__ import annotations

import math

from olp_ray.core.types import (
    Assign,
    DeviceJoined,
    DeviceLost,
    Event,
    Finished,
    Preempted,
    Progressed,
    Stage,
    Started,
)
from olp_ray.errors import SimulationError
from olp_ray.sim.engine import EngineSpec, Sequence
from olp_ray.sim.incidents import Incident, Joined, Lost
from olp_ray.sim.kernel import BOUNDARY, Agenda
from olp_ray.sim.latency import to_s
from olp_ray.sim.log import RunLog
from olp_ray.sim.replica import Replica


class Devices:
    """Engines in the router's order. `at_boundary` holds those that form their next batch in this instant."""

    def __init__(self, engines: dict[str, EngineSpec], agenda: Agenda, log: RunLog, period: bool) -> None:
        self.replicas = {device_id: Replica(spec) for device_id, spec in engines.items()}
        self.at_boundary: set[str] = set()
        self._ids = list(engines)
        self._index = {device_id: i for i, device_id in enumerate(self._ids)}
        self._agenda = agenda
        self._log = log
        self._period = period
        self._work: dict[str, tuple[int, int]] = {}  # busy femtoseconds and iterations of processes that are gone

    @property
    def busy(self) -> bool:
        return not all(replica.idle for replica in self.replicas.values())

    def work(self) -> dict[str, tuple[float, int]]:
        """Seconds spent in iterations, and their number, of every device that there was."""
        total = {}
        for device_id in self._ids:
            busy_fs, iterations = self._work.get(device_id, (0, 0))
            replica = self.replicas.get(device_id)
            if replica is not None:
                busy_fs, iterations = busy_fs + replica.busy_fs, iterations + replica.iteration
            total[device_id] = (to_s(busy_fs), iterations)
        return total

    def complete(self, index: int, now_s: float, events: list[Event]) -> int:
        """A boundary may be due on this device; returns how many requests finished there."""
        device_id = self._ids[index]
        replica = self.replicas.get(device_id)
        if replica is None or replica.idle or replica.end_s > now_s:
            return 0  # a newcomer or a failure made the entry void
        self._log.counters.boundaries += 1
        finished = replica.complete()
        for sequence in finished:
            self._log.finished(sequence, now_s)
            events.append(Finished(sequence.key, sequence.generated))
        for sequence in replica.first_tokens:
            self._log.first_token(sequence, now_s)
        self.at_boundary.add(device_id)
        return len(finished)

    def begin(self, now_s: float, events: list[Event]) -> None:
        """Every device at a boundary forms its next batch."""
        for device_id in sorted(self.at_boundary, key=self._index.__getitem__):
            replica = self.replicas[device_id]
            boundary = replica.begin(now_s)
            for sequence in boundary.preempted:
                self._log.preempted(sequence)
                events.append(Preempted(sequence.key, sequence.generated))
            for sequence in boundary.started:
                self._log.started(sequence, now_s, first_token=self._period)
                events.append(Started(sequence.key))
            self._agenda.add(replica.end_s, BOUNDARY, self._index[device_id])
        self.at_boundary.clear()

    def assign(self, decision: Assign, output_tokens: int, now_s: float) -> None:
        """Into the engine's queue. Raises `SimulationError` for a device that is not there."""
        device_id, request = decision.key.device_id, decision.request
        replica = self.replicas.get(device_id)
        if replica is None:
            raise SimulationError(
                f"request {request.id!r} was assigned to {device_id!r}; devices: {list(self.replicas)}"
            )
        spec = replica.spec
        sequence = Sequence(
            decision.key,
            request.prompt_tokens,
            output_tokens,
            generated=int(request.stage == Stage.DECODE),
            kv_ready=not spec.prefill and (decision.key.attempt == 0 or not spec.recompute),
            prefix_blocks=request.prefix_blocks,
        )
        before_s = replica.end_s
        replica.enqueue(sequence, now_s)
        if replica.idle:
            self.at_boundary.add(device_id)
        else:
            self._after_cut(device_id, before_s, now_s)

    def progress(self, now_s: float, events: list[Event]) -> None:
        """Tell how far decoding sequences are."""
        for device_id, replica in self.replicas.items():
            self._log.sample(now_s, device_id, replica)
            if replica.decode_count:
                keys, decoded = replica.progress(now_s)
                events.append(Progressed(keys, decoded))

    def happen(self, incident: Incident, now_s: float, events: list[Event]) -> None:
        """A failure, a join or a change of speed."""
        if isinstance(incident, Lost):
            replica = self.replicas.pop(incident.device_id)
            busy_fs, iterations = self._work.get(incident.device_id, (0, 0))
            self._work[incident.device_id] = (busy_fs + replica.busy_fs, iterations + replica.iteration)
            self.at_boundary.discard(incident.device_id)
            self._log.lost(replica)
            events.append(DeviceLost(incident.device_id, incident.incarnation))
        elif isinstance(incident, Joined):
            self._join(incident.device.id, incident.spec)
            events.append(DeviceJoined(incident.device))
        elif incident.device_id in self.replicas:
            replica = self.replicas[incident.device_id]
            before_s = replica.end_s
            replica.set_speed(incident.speed, now_s)
            self._after_cut(incident.device_id, before_s, now_s)

    def _join(self, device_id: str, spec: EngineSpec) -> None:
        if device_id not in self._index:
            self._index[device_id] = len(self._ids)
            self._ids.append(device_id)
        self.replicas[device_id] = Replica(spec)

    def _after_cut(self, device_id: str, before_s: float, now_s: float) -> None:
        """The stretch that ended at before_s may end earlier now, or may have ended this instant."""
        replica = self.replicas[device_id]
        if replica.end_s == before_s or replica.end_s == math.inf:
            return
        self._agenda.add(replica.end_s, BOUNDARY, self._index[device_id])
        if replica.end_s <= now_s:
            replica.complete()
            self.at_boundary.add(device_id)
