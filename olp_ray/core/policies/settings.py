"""Numbers that policies are built from. No defaults live here: `olp_ray.config` holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from olp_ray.core.types import Objective
from olp_ray.errors import PolicyError

MOST_BUCKETS = 10_000  # of prices, per device
MOST_SLOTS = 1_000_000  # of the paper's horizon

# "deadline": as "max_wait", and what is hopeless; see `core.policies.rejection`
Rejects = Literal["never", "max_wait", "deadline"]


def _check_parts(name: str, span_s: float, part: str, part_s: float, most: int) -> None:
    """Raise `PolicyError` unless a span is at most so many parts, each of which has prices and work of its own."""
    if not span_s / part_s <= most:
        raise PolicyError(
            f"{name} of {span_s:g} is {span_s / part_s:.3g} times {part}, {part_s:g}; expected at most {most} times"
        )


@dataclass(frozen=True, slots=True)
class OnlineLPSettings:
    """Constants of the online LP; symbols are those of docs/policies.md.

    Times are in seconds of the driver's clock: in the period model one period is 1 s.
    """

    bucket_s: float  # D: price bucket
    horizon_s: float  # H: how far prices reach
    lookahead_s: float  # La: sampled future arrivals start within this
    update_s: float  # U: time between price updates; divides bucket_s
    rounds: int  # K: gradient steps per update
    batch: int  # history samples per round, and at most as many waiting requests
    learning_rate: float  # eta
    anchor_pull: float  # how far each step goes towards the stationary price, where there is one
    reward_window_s: float  # W
    end_s: float  # T: rewards count what is done by then, as in the paper; inf: by W after arrival
    urgency_s: float  # tau
    calm_urgency_s: float  # tau while few wait past their TTFT threshold
    calm_late_requests: float  # at most so many are few
    regular_price: float  # eps0: share of the uncongested price in every request's cost
    level_ratio: float  # ranks within this ratio are equal and go by arrival
    guard: float  # devices below this utilisation are not protected by the gate
    gate_scale: float  # f = gate_scale * share of the reward that deadlines make
    gate_horizon_s: float
    gate_off: float  # no gate at or below this f
    history: int  # arrivals remembered
    rate_window: int  # arrivals that the rate estimate spans
    min_arrivals: int  # prices stay 0 before this many arrivals
    max_wait_s: float  # X
    max_wait_length_factor: float  # kappa
    max_wait_exempt_share: float  # eps: the largest requests by volume do not go first
    remaining_quantile: float  # residents are planned at this conditional quantile of their remaining length
    prefill_ahead_s: float  # a device gets more prompts only while its prefill backlog is at most this long
    load_weight: float  # price of a device's load, as a share of the uncongested slot price: spreads what costs alike
    reservation: bool

    def check(self) -> None:
        """Raise `PolicyError` where there would be more price buckets than memory and time allow."""
        for name, span_s in (("horizon_s", self.horizon_s), ("lookahead_s", self.lookahead_s)):
            _check_parts(name, span_s, "bucket_s", self.bucket_s, MOST_BUCKETS)

    def window_s(self, arrival_s: np.ndarray) -> np.ndarray:
        """How long after its arrival latency still earns something, per request: W, or what is left to a fixed T."""
        if self.end_s == np.inf:
            return np.full(np.shape(arrival_s), self.reward_window_s)
        return np.maximum(self.end_s - arrival_s, 0.0)


@dataclass(frozen=True, slots=True)
class PaperLPSettings:
    """Constants of `online_lp_paper`, and one switch for each thing that the paper leaves open."""

    horizon_s: float  # T: the end of the fixed horizon
    slot_s: float  # one price slot; the paper's period
    rounds: int  # K of Algorithm 2
    batch: int  # B of Algorithm 2
    history: int  # columns kept in Hist
    rate_window: int  # arrivals that the rate estimate spans
    learning_rate: float  # eta
    learning_rate_decay: Literal["constant", "sqrt"]  # sqrt: eta / sqrt(updates so far)
    reward_normaliser: Literal["largest", "one", "none"]  # r / largest seen; min(r, 1); r
    remaining: Literal["arrivals", "slots"]  # n_remain: requests still expected, or slots left
    recording: Literal["best", "best_positive", "admitted"]  # which columns enter Hist
    mixed: bool  # Appendix A: 1 + o-hat service steps with the mixed memory kernel
    count_prompt_tokens: bool  # Appendix A: throughput counts prompt and generated tokens
    exact: bool  # prices from eq. 7 solved as an LP

    def check(self) -> None:
        """Raise `PolicyError` where there would be more slots than memory and time allow."""
        _check_parts("horizon_s", self.horizon_s, "slot_s", self.slot_s, MOST_SLOTS)


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Everything that any policy may be built from."""

    objective: Objective
    rejects: Rejects
    online_lp: OnlineLPSettings
    paper_lp: PaperLPSettings
    aged_length_weight: float  # kappa of aged_sjf: seconds of arrival that one second of life is worth


@dataclass(frozen=True, slots=True)
class RouterLimits:
    """Bounds that hold for every policy. queue_size None is unbounded."""

    queue_size: int | None
    retry_after_s: float
    prefix_block_tokens: int  # prompt tokens that one hash of Request.prefix_blocks stands for
