"""What is turned away whatever the policy says: requests that no device could ever run, what overflows the queue, and
what no prediction goes beyond.

Here live these rules. What is rejected because it waited too long or is too dear is the policy's business.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import NamedTuple

from olp_ray.core.policies.settings import RouterLimits
from olp_ray.core.queue import WaitingQueue
from olp_ray.core.types import Device, Reject, RejectReason, Request, Stage


class Largest(NamedTuple):
    """What the largest device that may run a kind of request can hold."""

    prompt_tokens: float  # -inf: no device runs it
    output_tokens: float  # that a prediction may say; inf: no device runs it


class Refusals:
    """The rules under `limits`. `forget` when devices come or go: what the largest can hold is kept."""

    def __init__(self, limits: RouterLimits) -> None:
        self._limits = limits
        self._largest: dict[tuple[str, Stage], Largest] = {}  # by model and stage

    def bounded(self, request: Request, devices: Iterable[Device]) -> Request:
        """The request with a prediction of at most the KV tokens of the largest device that may run it: one beyond
        fits nowhere either, and what is learned and priced from it stays a length that a request can have."""
        most = self._largest_for(request, devices).output_tokens
        if request.predicted_output_tokens <= most:
            return request
        return dataclasses.replace(request, predicted_output_tokens=most)

    def forget(self) -> None:
        """The fleet is another one."""
        self._largest.clear()

    def never(self, request: Request, devices: Iterable[Device]) -> Reject | None:
        """A rejection if the request can run nowhere, whatever happens to load."""
        most = self._largest_for(request, devices).prompt_tokens
        retry = self._limits.retry_after_s
        if most == -math.inf:
            text = f"no device runs model {request.model!r}, stage {request.stage}"
            return Reject(request, RejectReason.NO_DEVICE, text, "fleet", retry)
        if request.prompt_tokens > most:
            text = f"prompt_tokens={request.prompt_tokens} of at most {most} on the largest device"
            return Reject(request, RejectReason.NEVER_FITS, text, "fleet kv_tokens", retry)
        return None

    def _largest_for(self, request: Request, devices: Iterable[Device]) -> Largest:
        kind = request.model, request.stage
        if kind not in self._largest:
            able = [device for device in devices if device.can_run(request)]
            self._largest[kind] = Largest(
                max((device.kv_tokens - device.block_tokens for device in able), default=-math.inf),
                float(max((device.kv_tokens for device in able), default=math.inf)),
            )
        return self._largest[kind]

    def overflow(self, queue: WaitingQueue) -> list[Reject]:
        """What is beyond the bounded queue: lowest priority, then newest, goes."""
        size = self._limits.queue_size
        if size is None or len(queue) <= size:
            return []
        by_rank = sorted(range(len(queue)), key=lambda i: (-queue[i].request.priority, i))
        limit, retry = f"queue_size={size}", self._limits.retry_after_s
        dropped = [queue[i].request for i in by_rank[size:]]
        return [Reject(request, RejectReason.QUEUE_FULL, limit, "queue_size", retry) for request in dropped]
