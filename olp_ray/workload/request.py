"""A request of a workload: what the router will see, and the true output length that it will not."""

from __future__ import annotations

from dataclasses import dataclass

from olp_ray.core.types import Request


@dataclass(frozen=True, slots=True)
class SimRequest:
    """request carries only a prediction; output_tokens is the truth."""

    request: Request
    output_tokens: int
