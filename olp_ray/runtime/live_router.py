"""The router in real time, as a plain asyncio object: an inbox of events, one loop, and answers to ingresses.

Wakes when something comes in and at `next_wake_s`, never in between. It translates and never decides: arrivals get
their time, decisions go to the ingress that owns the request, and errors are typed, counted and logged while the loop
goes on. Ray is not needed here; `coordinator` puts it into an actor.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.types import (
    Arrived,
    Assign,
    Decision,
    Device,
    DeviceJoined,
    DeviceLost,
    Event,
    ReplicaRefused,
    RequestKey,
)
from olp_ray.errors import EventError, PolicyError, RuntimeShellError, SnapshotError
from olp_ray.runtime.books import Books
from olp_ray.runtime.lines import Lines
from olp_ray.runtime.messages import Refused, Report, Submission, key_of
from olp_ray.runtime.metrics import MetricSet
from olp_ray.runtime.outbox import Outbox
from olp_ray.runtime.reunion import Reunion
from olp_ray.runtime.vetting import check_event

_log = logging.getLogger(__name__)
_HEARTBEAT_S = 1.0  # the loop also turns this often when nothing happens, so that a stall can be told from silence
_BACKOFF_S = 0.1  # after a tick that failed
_HOLD_S = 0.5  # an ingress that is there has said hello within this


class LiveRouter:
    """Drives `priced` by `clock` (seconds on the router's clock). All methods belong to one event loop's thread."""

    def __init__(self, priced: PricedRouter, clock: Callable[[], float], stall_s: float) -> None:
        self._priced = priced
        self._clock = clock
        self._stall_s = stall_s
        self._inbox: list[Event] = []
        self._coming: set[RequestKey] = set()  # arrivals in the inbox
        self._books = Books(priced.router)
        self._reunion = Reunion()
        self._awake = asyncio.Event()
        self._due_s = -math.inf  # when to turn although nothing has come
        self._turned_s = time.monotonic()
        self._closed = False
        self.lines = Lines()
        self.outbox = Outbox()
        self.errors: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.metrics = MetricSet()

    # -- in ------------------------------------------------------------------------------------------------------

    def submit(self, ingress_id: str, submissions: Sequence[Submission]) -> None:
        """Requests of one ingress, perhaps none: it is there. Sending one again only brings its assignment again."""
        now_s = self._clock()
        self.lines.heard(ingress_id)
        if self._reunion.held_until_s(now_s) is not None:  # what we know of assignments may be of processes now gone
            self._reunion.postpone(ingress_id, submissions, now_s)
        else:
            if self._inbox and any(self._books.is_known(each.request.key) for each in submissions):
                self.tick()  # why it is submitted again may be in the inbox: its device was lost, or its engine refused
            self._take_in(ingress_id, submissions)
        self._awake.set()

    def report(self, events: Iterable[Event]) -> None:
        """What happened on engines and to clients."""
        for event in events:
            try:
                check_event(event)
            except EventError as error:
                self._note(error, "an event was dropped")
            else:
                self._inbox += self._books.processes.news(event)
        self._awake.set()

    def device_up(self, device: Device) -> None:
        """A process of this device is there; it takes the place of an older one."""
        self._inbox += self._books.processes.up(device)
        self.tick()
        self._awake.set()

    def hello(self, ingress_id: str, report: Report) -> None:
        """Make what we know of this ingress's requests agree with what it has; it reads no stream any more.

        Assignments made after the last snapshot are carried as external load until they are over; decisions that got
        lost are sent again; what the ingress has no longer is cancelled. After a restart this waits until all
        ingresses have reported, for a little while. An older report than the last says nothing.
        """
        if not self.lines.reported(ingress_id, report.number):
            return
        self.outbox.hang_up(ingress_id)
        self._reunion.heard(ingress_id, report, self._clock())
        self.tick()
        self._awake.set()

    # -- the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Turn until `close`. No error of a tick ends it."""
        while not self._closed:
            if self._inbox or self._clock() >= self._due_s:
                self.tick()
            try:
                async with asyncio.timeout(max(self._due_s - self._clock(), 0.0)):
                    await self._awake.wait()
            except TimeoutError:
                pass
            self._awake.clear()

    def tick(self) -> float:
        """Hand the inbox to the router and its decisions to their owners; when to do that again at the latest."""
        now_s = self._clock()
        held_until_s = self._reunion.held_until_s(now_s)
        try:
            next_wake_s = self._turn() if held_until_s is None else held_until_s
        except Exception as error:
            self._note(error, "a turn failed")
            next_wake_s = now_s + _BACKOFF_S
        self._due_s = min(next_wake_s, now_s + _HEARTBEAT_S)
        return self._due_s

    def _turn(self) -> float:
        began = time.perf_counter()
        self._agree()
        self._inbox += self._books.orphans.updates(self._inbox)  # what waits again is then not taken for running
        now_s = self._clock()
        for ingress_id, submission in self._reunion.take_postponed(now_s):
            self._take_in(ingress_id, [submission])
        for ingress_id in sorted({*self._reunion.given_up(now_s), *self.lines.left(now_s)}):
            self._dismiss(ingress_id)
        events, self._inbox = self._inbox, []
        self._coming.difference_update(event.request.key for event in events if isinstance(event, Arrived))
        next_wake_s = self._handle(now_s, events)
        self._books.forget_ended(events)
        self.counts["ticks"] += 1
        self.counts["events"] += len(events)
        self.metrics.observe("olp_ray_tick_seconds", time.perf_counter() - began)
        return next_wake_s

    def close(self) -> None:
        self._closed = True
        self._awake.set()

    def check_health(self) -> None:
        """Raises `RuntimeShellError` when the loop stands still or every tick fails."""
        still_s = time.monotonic() - self._turned_s
        if still_s > self._stall_s:
            raise RuntimeShellError(
                f"no tick of the router has succeeded for {still_s:.1f} s (runtime.stall_s={self._stall_s:g}); "
                f"errors so far: {dict(self.errors)}"
            )

    @property
    def orphan_count(self) -> int:
        """Requests on engines that are carried as external load."""
        return len(self._books.orphans)

    # -- snapshots -----------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State of the router and who owns which request; the inbox is not in it."""
        return {"version": 1, "router": self._priced.router.snapshot(), **self._books.snapshot()}

    def restore(self, state: Mapping[str, Any], grace_s: float) -> None:
        """Take a `snapshot` back.

        Nothing is decided before its ingresses have said hello, or half a second has passed: the room that they have
        filled since is not known yet. Requests of one that has not said hello within grace_s are cancelled.
        """
        if state.get("version") != 1:
            raise SnapshotError(f"coordinator snapshot of version {state.get('version')}; expected 1")
        self._priced.router.restore(state["router"])
        self._reunion.begin(self._books.restore(state), self._clock(), _HOLD_S, grace_s)

    # -- inside --------------------------------------------------------------------------------------------------

    def _take_in(self, ingress_id: str, submissions: Iterable[Submission]) -> None:
        now_s = self._clock()
        for submission in submissions:
            key = submission.request.key
            owner = self._books.owners.setdefault(key, ingress_id)
            if owner != ingress_id:
                self.outbox.put(ingress_id, Refused(key, "EventError", f"request id {key.request_id!r} is in use"))
                continue
            if (assigned := self._books.where(key)) is not None:
                self.outbox.put(ingress_id, Assign(assigned, submission.request))
            if self._books.is_known(key) or key in self._coming:
                continue
            self._coming.add(key)
            self._inbox.append(Arrived(dataclasses.replace(submission.request, arrival_s=now_s - submission.waited_s)))

    def _agree(self) -> None:
        """Take in what ingresses have reported."""
        reports = self._reunion.take_reports(self._clock())
        if not reports:
            return
        for report in reports.values():
            self._inbox += self._books.device_events(report)
        # what came since of requests follows: of an end, say, it must be known first that there is something to end
        first = (DeviceJoined, DeviceLost, ReplicaRefused)
        since = [event for event in self._inbox if not isinstance(event, first)]
        devices = [event for event in self._inbox if isinstance(event, DeviceJoined | DeviceLost)]
        refused = [event for event in self._inbox if isinstance(event, ReplicaRefused)]
        # in one turn which devices there are and what runs on them: neither it nor its room must be assigned again
        known = [*devices, *self._books.orphans.updates(devices), *self._books.take_back(reports)]
        known += [*refused, *self._books.orphans.updates(refused)]
        self._inbox = []
        try:
            if known:
                self._handle(self._clock(), known)
            for ingress_id, report in reports.items():
                self._agree_with(ingress_id, report)
        finally:
            self._inbox += since

    def _agree_with(self, ingress_id: str, report: Report) -> None:
        self._let_go(ingress_id, report)
        settled = {submission.request.key for submission in report.waiting}  # which is answered again
        settled |= self._books.running(report)  # made by a router that did not know it
        for answer in self.outbox.take(ingress_id):
            if key_of(answer) not in settled:
                self.outbox.put(ingress_id, answer)
        self._take_in(ingress_id, report.waiting)

    def _let_go(self, ingress_id: str, report: Report) -> None:
        """Cancel what this ingress owns here and has no longer."""
        if gone := self._books.let_go(ingress_id, report, self._coming):
            self._handle(self._clock(), gone)

    def _dismiss(self, ingress_id: str) -> None:
        """This ingress has left, and what it has going is nobody's. Should it come back, it has to say hello."""
        _log.warning("ingress %s has left", ingress_id)
        self.counts["ingresses_left"] += 1
        self._let_go(ingress_id, Report())
        self.outbox.forget(ingress_id)

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            request = decision.request
            owner = self._books.owners.get(request.key)
            if isinstance(decision, Assign):
                self.metrics.add("olp_ray_admissions_total", decision.key.device_id)
            else:
                self.metrics.add("olp_ray_rejections_total", str(decision.reason))
                self._books.owners.pop(request.key, None)
            if owner is None:
                self.counts["decisions_without_owner"] += 1
                continue
            self.outbox.put(owner, decision)

    def _count_holds(self, events: Sequence[Event]) -> None:
        held = sum(isinstance(e, Arrived) and self._books.is_waiting(e.request.key) for e in events)
        if held:
            self.metrics.add("olp_ray_holds_total", amount=held)

    def _handle(self, now_s: float, events: Sequence[Event]) -> float:
        """One call of the router. Events are idempotent, so after a failure each is handed in again on its own."""
        began = time.perf_counter()
        try:
            step = self._priced.handle(now_s, events)
        except PolicyError as error:  # the events are taken in
            self._note(error, "the policy failed")
            return now_s + _BACKOFF_S
        except Exception as error:
            self._note(error, f"{len(events)} events failed")
            if len(events) > 1:
                return min(self._handle(now_s, [event]) for event in events)
            self._refuse(events, error)
            return now_s + _BACKOFF_S
        self._turned_s = time.monotonic()
        decided = time.perf_counter()
        self._carry_out(step.decisions)
        self.metrics.observe("olp_ray_tick_router_seconds", decided - began)
        self.metrics.observe("olp_ray_tick_answers_seconds", time.perf_counter() - decided)
        self._count_holds(events)
        for fault in step.faults:
            self._note(fault, "what failed was left out")
        if step.faults:
            self._refuse(events, step.faults[0])
        return step.next_wake_s

    def _refuse(self, events: Sequence[Event], error: Exception) -> None:
        """Tell the owners of arrivals that did not get in."""
        arrivals = [event.request.key for event in events if isinstance(event, Arrived)]
        for key in arrivals:
            owner = None if self._books.is_known(key) else self._books.owners.pop(key, None)
            if owner is not None:
                self.outbox.put(owner, Refused(key, type(error).__name__, str(error)))

    def _note(self, error: Exception, what: str) -> None:
        self.errors[type(error).__name__] += 1
        _log.error("%s: %s: %s", what, type(error).__name__, error)
