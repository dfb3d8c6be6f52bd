"""What is routed: a request as the router sees it, and the names of its stages and assignments.

Identity: a request is named by `RequestKey` (id, stage); what happens to it on a device is named by
`AssignmentKey`, which adds the device *incarnation* and the attempt. Events with an old key are stale: the router
ignores and counts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from olp_ray.core.numbers import is_finite, is_float, shown
from olp_ray.errors import RequestError

MOST_TIME_S = 1e12  # either way: 30,000 years, so that squares of times stay finite
MOST_PRIORITY = 100  # and -100 the least: priority is a power to which the objective raises a factor


class Stage(StrEnum):
    """Which part of a request's work is routed; the stages of one request share its id."""

    MIXED = "mixed"
    PREFILL = "prefill"
    DECODE = "decode"


class RequestKey(NamedTuple):
    """One stage of one request."""

    request_id: str
    stage: Stage


class AssignmentKey(NamedTuple):
    """One attempt of one stage of a request on one incarnation of a device."""

    request_id: str
    stage: Stage
    device_id: str
    incarnation: int
    attempt: int

    @property
    def request_key(self) -> RequestKey:
        return RequestKey(self.request_id, self.stage)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the router sees it: never its true output length, only a prediction.

    Raises `RequestError` for an empty id, a time beyond 1e12 s, a negative or infinite prompt, a limit below 1
    token, quantiles that do not rise, a prediction that is not finite or below 1 token, or a priority not in -100..100.
    """

    id: str
    arrival_s: float
    prompt_tokens: int
    predicted_output_tokens: float
    predicted_quantiles: tuple[tuple[float, float], ...] = ()  # (level in (0, 1), output tokens), rising
    max_output_tokens: int | None = None
    stage: Stage = Stage.MIXED
    model: str = ""  # "" runs on every device
    request_class: str = "default"
    tenant: str = ""
    priority: int = 0  # higher is more urgent; from -MOST_PRIORITY to MOST_PRIORITY
    session: str = ""
    prefix_blocks: tuple[int, ...] = ()  # hashes of the prompt's leading blocks
    slo_ttft_s: float | None = None
    slo_e2e_s: float | None = None
    key: RequestKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", RequestKey(self.id, self.stage))
        if not self.id:
            raise RequestError("request id is empty; expected a non-empty string")
        if not abs(self.arrival_s) <= MOST_TIME_S:
            expected = f"{-MOST_TIME_S:g} to {MOST_TIME_S:g}"
            raise RequestError(f"request {self.id!r}: arrival_s is {shown(self.arrival_s)}; expected {expected}")
        if not (is_finite(self.prompt_tokens) and self.prompt_tokens >= 0):
            raise RequestError(f"request {self.id!r}: prompt_tokens is {shown(self.prompt_tokens)}; expected >= 0")
        most = self.max_output_tokens
        if most is not None and not (is_finite(most) and most >= 1):
            raise RequestError(f"request {self.id!r}: max_output_tokens is {shown(most)}; expected >= 1 or none")
        if self.predicted_quantiles and not _are_quantiles(self.predicted_quantiles):
            raise RequestError(
                f"request {self.id!r}: predicted_quantiles is {shown(self.predicted_quantiles)}; "
                "expected levels in (0, 1) that rise, with finite lengths >= 1 that do not fall"
            )
        predicted = self.predicted_output_tokens
        if not (is_finite(predicted) and predicted >= 1):
            raise RequestError(f"request {self.id!r}: predicted_output_tokens is {shown(predicted)}; expected >= 1")
        if not -MOST_PRIORITY <= self.priority <= MOST_PRIORITY:  # it may have more digits than can be shown
            raise RequestError(
                f"request {self.id!r}: priority is out of range; expected {-MOST_PRIORITY} to {MOST_PRIORITY}"
            )
        for name in ("slo_ttft_s", "slo_e2e_s"):
            slo_s = getattr(self, name)
            if slo_s is not None and not (is_float(slo_s) and slo_s > 0):
                raise RequestError(f"request {self.id!r}: {name} is {shown(slo_s)}; expected > 0 or none")


def _are_quantiles(pairs: tuple[tuple[float, float], ...]) -> bool:
    levels, tokens = [level for level, _ in pairs], [length for _, length in pairs]
    rising = all(one < other for one, other in pairwise([0.0, *levels, 1.0]))
    return rising and all(one <= other for one, other in pairwise([1.0, *tokens])) and is_finite(tokens[-1])
