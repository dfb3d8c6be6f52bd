"""What reported events must be for the shell's own books; everything else about them the router checks itself."""

from __future__ import annotations

from olp_ray.core.types import (
    AssignmentKey,
    Cancelled,
    Device,
    DeviceJoined,
    DeviceLost,
    Event,
    Finished,
    ReplicaRefused,
    RequestKey,
)
from olp_ray.errors import EventError

_FIELDS: dict[type, dict[str, type]] = {
    Cancelled: {"request_key": RequestKey},
    Finished: {"key": AssignmentKey},
    ReplicaRefused: {"key": AssignmentKey},
    DeviceJoined: {"device": Device},
    DeviceLost: {"device_id": str, "incarnation": int},
}


def check_event(event: Event) -> None:
    """Raises `EventError` when a field is not of its type, or is a key that cannot be looked up."""
    for name, expected in _FIELDS.get(type(event), {}).items():
        value = getattr(event, name)
        where = f"{type(event).__name__}.{name} is {value!r}"
        if not isinstance(value, expected):
            raise EventError(f"{where}; expected {expected.__name__}")
        try:
            hash(value)
        except TypeError as error:
            raise EventError(f"{where}, which cannot be looked up: {error}") from error
