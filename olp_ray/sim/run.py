"""The simulation loop: the agenda's next instant becomes events, the router's decisions become assignments.

In one instant, in this order: device boundaries (finishes), arrivals, progress; one call of `handle`; then every engine
at a boundary forms its next batch, and what that started or evicted is told with the same time, until nothing more
happens. The loop decides nothing: any object with `handle(now_s, events) -> Step` can be the router.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from olp_ray.core.types import (
    Arrived,
    Assign,
    Event,
    Finished,
    Preempted,
    Progressed,
    Reject,
    Request,
    Started,
    Step,
)
from olp_ray.errors import SimulationError, WorkloadError
from olp_ray.sim import engine
from olp_ray.sim.engine import EngineSpec
from olp_ray.sim.kernel import Agenda, Due
from olp_ray.sim.log import RunLog
from olp_ray.sim.replica import Replica
from olp_ray.sim.result import Result

IDLE_WAKES = 10_000  # with nothing running and nothing to come, a router that wakes this often in vain is given up


class Router(Protocol):
    """What drives a simulation."""

    def handle(self, now_s: float, events: Sequence[Event]) -> Step: ...


class TrueRequest(Protocol):
    """A request as the router sees it, and what the router never sees."""

    @property
    def request(self) -> Request: ...
    @property
    def output_tokens(self) -> int: ...


class Simulation:
    """One run, stepped from outside: `step` until it returns False, then `result`.

    engines maps device ids to specs, in the router's order. period puts arrivals on whole seconds (the paper's periods)
    and counts the first token at the start. Every update_s the router is told the progress of decoding sequences
    (inf: never). No instant after horizon_s is simulated.
    """

    def __init__(
        self,
        requests: Sequence[TrueRequest],
        engines: dict[str, EngineSpec],
        router: Router,
        *,
        period: bool = False,
        update_s: float = math.inf,
        horizon_s: float = math.inf,
        timeline: bool = False,
    ) -> None:
        self.now_s = 0.0
        self._period = period
        self._router = router
        self._update_s = update_s
        self._horizon_s = horizon_s
        self._requests = sorted(
            ((_on_period(r.request) if period else r.request, r.output_tokens) for r in requests),
            key=lambda pair: (pair[0].arrival_s, pair[0].id),
        )
        _check(self._requests)
        self.devices = list(engines)
        self.replicas = {device: Replica(spec) for device, spec in engines.items()}
        self._index = {device: i for i, device in enumerate(self.devices)}
        self.log = RunLog(timeline)
        self._agenda = Agenda()
        self._arrived = 0
        self._open = len(self._requests)
        self._wake_s = math.inf
        self._idle_wakes = 0
        self._ticks = 0
        self._push_arrival()
        self._push_tick()

    def step(self) -> bool:
        """Simulate the next instant; False when the run is over."""
        now = self._agenda.next_s
        if not self._open or now == math.inf or now > self._horizon_s or self._idle_wakes > IDLE_WAKES:
            return False
        self.now_s = now
        events: list[Event] = []
        at_boundary: dict[str, None] = {}
        wake = False
        for kind, entry in self._agenda.pop_due(now):
            if kind == Due.BOUNDARY:
                self._at_boundary(self.devices[entry], events, at_boundary)
            elif kind == Due.ARRIVAL:
                self._take_arrivals(events)
            elif kind == Due.PROGRESS:
                self._tell_progress(events)
            else:
                wake = wake or self._wake_s <= now
        if events or wake or at_boundary:
            self._idle_wakes = 0 if events or at_boundary else self._idle_wakes + 1
            self._settle(events, at_boundary, wake)
        return True

    def run(self, progress: Callable[[int, int], None] | None = None) -> Result:
        """Step to the end. progress is told (requests done, requests in all) now and then."""
        total, told = len(self._requests), 0
        while self.step():
            done = total - self._open
            if progress is not None and done > told:
                told = done
                progress(done, total)
        return self.result()

    def result(self) -> Result:
        """Everything so far, as tables."""
        for replica in self.replicas.values():
            self.log.counters.iterations += replica.iteration
        busy = {device: replica.busy_fs for device, replica in self.replicas.items()}
        return self.log.result(self.now_s, busy)

    # -- one instant ---------------------------------------------------------------------------------------------

    def _settle(self, events: list[Event], at_boundary: dict[str, None], call: bool) -> None:
        """Call the router and let engines form batches until the instant has nothing more to say."""
        while True:
            if events or call:
                self._apply(self._call(events), at_boundary)
            call = False
            events = []
            for device in sorted(at_boundary, key=self._index.__getitem__):
                self._begin(device, events)
            at_boundary.clear()
            if not events:
                return

    def _call(self, events: list[Event]) -> Step:
        counters = self.log.counters
        counters.handle_calls += 1
        counters.events += len(events)
        step = self._router.handle(self.now_s, events)
        if step.next_wake_s <= self.now_s:
            raise SimulationError(
                f"the router wants to be called at {step.next_wake_s} s, which is not after {self.now_s} s"
            )
        if step.next_wake_s != self._wake_s:
            self._wake_s = step.next_wake_s
            self._agenda.add(self._wake_s, Due.WAKE)
        return step

    def _apply(self, step: Step, at_boundary: dict[str, None]) -> None:
        for decision in step.decisions:
            self.log.decided(self.now_s, decision)
            if isinstance(decision, Reject):
                self._open -= 1
            else:
                self._assign(decision, at_boundary)

    def _assign(self, decision: Assign, at_boundary: dict[str, None]) -> None:
        device = decision.key.device_id
        replica = self.replicas.get(device)
        if replica is None:
            raise SimulationError(
                f"request {decision.request.id!r} was assigned to {device!r}; devices: {self.devices}"
            )
        request = decision.request
        sequence = engine.Sequence(decision.key, request.prompt_tokens, self.log.true_output_tokens(request.id))
        before_s = replica.end_s
        replica.enqueue(sequence, self.now_s)
        if replica.idle:
            at_boundary[device] = None
        elif replica.end_s != before_s:
            self._agenda.add(replica.end_s, Due.BOUNDARY, self._index[device])
            if replica.end_s <= self.now_s:
                replica.complete()
                at_boundary[device] = None

    def _at_boundary(self, device: str, events: list[Event], at_boundary: dict[str, None]) -> None:
        replica = self.replicas[device]
        if replica.idle or replica.end_s > self.now_s:
            return  # an entry that a newcomer made void
        self.log.counters.boundaries += 1
        for sequence in replica.complete():
            self._open -= 1
            self.log.finished(sequence, self.now_s)
            events.append(Finished(sequence.key, sequence.generated))
        for sequence in replica.first_tokens:
            self.log.first_token(sequence, self.now_s)
        at_boundary[device] = None

    def _begin(self, device: str, events: list[Event]) -> None:
        replica = self.replicas[device]
        boundary = replica.begin(self.now_s)
        for sequence in boundary.preempted:
            self.log.preempted(sequence)
            events.append(Preempted(sequence.key, sequence.generated))
        for sequence in boundary.started:
            self.log.started(sequence, self.now_s, first_token=self._period)
            events.append(Started(sequence.key))
        self._agenda.add(replica.end_s, Due.BOUNDARY, self._index[device])

    def _take_arrivals(self, events: list[Event]) -> None:
        while self._arrived < len(self._requests) and self._requests[self._arrived][0].arrival_s <= self.now_s:
            request, output_tokens = self._requests[self._arrived]
            self.log.arrived(request, output_tokens)
            events.append(Arrived(request))
            self._arrived += 1
        self._push_arrival()

    def _tell_progress(self, events: list[Event]) -> None:
        for device in self.devices:
            replica = self.replicas[device]
            self.log.sample(self.now_s, device, replica)
            if replica.decode_count:
                keys, decoded = replica.progress(self.now_s)
                events.append(Progressed(keys, decoded))
        self._push_tick()

    def _push_arrival(self) -> None:
        if self._arrived < len(self._requests):
            self._agenda.add(self._requests[self._arrived][0].arrival_s, Due.ARRIVAL)

    def _push_tick(self) -> None:
        self._ticks += 1
        self._agenda.add(self._ticks * self._update_s, Due.PROGRESS)


def _on_period(request: Request) -> Request:
    return dataclasses.replace(request, arrival_s=float(math.ceil(request.arrival_s)))


def _check(requests: Sequence[tuple[Request, int]]) -> None:
    if len({request.id for request, _ in requests}) < len(requests):
        raise WorkloadError("request ids are not unique")
    for request, output_tokens in requests:
        if request.arrival_s < 0:
            raise WorkloadError(f"request {request.id!r}: arrival_s is {request.arrival_s}; expected >= 0")
        if output_tokens < 1:
            raise WorkloadError(f"request {request.id!r}: output_tokens is {output_tokens}; expected >= 1")
