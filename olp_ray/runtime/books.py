"""Whose each request is, and what runs that the router does not know; what to tell it so that it agrees with ingresses.

Nothing here calls the router or an ingress: it looks, and returns events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from olp_ray.core.router import Router
from olp_ray.core.types import AssignmentKey, Cancelled, Event, ExternalLoad, Finished, RequestKey
from olp_ray.runtime.messages import InFlight, Report
from olp_ray.runtime.orphans import Orphans
from olp_ray.runtime.processes import Processes


class Books:
    """Owners are ingress ids. processes is kept by who puts device events into the router's inbox."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.owners: dict[RequestKey, str] = {}
        self.orphans = Orphans()
        self.processes = Processes(router.ledger.devices)

    def where(self, key: RequestKey) -> AssignmentKey | None:
        """The assignment that the router holds for it."""
        return self._router.where(key)

    def is_waiting(self, key: RequestKey) -> bool:
        """Whether it is in the router's queue."""
        return key in self._router.queue

    def is_here(self, key: RequestKey) -> bool:
        """Whether the router has it, waiting or running."""
        return self.is_waiting(key) or self.where(key) is not None

    def is_known(self, key: RequestKey) -> bool:
        """The same, or it runs as load that the router does not know."""
        return self.is_here(key) or key in self.orphans

    def device_events(self, report: Report) -> list[Event]:
        """Devices that have come or gone since we last heard.

        One that was lost announces itself when it is back: a report may be of an ingress that has yet to notice.
        """
        there, gone = self.processes.is_there, self.processes.is_gone
        events: list[Event] = []
        for loss in report.lost:
            events += self.processes.lost(loss) if there(loss.device_id, loss.incarnation) else []
        for device in report.devices:
            events += [] if gone(device.id, device.incarnation) else self.processes.up(device)
        return events

    def take_back(self, reports: Mapping[str, Report]) -> list[Event]:
        """What runs, as far as the router does not know it."""
        flights = [(name, flight) for name, report in reports.items() for flight in report.in_flight]
        return [event for name, flight in flights for event in self._of_flight(name, flight)]

    def running(self, report: Report) -> set[RequestKey]:
        """What this ingress has on devices, less those that it has not noticed to be gone."""
        keys = [flight.key for flight in report.in_flight]
        return {key.request_key for key in keys if not self.processes.is_gone(key.device_id, key.incarnation)}

    def let_go(self, ingress_id: str, report: Report, coming: Set[RequestKey]) -> list[Event]:
        """Forget what this ingress owns and has no longer; coming are requests that it has submitted since."""
        has = {submission.request.key for submission in report.waiting}
        has.update(flight.key.request_key for flight in report.in_flight)
        gone = [key for key, owner in self.owners.items() if owner == ingress_id and key not in has | coming]
        for key in gone:
            del self.owners[key]
        return [*(Cancelled(key) for key in gone), *self.orphans.keep(ingress_id, (f.key for f in report.in_flight))]

    def forget_ended(self, events: Iterable[Event]) -> None:
        """Drop the owners of what these events ended. A stale end leaves the request here, and its owner with it."""
        for event in events:
            if isinstance(event, Cancelled | Finished):
                key = event.request_key if isinstance(event, Cancelled) else event.key.request_key
                if not self.is_here(key):
                    self.owners.pop(key, None)

    def snapshot(self) -> dict[str, Any]:
        return {"owners": dict(self.owners), "orphans": self.orphans.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> set[str]:
        """Take a `snapshot` back, after the router has its own; the ingresses in it."""
        self.owners = dict(state["owners"])
        self.orphans.restore(state["orphans"])
        self.processes = Processes(self._router.ledger.devices)
        return {*self.owners.values(), *self.orphans.ingress_ids}

    def _of_flight(self, ingress_id: str, flight: InFlight) -> Sequence[Event]:
        key = flight.key
        if self.processes.is_gone(key.device_id, key.incarnation):
            return []  # which the ingress is about to notice: the request waits again
        if self._router.ledger.request(key) is not None:
            self.owners[key.request_key] = ingress_id
            return []
        self.owners.pop(key.request_key, None)
        load: list[ExternalLoad] = []
        if self.processes.is_there(key.device_id, key.incarnation):
            load = [self.orphans.add(ingress_id, flight)]
        return [Cancelled(key.request_key), *load] if self.is_here(key.request_key) else load
