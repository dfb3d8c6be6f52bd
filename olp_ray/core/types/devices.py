"""What requests are routed to: a device as the router is told of it. What it holds is the ledger's."""

from __future__ import annotations

import math
from dataclasses import dataclass

from olp_ray.core.numbers import is_finite, is_float, shown
from olp_ray.core.types.requests import Request, Stage
from olp_ray.errors import RequestError


@dataclass(frozen=True, slots=True)
class IterationModel:
    """What one token adds to a device's iteration time, in seconds; zeros where iterations take one time (the paper).

    A decoding sequence adds per_sequence_s and per_kv_token_s for each token that it has cached, a prompt token
    per_prompt_token_s.
    """

    per_sequence_s: float = 0.0
    per_kv_token_s: float = 0.0
    per_prompt_token_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Device:
    """One replica as the router knows it.

    slots is B and kv_tokens is M of the paper (Section 2). step_s is the first estimate of seconds per decode
    iteration; the router refines it from what it observes. A new process on the same id has a higher incarnation.
    """

    id: str
    slots: int
    kv_tokens: int
    step_s: float
    incarnation: int = 0
    block_tokens: int = 1
    prefill_tokens_per_s: float = math.inf
    iteration: IterationModel = IterationModel()
    models: frozenset[str] = frozenset()  # empty runs every model
    stages: frozenset[Stage] = frozenset(Stage)

    def __post_init__(self) -> None:
        for name in ("slots", "kv_tokens", "block_tokens"):
            count = getattr(self, name)
            if not (is_finite(count) and count >= 1):
                raise RequestError(f"device {self.id!r}: {name} is {shown(count)}; expected >= 1")
        if not (is_finite(self.step_s) and self.step_s > 0):
            raise RequestError(f"device {self.id!r}: step_s is {shown(self.step_s)}; expected a finite number > 0")
        if not (is_float(self.prefill_tokens_per_s) and self.prefill_tokens_per_s > 0):
            raise RequestError(f"device {self.id!r}: prefill_tokens_per_s must be > 0")

    def can_run(self, request: Request) -> bool:
        """Whether model and stage are allowed here (says nothing of room)."""
        return request.stage in self.stages and (not request.model or not self.models or request.model in self.models)
