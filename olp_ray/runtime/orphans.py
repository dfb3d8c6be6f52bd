"""Requests that run on engines although this router does not know them, as external load of their devices.

They come from a coordinator that died after its last snapshot; the router only needs to know the room they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from olp_ray.core.types import (
    AssignmentKey,
    Cancelled,
    DeviceLost,
    Event,
    ExternalLoad,
    Finished,
    ReplicaRefused,
    RequestKey,
)
from olp_ray.runtime.messages import InFlight


class _Orphan(NamedTuple):
    ingress_id: str
    kv_tokens: int


class Orphans:
    """Counted with their whole predicted KV from the first to the last moment."""

    def __init__(self) -> None:
        self._orphans: dict[AssignmentKey, _Orphan] = {}

    def __contains__(self, key: RequestKey) -> bool:
        return any(orphan.request_key == key for orphan in self._orphans)

    def __len__(self) -> int:
        return len(self._orphans)

    @property
    def ingress_ids(self) -> set[str]:
        return {orphan.ingress_id for orphan in self._orphans.values()}

    def add(self, ingress_id: str, flight: InFlight) -> ExternalLoad:
        """Count one more; the event tells the router of its device's new external load."""
        kv_tokens = flight.request.prompt_tokens + round(flight.request.predicted_output_tokens)
        self._orphans[flight.key] = _Orphan(ingress_id, kv_tokens)
        return self._load(flight.key.device_id)

    def keep(self, ingress_id: str, keys: Iterable[AssignmentKey]) -> list[ExternalLoad]:
        """Forget those of this ingress that are not among keys."""
        kept = set(keys)
        mine = [key for key, orphan in self._orphans.items() if orphan.ingress_id == ingress_id]
        return self._remove([key for key in mine if key not in kept])

    def updates(self, events: Iterable[Event]) -> list[ExternalLoad]:
        """The external loads that change because of these events."""
        if not self._orphans:
            return []
        events = list(events)
        lost = {event.device_id: event.incarnation for event in events if isinstance(event, DeviceLost)}
        ended = [key for event in events for key in self._ended_by(event)]
        on_others = {key.device_id for key in ended if key.incarnation > lost.get(key.device_id, -1)}
        return [load for load in self._remove(ended) if load.device_id in on_others]

    def snapshot(self) -> dict[AssignmentKey, _Orphan]:
        return dict(self._orphans)

    def restore(self, state: Mapping[AssignmentKey, _Orphan]) -> None:
        self._orphans = dict(state)

    def _ended_by(self, event: Any) -> list[AssignmentKey]:
        if isinstance(event, Finished | ReplicaRefused):
            return [event.key] if event.key in self._orphans else []
        if isinstance(event, Cancelled):
            return [key for key in self._orphans if key.request_key == event.request_key]
        if isinstance(event, DeviceLost):
            return [
                key
                for key in self._orphans
                if key.device_id == event.device_id and key.incarnation <= event.incarnation
            ]
        return []

    def _remove(self, keys: Iterable[AssignmentKey]) -> list[ExternalLoad]:
        gone = [key for key in keys if self._orphans.pop(key, None) is not None]
        return [self._load(device_id) for device_id in sorted({key.device_id for key in gone})]

    def _load(self, device_id: str) -> ExternalLoad:
        mine = [orphan.kv_tokens for key, orphan in self._orphans.items() if key.device_id == device_id]
        return ExternalLoad(device_id, len(mine), sum(mine))
