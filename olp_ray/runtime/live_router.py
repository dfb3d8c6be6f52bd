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
    Cancelled,
    Decision,
    Device,
    DeviceJoined,
    DeviceLost,
    Event,
    Finished,
    RequestKey,
)
from olp_ray.errors import PolicyError, RuntimeShellError, SnapshotError
from olp_ray.runtime.messages import InFlight, Refused, Report, Submission, key_of
from olp_ray.runtime.metrics import MetricSet
from olp_ray.runtime.orphans import Orphans
from olp_ray.runtime.outbox import Outbox
from olp_ray.runtime.reunion import Reunion

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
        self._owners: dict[RequestKey, str] = {}
        self._orphans = Orphans()
        self._reunion = Reunion()
        self._awake = asyncio.Event()
        self._due_s = -math.inf  # when to turn although nothing has come
        self._turned_s = time.monotonic()
        self._closed = False
        self.outbox = Outbox()
        self.errors: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.metrics = MetricSet()

    # -- in ------------------------------------------------------------------------------------------------------

    def submit(self, ingress_id: str, submissions: Iterable[Submission]) -> None:
        """Requests of one ingress. Sending one again changes nothing, and brings its assignment again."""
        now_s = self._clock()
        for submission in submissions:
            key = submission.request.key
            owner = self._owners.setdefault(key, ingress_id)
            if owner != ingress_id:
                self.outbox.put(ingress_id, Refused(key, "EventError", f"request id {key.request_id!r} is in use"))
                continue
            if (assigned := self._priced.router.where(key)) is not None:
                self.outbox.put(ingress_id, Assign(assigned, submission.request))
            if self._is_known(key) or key in self._coming:
                continue
            self._coming.add(key)
            self._inbox.append(Arrived(dataclasses.replace(submission.request, arrival_s=now_s - submission.waited_s)))
        self._awake.set()

    def report(self, events: Sequence[Event]) -> None:
        """What happened on engines and to clients."""
        # what ran on a lost device is no longer known at once: it may be submitted again before the next turn
        self._orphans.updates([event for event in events if isinstance(event, DeviceLost)])
        self._inbox.extend(events)
        self._awake.set()

    def device_up(self, device: Device) -> None:
        """A process of this device is there; it takes the place of an older one."""
        ledger = self._priced.router.ledger
        if device.id in ledger:
            known = ledger.devices[ledger.row(device.id)]
            if known.incarnation >= device.incarnation:
                return
            self._inbox.append(DeviceLost(device.id, known.incarnation))
        if DeviceJoined(device) not in self._inbox:
            self._inbox.append(DeviceJoined(device))
        self.tick()
        self._awake.set()

    def _device_gone(self, lost: DeviceLost) -> None:
        ledger = self._priced.router.ledger
        if lost.device_id in ledger and ledger.devices[ledger.row(lost.device_id)].incarnation == lost.incarnation:
            self._inbox.append(lost)

    def hello(self, ingress_id: str, report: Report) -> None:
        """Make what we know of this ingress's requests agree with what it has.

        Assignments made after the last snapshot are carried as external load until they are over; decisions that got
        lost are sent again; what the ingress has no longer is cancelled. After a restart this waits until all
        ingresses have reported, for a little while.
        """
        now_s = self._clock()
        self._reunion.heard(ingress_id, report, now_s)
        if self._reunion.held_until_s(now_s) is None:
            self._agree()
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
        next_wake_s = self._turn() if held_until_s is None else held_until_s
        self._due_s = min(next_wake_s, now_s + _HEARTBEAT_S)
        return self._due_s

    def _turn(self) -> float:
        began = time.perf_counter()
        self._agree()
        now_s = self._clock()
        for ingress_id in self._reunion.given_up(now_s):
            self._let_go(ingress_id, Report())
        events, self._inbox = self._inbox, []
        events += self._orphans.updates(events)
        self._coming.difference_update(event.request.key for event in events if isinstance(event, Arrived))
        next_wake_s = self._handle(now_s, events)
        self._forget_owners(events)
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
        return len(self._orphans)

    # -- snapshots -----------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State of the router and who owns which request; the inbox is not in it."""
        return {
            "version": 1,
            "router": self._priced.router.snapshot(),
            "owners": dict(self._owners),
            "orphans": self._orphans.snapshot(),
        }

    def restore(self, state: Mapping[str, Any], grace_s: float) -> None:
        """Take a `snapshot` back.

        Nothing is decided before its ingresses have said hello, or half a second has passed: the room that they have
        filled since is not known yet. Requests of one that has not said hello within grace_s are cancelled.
        """
        if state.get("version") != 1:
            raise SnapshotError(f"coordinator snapshot of version {state.get('version')}; expected 1")
        self._priced.router.restore(state["router"])
        self._owners = dict(state["owners"])
        self._orphans.restore(state["orphans"])
        ingress_ids = {*self._owners.values(), *self._orphans.ingress_ids}
        self._reunion.begin(ingress_ids, self._clock(), _HOLD_S, grace_s)

    # -- inside --------------------------------------------------------------------------------------------------

    def _is_here(self, key: RequestKey) -> bool:
        router = self._priced.router
        return key in router.queue or router.where(key) is not None

    def _is_known(self, key: RequestKey) -> bool:
        return self._is_here(key) or key in self._orphans

    def _agree(self) -> None:
        """Take in what ingresses have reported."""
        reports = self._reunion.take_reports(self._clock())
        if not reports:
            return
        # what came since of requests follows: of an end, say, it must be known first that there is something to end
        since = [event for event in self._inbox if not isinstance(event, DeviceJoined | DeviceLost)]
        self._inbox = [event for event in self._inbox if isinstance(event, DeviceJoined | DeviceLost)]
        # first what they have running: neither it nor its room must be assigned again
        self._take_back(reports)
        for ingress_id, report in reports.items():
            self._agree_with(ingress_id, report)
        self._inbox.extend(since)

    def _agree_with(self, ingress_id: str, report: Report) -> None:
        for lost in report.lost:
            self._device_gone(lost)
        for device in report.devices:
            self.device_up(device)
        self.tick()
        waiting = {submission.request.key for submission in report.waiting}
        for answer in self.outbox.take(ingress_id):
            if key_of(answer) not in waiting:  # that is answered again
                self.outbox.put(ingress_id, answer)
        self.submit(ingress_id, report.waiting)
        self._let_go(ingress_id, report)
        self._take_back({ingress_id: report})

    def _let_go(self, ingress_id: str, report: Report) -> None:
        """Cancel what this ingress owns here and has no longer."""
        has = {submission.request.key for submission in report.waiting}
        has.update(flight.key.request_key for flight in report.in_flight)
        has.update(self._coming)  # submitted since the report
        gone = [key for key, owner in self._owners.items() if owner == ingress_id and key not in has]
        loads = self._orphans.keep(ingress_id, (flight.key for flight in report.in_flight))
        self._handle(self._clock(), [*(Cancelled(key) for key in gone), *loads])
        for key in gone:
            self._owners.pop(key, None)

    def _take_back(self, reports: Mapping[str, Report]) -> None:
        """Tell the router of what runs, as far as it does not know; doing it again changes nothing."""
        flights = [(name, flight) for name, report in reports.items() for flight in report.in_flight]
        if events := [event for name, flight in flights for event in self._of_flight(name, flight)]:
            self._handle(self._clock(), events)

    def _of_flight(self, ingress_id: str, flight: InFlight) -> list[Event]:
        ledger = self._priced.router.ledger
        device_id = flight.key.device_id
        if device_id in ledger and ledger.devices[ledger.row(device_id)].incarnation > flight.key.incarnation:
            return []  # that process is gone, which the ingress is about to notice: the request waits again
        if ledger.request(flight.key) is not None:
            self._owners[flight.key.request_key] = ingress_id
            return []
        self._owners.pop(flight.key.request_key, None)
        load = [self._orphans.add(ingress_id, flight)] if device_id in ledger else []
        return [Cancelled(flight.key.request_key), *load] if self._is_here(flight.key.request_key) else [*load]

    def _forget_owners(self, events: Sequence[Event]) -> None:
        """Drop the owners of what these events ended. A stale end leaves the request here, and its owner with it."""
        for event in events:
            if isinstance(event, Cancelled | Finished):
                key = event.request_key if isinstance(event, Cancelled) else event.key.request_key
                if not self._is_here(key):
                    self._owners.pop(key, None)

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            request = decision.request
            owner = self._owners.get(request.key)
            if isinstance(decision, Assign):
                self.metrics.add("olp_ray_admissions_total", decision.key.device_id)
            else:
                self.metrics.add("olp_ray_rejections_total", str(decision.reason))
                self._owners.pop(request.key, None)
            if owner is None:
                self.counts["decisions_without_owner"] += 1
                continue
            self.outbox.put(owner, decision)

    def _count_holds(self, events: Sequence[Event]) -> None:
        held = sum(isinstance(e, Arrived) and e.request.key in self._priced.router.queue for e in events)
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
            self._note(fault, "an event was ignored")
        if step.faults:
            self._refuse(events, step.faults[0])
        return step.next_wake_s

    def _refuse(self, events: Sequence[Event], error: Exception) -> None:
        """Tell the owners of arrivals that did not get in."""
        arrivals = [event.request.key for event in events if isinstance(event, Arrived)]
        for key in arrivals:
            owner = None if self._is_known(key) else self._owners.pop(key, None)
            if owner is not None:
                self.outbox.put(owner, Refused(key, type(error).__name__, str(error)))

    def _note(self, error: Exception, what: str) -> None:
        self.errors[type(error).__name__] += 1
        _log.error("%s: %s: %s", what, type(error).__name__, error)
