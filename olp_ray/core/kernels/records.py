"""What kernels are called with: named groups of arrays. No kernel lives here.

Notation
    symbol   meaning
    G, R     devices, columns for the residents of a device
    W        columns for residents and what may be admitted
    J        waiting requests
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SLOT_PRICE, KV_PRICE, SLOT_INTEGRAL, KV_INTEGRAL, TIMED_KV_INTEGRAL = range(5)  # rows of a price table
PROMPT, PREDICTED, DECODED, KNOWN_S, ASSIGNED_S, STARTED = range(6)  # rows of what a ledger keeps of its residents
# rows of the waiting queue, after the same first two
_, _, ARRIVAL_S, PRIORITY, SLO_TTFT_S, SLO_E2E_S, CAME_BACK = range(7)
KEPT, HOPELESS, OVERDUE, PRICED_OUT = range(4)  # whether a waiting request is turned away, and why
NEVER, AT_BOUND, AT_DEADLINE = range(3)  # what is turned away at all: the setting `rejects`
DELAY_BUCKETS = np.array([0.0, 1.0, 2.0, 4.0])
PRICE_CAP = 5.0  # no price exceeds PRICE_CAP * pi0 / capacity
MARGIN_GRAIN = 2.0**-28  # of what a device is worth in a bucket at pi0: margins closer than this are equal


def _record_of(*numbers: str, **others: type[np.generic]) -> np.dtype[np.void]:
    """Records of named numbers (float64) and what else there is, for arrays of them."""
    fields = [*((name, np.float64) for name in numbers), *others.items()]
    return np.dtype((np.record, np.dtype(fields, align=True)))


class Weights(NamedTuple):
    """The weights of an objective (paper Section 3.1)."""

    throughput: float  # alpha
    e2e: float  # beta
    ttft: float  # gamma
    qps: float  # sigma
    tail_e2e: float  # zeta1
    tail_ttft: float  # zeta2
    joint_deadlines: bool


class Market(NamedTuple):
    """Prices in force."""

    tables: np.ndarray  # (G, 5, N + 1)
    base_price: float  # pi0
    scarcity: np.ndarray  # (3,) weighs a life's shares of slots, KV tokens and iteration time into one volume
    prefill_price: float  # reward per prompt token that has to be prefilled


class Limits(NamedTuple):
    """When a waiting request is turned away."""

    rejects: int  # NEVER, AT_BOUND or AT_DEADLINE
    overdue_s: float  # after its arrival: the starvation bound, and what grace there is
    guard: float  # devices at this utilisation are busy
    e2e_threshold_s: float  # of the objective, for requests that have none
    ttft_threshold_s: float


class Rules(NamedTuple):
    """Constants of a decision, by their names in `OnlineLPSettings`."""

    weights: Weights
    limits: Limits
    bucket_s: float
    reward_window_s: float
    end_s: float
    urgency_s: float
    calm_urgency_s: float
    calm_late_requests: float
    regular_price: float
    level_ratio: float
    guard: float
    gate_scale: float
    gate_horizon_s: float
    gate_off: float
    max_wait_s: float
    max_wait_length_factor: float
    max_wait_exempt_share: float
    remaining_quantile: float
    prefill_ahead_s: float
    load_weight: float
    reservation: bool


class Ratios(NamedTuple):
    """Ratios of true to predicted length as `core.calibration` keeps them: bins of predicted, then of prompt length."""

    known: bool  # else lengths are what was predicted
    bin_edges: np.ndarray
    prompt_edges: np.ndarray  # a row for each bin of predicted length
    starts: np.ndarray  # int64: first ratio of each bin, and the end
    ratios: np.ndarray  # sorted within each bin
    lookup: np.ndarray  # the same, each bin moved up by `span`, so that all are in one order
    span: float
    medians: np.ndarray  # of each bin
    ratio_edges: np.ndarray  # parts by prompt length
    prompt_ratios: np.ndarray  # mean true over mean predicted length of each part
    log_error: float  # standard deviation of ln(true / predicted) within bins: how far lengths are off after all


class Fleet(NamedTuple):
    """Devices and their residents as the ledger knows them."""

    slots: np.ndarray  # (G,)
    kv_tokens: np.ndarray  # (G,)
    external_slots: np.ndarray  # (G,)
    external_kv_tokens: np.ndarray  # (G,)
    padding: np.ndarray  # (G,) KV tokens that block rounding may add to a request
    draining: np.ndarray  # bool (G,)
    residents: np.ndarray  # int64 (G,)
    held_by: np.ndarray  # (6, G, R) what the ledger keeps of residents
    step_s: np.ndarray  # (G,) tau
    idle_step_s: np.ndarray  # (G,) with one short sequence
    per_sequence_s: np.ndarray  # (G,)
    per_kv_token_s: np.ndarray  # (G,)
    mean_added_s: np.ndarray  # (3,) per sequence, KV token and prompt token of a mean device
    prefill_tokens_per_s: np.ndarray  # (G,) inf: prefill takes no time
    backlog_tokens: np.ndarray  # (G,) prompt tokens not prefilled yet at backlog_at_s
    backlog_at_s: np.ndarray  # (G,)


# Arrays of records cross from kernel to kernel as one argument each: as an array per number they take twice as long to
# compile.
DEVICE = _record_of(
    "batch_slots",  # as told
    "slots",  # the same, less what the pass may not use; 0 on a device that takes nothing more
    "kv_tokens",
    "external_slots",
    "external_kv_tokens",
    "padding",  # KV tokens that block rounding may add to a request
    "step_s",  # tau
    "idle_step_s",  # with one short sequence
    "per_sequence_s",
    "per_kv_token_s",
    "prefill_tokens_per_s",  # inf: prefill takes no time
    "backlog",  # prompt tokens not prefilled yet
    "backlog_limit",  # tokens
    "occupied",  # slots
    "kv_now",  # tokens
    "load_price",  # reward/s that others lose while all KV tokens are held
    residents=np.int64,
    planned=np.int64,  # -1: not planned yet
)
REQUEST = _record_of(
    "prompt_tokens",
    "length_tokens",  # calibrated median, for feasibility
    "output_tokens",  # calibrated mean
    "waited_s",
    "weight",  # multiplier of the reward
    "e2e_threshold_s",
    "ttft_threshold_s",
    "mean_life_s",  # over devices
    "volume",  # what a life takes of a mean device, by scarcity
    "lost",  # A on the device where it is largest
    "key",  # A / (min c + eps0 e), nan while there are no prices
    "mean_kv_tokens",  # held over a life
    "step_cost",  # reward/s
    "wait_cost",  # reward/s
    may_reserve=np.bool_,
)
START = _record_of(
    "first_token_s",  # F
    "life_s",  # L
    "value",  # V
    "cost",  # c
    allowed=np.bool_,  # model, stage and gate permit it
)


# Rows of planned residents: r; KV tokens now; KV tokens now of those that end i-th or later; the highest planned peak
# at one of the first i ends, with a candidate's growth.
ENDS, HELD, LEFT, PEAK = range(4)


class Plans(NamedTuple):
    """Devices, their residents as the ledger knows them, and the plan that admissions change."""

    devices: np.ndarray  # DEVICE (G,)
    held_by: np.ndarray  # (6, G, R) what the ledger keeps of residents
    ahead: np.ndarray  # (4, G, W + 1) rows of planned residents, by their ends
    mean_added_s: np.ndarray  # (3,) per sequence, KV token and prompt token of a mean device
    mean_slots: float
    mean_kv_tokens: float
    mean_step_s: float
    now_s: float


class Candidates(NamedTuple):
    """Waiting requests in queue order, and what a start of each is worth and costs now on each device.

    An admission takes a share of its device's KV tokens, adds to each iteration there, and to the prefill queue: what
    follows it loses load_price * life_s for all KV tokens, step_cost and wait_cost for each such second.
    """

    requests: np.ndarray  # REQUEST (J,)
    starts: np.ndarray  # START (G, J)
