"""Events: everything that the router is ever told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from olp_ray.core.types.devices import Device
from olp_ray.core.types.objective import Objective
from olp_ray.core.types.requests import AssignmentKey, Request, RequestKey


@dataclass(frozen=True, slots=True)
class Arrived:
    request: Request


@dataclass(frozen=True, slots=True)
class Started:
    """The engine took the request into its batch (its first iteration begins)."""

    key: AssignmentKey


@dataclass(frozen=True, slots=True, eq=False)
class Progressed:
    """Decoded tokens of several running requests of one device, as counted by the engine.

    keys has length n, decoded_tokens is an int64 array of shape (n,).
    """

    keys: tuple[AssignmentKey, ...]
    decoded_tokens: np.ndarray


@dataclass(frozen=True, slots=True)
class Finished:
    key: AssignmentKey
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """The engine evicted the request and holds it in its own queue to run it again."""

    key: AssignmentKey
    decoded_tokens: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client left; wherever the request is, it is over. The shell tells the engine."""

    request_key: RequestKey


@dataclass(frozen=True, slots=True)
class ReplicaRefused:
    """The device did not take the assignment (or failed before the first token): it comes back to the queue."""

    key: AssignmentKey
    reason: str


@dataclass(frozen=True, slots=True)
class EngineObserved:
    """What the engine says of itself, age_s ago. Counts include traffic that this router did not send."""

    device_id: str
    running: int
    waiting: int
    kv_tokens: int
    step_s: float | None
    age_s: float


@dataclass(frozen=True, slots=True)
class CapacityChanged:
    """From `from_s` on the device has these limits (the paper's time-varying B_{g,k} and M_{g,k})."""

    device_id: str
    from_s: float
    slots: int
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class DeviceJoined:
    device: Device


@dataclass(frozen=True, slots=True)
class DeviceDraining:
    """Takes no new requests; those on it go on."""

    device_id: str


@dataclass(frozen=True, slots=True)
class DeviceLost:
    """The incarnation is gone; its requests come back to the queue, each once."""

    device_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class ExternalLoad:
    """Load on the device that this router did not send, until told otherwise."""

    device_id: str
    slots: int
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """Change the objective, the policy, or both, between two decisions."""

    objective: Objective | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PricesReady:
    """Prefix tables of one price update for some devices; see `olp_ray.core.prices` for their layout.

    tables has shape (len(device_ids), 5, buckets + 1), on the bucket grid `grid`; those of a device that is not there
    are ignored.
    """

    update_id: int
    grid: int
    device_ids: tuple[str, ...]
    tables: np.ndarray


Event = (
    Arrived
    | Started
    | Progressed
    | Finished
    | Preempted
    | Cancelled
    | ReplicaRefused
    | EngineObserved
    | CapacityChanged
    | DeviceJoined
    | DeviceDraining
    | DeviceLost
    | ExternalLoad
    | Reconfigure
    | PricesReady
)
