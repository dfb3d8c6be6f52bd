"""What is turned away whatever the policy says: requests that no device could ever run, what overflows the queue, and
what no prediction goes beyond.

Here live these rules. What is rejected because it waited too long or is too dear is the policy's business.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from olp_ray.core.policies.settings import RouterLimits
from olp_ray.core.queue import WaitingQueue
from olp_ray.core.types import Device, Reject, RejectReason, Request, Stage


class Refusals:
    """The rules under `limits`. `forget` when devices come or go: what the largest can hold is kept."""

    def __init__(self, limits: RouterLimits) -> None:
        self._limits = limits
        self._largest_prompt: dict[tuple[str, Stage], int | None] = {}  # by model and stage; None: no device runs it
        self._most_tokens: dict[tuple[str, Stage], float] = {}  # of a prediction, by model and stage

    def bounded(self, request: Request, devices: Iterable[Device]) -> Request:
        """The request with a prediction of at most the KV tokens of the largest device that may run it: one beyond
        fits nowhere either, and what is learned and priced from it stays a length that a request can have."""
        kind = request.model, request.stage
        if kind not in self._most_tokens:
            able = (device.kv_tokens for device in devices if device.can_run(request))
            self._most_tokens[kind] = float(max(able, default=math.inf))
        most = self._most_tokens[kind]
        if request.predicted_output_tokens <= most:
            return request
        return dataclasses.replace(request, predicted_output_tokens=most)

    def forget(self) -> None:
        """The fleet is another one."""
        self._largest_prompt.clear()
        self._most_tokens.clear()

    def never(self, request: Request, devices: Iterable[Device]) -> Reject | None:
        """A rejection if the request can run nowhere, whatever happens to load."""
        kind = request.model, request.stage
        if kind not in self._largest_prompt:
            able = [device for device in devices if device.can_run(request)]
            self._largest_prompt[kind] = max((device.kv_tokens - device.block_tokens for device in able), default=None)
        most = self._largest_prompt[kind]
        retry = self._limits.retry_after_s
        if most is None:
            text = f"no device runs model {request.model!r}, stage {request.stage}"
            return Reject(request, RejectReason.NO_DEVICE, text, "fleet", retry)
        if request.prompt_tokens > most:
            text = f"prompt_tokens={request.prompt_tokens} of at most {most} on the largest device"
            return Reject(request, RejectReason.NEVER_FITS, text, "fleet kv_tokens", retry)
        return None

    def overflow(self, queue: WaitingQueue) -> list[Reject]:
        """What is beyond the bounded queue: lowest priority, then newest, goes."""
        size = self._limits.queue_size
        if size is None or len(queue) <= size:
            return []
        by_rank = sorted(range(len(queue)), key=lambda i: (-queue[i].request.priority, i))
        limit, retry = f"queue_size={size}", self._limits.retry_after_s
        dropped = [queue[i].request for i in by_rank[size:]]
        return [Reject(request, RejectReason.QUEUE_FULL, limit, "queue_size", retry) for request in dropped]
