"""What ingress and coordinator say to each other beyond events and decisions; plain records, sent in batches."""

from __future__ import annotations

from dataclasses import dataclass

from olp_ray.core.types import Assign, AssignmentKey, Device, DeviceLost, Reject, Request, RequestKey


@dataclass(frozen=True, slots=True)
class Submission:
    """A request and how long it has waited since it came in; the coordinator sets arrival_s on its own clock."""

    request: Request
    waited_s: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The coordinator could not take the request in at all: which error, and its text."""

    request_key: RequestKey
    error: str
    text: str


@dataclass(frozen=True, slots=True)
class InFlight:
    """A request that an ingress got an assignment for and that is not over yet."""

    key: AssignmentKey
    request: Request


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one ingress has going; sent when the coordinator may not know it, or its answers were lost.

    devices are those that it knows to be up, lost those that broke off and are not back. number counts the reports of
    an ingress: one that comes after a newer one says nothing any more.
    """

    waiting: tuple[Submission, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    devices: tuple[Device, ...] = ()
    lost: tuple[DeviceLost, ...] = ()
    number: int = 0


Answer = Assign | Reject | Refused


def key_of(answer: Answer) -> RequestKey:
    """The request that it is about."""
    return answer.request_key if isinstance(answer, Refused) else answer.request.key
