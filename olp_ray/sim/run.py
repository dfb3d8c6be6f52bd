"""The simulation loop: the agenda's next instant becomes events, the router's decisions become assignments.

In one instant, in this order: incidents, device boundaries (finishes), prefilled prompts, arrivals, progress; one call
of `handle`; then every engine at a boundary forms its next batch, and what that started or evicted is told with the
same time, until nothing more happens. The loop decides nothing: any object with `handle(now_s, events) -> Step` can be
the router.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from olp_ray.core.types import Arrived, Decision, Event, Finished, Reject, Request, Stage, Step
from olp_ray.errors import PriceError, SimulationError, WorkloadError
from olp_ray.sim.devices import Devices
from olp_ray.sim.engine import EngineSpec
from olp_ray.sim.incidents import Incident
from olp_ray.sim.kernel import ARRIVAL, BOUNDARY, INCIDENT, PREFILLED, PROGRESS, WAKE, Agenda
from olp_ray.sim.log import RunLog
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


class Prefill(Protocol):
    """Computes prompts before requests reach the router: when is this one's first token there?"""

    def submit(self, prompt_tokens: int, now_s: float) -> float: ...


class Lengths(Protocol):
    """Predicts output lengths while the run goes on, from what has finished before."""

    def predicted(self, request: Request) -> Request: ...
    def learn(self, request: Request, output_tokens: int) -> None: ...


class Simulation:
    """One run, stepped from outside: `step` until it returns False, then `result`.

    engines maps device ids to specs, in the router's order. period puts arrivals on whole seconds (the paper's periods)
    and counts the first token at the start. Every update_s the router is told the progress of decoding sequences
    (inf: never). prefill is what computes prompts before the router sees a request; None when the fleet does that.
    lengths predicts each request as it arrives, after what finished in that instant; None leaves predictions as they
    are. No instant after horizon_s is simulated.
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
        prefill: Prefill | None = None,
        lengths: Lengths | None = None,
        incidents: Sequence[Incident] = (),
        timeline: bool = False,
    ) -> None:
        self.now_s = 0.0
        self.log = RunLog(timeline)
        self._router = router
        self._update_s = update_s
        self._horizon_s = horizon_s
        self._prefill = prefill
        self._lengths = lengths
        self._by_id: dict[str, Request] = {}  # what `lengths` has predicted and not yet learned
        self._incidents = incidents
        self._requests = sorted(
            ((_on_period(r.request) if period else r.request, r.output_tokens) for r in requests),
            key=lambda pair: (pair[0].arrival_s, pair[0].id),
        )
        _check(self._requests)
        self._agenda = Agenda()
        self.devices = Devices(engines, self._agenda, self.log, period)
        self._arrived = 0
        self._open = len(self._requests)
        self._pending = len(self._requests) + len(incidents)  # arrivals, prompts and incidents still to come
        self._wake_s = math.inf
        self._idle_wakes = 0
        self._ticking = False
        self._push_arrival()
        for i, incident in enumerate(incidents):
            self._agenda.add(incident.time_s, INCIDENT, i)

    def step(self) -> bool:
        """Simulate the next instant; False when the run is over."""
        now_s = self._agenda.next_s
        if not self._open or now_s == math.inf or now_s > self._horizon_s or self._idle_wakes > IDLE_WAKES:
            return False
        self.now_s = now_s
        events: list[Event] = []
        for kind, entry in self._agenda.pop_due(now_s):
            if kind == BOUNDARY:
                self._open -= self.devices.complete(entry, now_s, events)
                if self._lengths is not None:
                    self._learn(self._lengths, events)
            elif kind == ARRIVAL:
                self._take_arrivals(events)
            elif kind == PROGRESS:
                self._ticking = False
                self.devices.progress(now_s, events)
            elif kind == PREFILLED:
                self._take_prefilled(entry, events)
            elif kind == INCIDENT:
                self._pending -= 1
                self.devices.happen(self._incidents[entry], now_s, events)
        self._settle(events, wake=self._wake_s <= now_s)
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
        work = self.devices.work()
        self.log.counters.iterations = sum(iterations for _, iterations in work.values())
        return self.log.result(self.now_s, {device_id: busy_s for device_id, (busy_s, _) in work.items()})

    # -- one instant ---------------------------------------------------------------------------------------------

    def _settle(self, events: list[Event], wake: bool) -> None:
        """Call the router and let engines form batches until the instant has nothing more to say."""
        if wake:
            idle = not (events or self._pending or self.devices.busy)
            self._idle_wakes = self._idle_wakes + 1 if idle else 0
        while True:
            if events or wake:
                step = self._call(events)
                if step.decisions:
                    self._apply(step.decisions)
            wake, events = False, []
            if self.devices.at_boundary:
                self.devices.begin(self.now_s, events)
            if not events:
                break
        if not self._ticking and self.devices.busy:
            self._push_tick()

    def _call(self, events: list[Event]) -> Step:
        counters = self.log.counters
        counters.handle_calls += 1
        counters.events += len(events)
        step = self._router.handle(self.now_s, events)
        if failed := next((fault for fault in step.faults if isinstance(fault, PriceError)), None):
            raise failed
        if step.next_wake_s <= self.now_s:
            raise SimulationError(
                f"the router wants to be called at {step.next_wake_s} s, which is not after {self.now_s} s"
            )
        if step.next_wake_s != self._wake_s:
            self._wake_s = step.next_wake_s
            self._agenda.add(self._wake_s, WAKE)
        return step

    def _apply(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self.log.decided(self.now_s, decision)
            if isinstance(decision, Reject):
                self._open -= 1
            else:
                output_tokens = self.log.true_output_tokens(decision.request.id)
                self.devices.assign(decision, output_tokens, self.now_s)

    def _take_arrivals(self, events: list[Event]) -> None:
        while self._arrived < len(self._requests) and self._requests[self._arrived][0].arrival_s <= self.now_s:
            request, output_tokens = self._requests[self._arrived]
            if self._lengths is not None:
                request = self._by_id[request.id] = self._lengths.predicted(request)
                self._requests[self._arrived] = request, output_tokens
            self.log.arrived(request, output_tokens)
            if self._prefill is None:
                self._pending -= 1
                events.append(Arrived(request))
            else:
                ready_s = self._prefill.submit(request.prompt_tokens, self.now_s)
                if ready_s > self.now_s:
                    self._agenda.add(ready_s, PREFILLED, self._arrived)
                else:
                    self._take_prefilled(self._arrived, events)
            self._arrived += 1
        self._push_arrival()

    def _learn(self, lengths: Lengths, events: list[Event]) -> None:
        """Tell `lengths` of requests that have just finished, each once."""
        for event in events:
            if isinstance(event, Finished) and event.key.request_id in self._by_id:
                lengths.learn(self._by_id.pop(event.key.request_id), event.output_tokens)

    def _take_prefilled(self, index: int, events: list[Event]) -> None:
        """The prompt is computed and its first token is there; the rest is for the decode fleet."""
        self._pending -= 1
        request, output_tokens = self._requests[index]
        self.log.prefilled(request.id, self.now_s, done=output_tokens == 1)
        if output_tokens == 1:
            self._open -= 1
            if self._lengths is not None:
                self._lengths.learn(self._by_id.pop(request.id), output_tokens)
        else:
            events.append(Arrived(dataclasses.replace(request, arrival_s=self.now_s, stage=Stage.DECODE)))

    def _push_arrival(self) -> None:
        if self._arrived < len(self._requests):
            self._agenda.add(self._requests[self._arrived][0].arrival_s, ARRIVAL)

    def _push_tick(self) -> None:
        """Ticks come at whole multiples of update_s, while any device works."""
        if self._update_s == math.inf:
            return
        self._ticking = True
        tick = math.floor(self.now_s / self._update_s) + 1
        while tick * self._update_s <= self.now_s:
            tick += 1
        self._agenda.add(tick * self._update_s, PROGRESS)


def _on_period(request: Request) -> Request:
    return dataclasses.replace(request, arrival_s=float(math.ceil(request.arrival_s)))


def _check(requests: Sequence[tuple[Request, int]]) -> None:
    if len({request.id for request, _ in requests}) < len(requests):
        raise WorkloadError("request ids are not unique")
    for request, output_tokens in requests:
        if request.arrival_s < 0:
            raise WorkloadError(f"request {request.id!r}: arrival_s is {request.arrival_s}; expected >= 0")
        if not 1 <= output_tokens < math.inf:
            raise WorkloadError(f"request {request.id!r}: output_tokens is {output_tokens}; expected >= 1")
