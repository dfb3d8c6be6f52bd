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
_, _, ARRIVAL_S, PRIORITY, SLO_TTFT_S, SLO_E2E_S = range(6)  # rows of the waiting queue, after the same first two
KEPT, HOPELESS, OVERDUE, PRICED_OUT = range(4)  # whether a waiting request is turned away, and why
NEVER, AT_BOUND, AT_DEADLINE = range(3)  # what is turned away at all: the setting `rejects`
DELAY_BUCKETS = np.array([0.0, 1.0, 2.0, 4.0])
PRICE_CAP = 5.0  # no price exceeds PRICE_CAP * pi0 / capacity
MARGIN_GRAIN = 2.0**-28  # of what a device is worth in a bucket at pi0: margins closer than this are equal


class Weights(NamedTuple):
    """The weights of an objective (paper Section 3.1)."""

    throughput: float  # alpha
    e2e: float  # beta
    ttft: float  # gamma
    qps: float  # sigma
    tail_e2e: float  # zeta1
    tail_ttft: float  # zeta2
    joint_deadlines: bool


class Speeds(NamedTuple):
    """How fast devices are; arrays of length 1 where all are alike."""

    step_s: np.ndarray  # (G,) tau
    backlog: np.ndarray  # (G,) prompt tokens not prefilled yet
    prefill_tokens_per_s: np.ndarray  # (G,) inf: prefill takes no time


class Starts(NamedTuple):
    """Starts of requests on the devices of a `Speeds`."""

    value: np.ndarray  # (G, J) V
    first_token_s: np.ndarray  # (G, J) F
    life_s: np.ndarray  # (G, J) L
    lost: np.ndarray  # (J,) A on the device where it is largest
    mean_life_s: np.ndarray  # (J,) over devices


class Appraised(NamedTuple):
    """What every waiting request is worth and costs now; key is A / (min c + eps0 e), nan while there are no prices."""

    waited_s: np.ndarray  # (J,)
    output_tokens: np.ndarray  # (J,) calibrated mean
    weight: np.ndarray  # (J,) multiplier of the reward
    e2e_threshold_s: np.ndarray  # (J,)
    ttft_threshold_s: np.ndarray  # (J,)
    length_tokens: np.ndarray  # (J,) calibrated median, for feasibility
    prompt_tokens: np.ndarray  # (J,)
    first_token_s: np.ndarray  # (G, J) F
    life_s: np.ndarray  # (G, J) L
    mean_life_s: np.ndarray  # (J,) over devices
    value: np.ndarray  # (G, J) V
    cost: np.ndarray  # (G, J) c
    volume: np.ndarray  # (J,) what a life takes of a mean device, by scarcity
    lost: np.ndarray  # (J,) A on the device where it is largest
    key: np.ndarray  # (J,)


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


class Plans(NamedTuple):
    """Devices, their residents as the ledger knows them, and the plan that admissions change.

    planned is -1 for a device that is not planned yet. ends and held are by planned end.
    """

    slots: np.ndarray  # (G,)
    kv_tokens: np.ndarray  # (G,)
    external_slots: np.ndarray  # (G,)
    external_kv_tokens: np.ndarray  # (G,)
    padding: np.ndarray  # (G,) KV tokens that block rounding may add to a request
    backlog_limit: np.ndarray  # (G,) tokens
    residents: np.ndarray  # int64 (G,)
    held_by: np.ndarray  # (6, G, R) what the ledger keeps of residents
    step_s: np.ndarray  # (G,)
    now_s: float
    occupied: np.ndarray  # (G,) slots
    kv_now: np.ndarray  # (G,) tokens
    backlog: np.ndarray  # (G,) prompt tokens not prefilled yet
    planned: np.ndarray  # int64 (G,)
    ends: np.ndarray  # (G, W) r
    held: np.ndarray  # (G, W) KV tokens now
    left: np.ndarray  # (G, W + 1) KV tokens now of the residents that end i-th or later
    peak: np.ndarray  # (G, W + 1) highest planned peak at one of the first i ends, with a candidate's growth


class Wanted(NamedTuple):
    """Waiting requests in queue order, and what each is worth and costs where.

    An admission takes a share of its device's KV tokens, adds to each iteration there, and to the prefill queue: what
    follows it loses load_price * life_s for all KV tokens, step_cost and wait_cost for each such second.
    """

    prompt_tokens: np.ndarray  # (J,)
    length_tokens: np.ndarray  # (J,)
    allowed: np.ndarray  # (G, J) bool: model, stage and gate permit it
    may_reserve: np.ndarray  # (J,) bool
    cost: np.ndarray  # (G, J) reward
    value: np.ndarray  # (G, J) reward
    life_s: np.ndarray  # (G, J)
    load_price: np.ndarray  # (G,) reward/s
    per_sequence_s: np.ndarray  # (G,)
    per_kv_token_s: np.ndarray  # (G,)
    prefill_tokens_per_s: np.ndarray  # (G,)
    mean_kv_tokens: np.ndarray  # (J,) held over a life
    step_cost: np.ndarray  # (J,) reward/s
    wait_cost: np.ndarray  # (J,) reward/s
