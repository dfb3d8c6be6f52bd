"""The contract: what goes into the router (events) and what comes out (decisions), as plain frozen records.

Here live only records and their validation. No record here has behaviour that decides anything.

Units: every time is in seconds (`_s`) on the driver's clock, which starts at 0; the paper's period model (Section 2)
is the same contract with a step time of 1 s. Token counts are whole numbers except predictions, which are floats.

Identity: a request is named by `RequestKey` (id, stage); what happens to it on a device is named by
`AssignmentKey`, which adds the device *incarnation* and the attempt. Events with an old key are stale: the router
ignores and counts them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from olp_ray.errors import OlpRayError, RequestError


class Stage(StrEnum):
    """Which part of a request's work is routed; the stages of one request share its id."""

    MIXED = "mixed"
    PREFILL = "prefill"
    DECODE = "decode"


class RejectReason(StrEnum):
    """Why a request was turned away; stable strings, used as metric labels and in HTTP bodies."""

    NEVER_FITS = "never_fits"
    QUEUE_FULL = "queue_full"
    DEADLINE_PASSED = "deadline_passed"
    MAX_WAIT = "max_wait"
    PRICE = "price"
    NO_DEVICE = "no_device"


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

    Raises `RequestError` for an empty id, a time that is not finite, a negative or infinite prompt, a limit below 1
    token, quantiles that do not rise, or a prediction that is not finite or below 1 token.
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
    priority: int = 0  # higher is more urgent
    session: str = ""
    prefix_blocks: tuple[int, ...] = ()  # hashes of the prompt's leading blocks
    slo_ttft_s: float | None = None
    slo_e2e_s: float | None = None
    key: RequestKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", RequestKey(self.id, self.stage))
        if not self.id:
            raise RequestError("request id is empty; expected a non-empty string")
        if not math.isfinite(self.arrival_s):
            raise RequestError(f"request {self.id!r}: arrival_s is {self.arrival_s}; expected a finite number")
        if not 0 <= self.prompt_tokens < math.inf:
            raise RequestError(f"request {self.id!r}: prompt_tokens is {self.prompt_tokens}; expected >= 0")
        if self.max_output_tokens is not None and not 1 <= self.max_output_tokens < math.inf:
            raise RequestError(
                f"request {self.id!r}: max_output_tokens is {self.max_output_tokens}; expected >= 1 or none"
            )
        if self.predicted_quantiles and not _are_quantiles(self.predicted_quantiles):
            raise RequestError(
                f"request {self.id!r}: predicted_quantiles is {self.predicted_quantiles}; "
                "expected levels in (0, 1) that rise, with finite lengths >= 1 that do not fall"
            )
        if not (math.isfinite(self.predicted_output_tokens) and self.predicted_output_tokens >= 1):
            raise RequestError(
                f"request {self.id!r}: predicted_output_tokens is {self.predicted_output_tokens}; expected >= 1"
            )
        for name in ("slo_ttft_s", "slo_e2e_s"):
            slo_s = getattr(self, name)
            if slo_s is not None and not slo_s > 0:
                raise RequestError(f"request {self.id!r}: {name} is {slo_s}; expected > 0 or none")


def _are_quantiles(pairs: tuple[tuple[float, float], ...]) -> bool:
    levels, tokens = [level for level, _ in pairs], [length for _, length in pairs]
    rising = all(one < other for one, other in pairwise([0.0, *levels, 1.0]))
    return rising and all(one <= other for one, other in pairwise([1.0, *tokens])) and tokens[-1] < math.inf


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
            if getattr(self, name) < 1:
                raise RequestError(f"device {self.id!r}: {name} is {getattr(self, name)}; expected >= 1")
        if not (math.isfinite(self.step_s) and self.step_s > 0):
            raise RequestError(f"device {self.id!r}: step_s is {self.step_s}; expected a finite number > 0")
        if not self.prefill_tokens_per_s > 0:
            raise RequestError(f"device {self.id!r}: prefill_tokens_per_s must be > 0")

    def can_run(self, request: Request) -> bool:
        """Whether model and stage are allowed here (says nothing of room)."""
        return request.stage in self.stages and (not request.model or not self.models or request.model in self.models)


@dataclass(frozen=True, slots=True)
class Objective:
    """The operator's six weights and the thresholds they speak of (paper Section 3.1).

    throughput is alpha (per output token), e2e beta and ttft gamma (per second saved), qps sigma (per request),
    tail_e2e zeta1 and tail_ttft zeta2 (per request inside its threshold). e2e_threshold_s is t1', ttft_threshold_s
    is t2'. Multiplying all six weights by a constant changes no decision.

    Requests may differ in worth: class_weights multiplies the reward of a request class (1 if not named), and each
    step of priority multiplies it by priority_factor. tenant_fairness is the exponent of alpha-fairness between
    tenants (0: none, 1: proportional; see `core.fairness`). With joint_deadlines a deadline earns something only where
    both can be met: what counts is requests inside both thresholds (goodput), not deadlines.
    """

    throughput: float
    e2e: float
    ttft: float
    qps: float
    tail_e2e: float
    tail_ttft: float
    e2e_threshold_s: float
    ttft_threshold_s: float
    class_weights: tuple[tuple[str, float], ...] = ()
    priority_factor: float = 1.0
    tenant_fairness: float = 0.0
    joint_deadlines: bool = False

    def __post_init__(self) -> None:
        weights = self.weights
        if not all(math.isfinite(w) and w >= 0 for w in weights):
            raise RequestError(f"objective weights are {weights}; expected six finite numbers >= 0")
        if not any(weights):
            raise RequestError("objective weights are all zero; expected at least one above 0")
        for name in ("e2e_threshold_s", "ttft_threshold_s"):
            if not getattr(self, name) > 0:
                raise RequestError(f"objective {name} is {getattr(self, name)}; expected > 0")
        factors = (self.priority_factor, *(weight for _, weight in self.class_weights))
        if not all(math.isfinite(factor) and factor > 0 for factor in factors):
            raise RequestError(f"objective factors are {factors}; expected finite numbers > 0")
        if not (math.isfinite(self.tenant_fairness) and self.tenant_fairness >= 0):
            raise RequestError(f"objective tenant_fairness is {self.tenant_fairness}; expected >= 0")

    @property
    def weights(self) -> tuple[float, float, float, float, float, float]:
        """(alpha, beta, gamma, sigma, zeta1, zeta2) in the paper's order."""
        return (self.throughput, self.e2e, self.ttft, self.qps, self.tail_e2e, self.tail_ttft)


# ---------------------------------------------------------------------------------------------------------------
# Events: everything that the router is ever told.


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

    tables has shape (len(device_ids), 5, buckets + 1), on the bucket grid `grid`.
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


# ---------------------------------------------------------------------------------------------------------------
# Decisions: everything that the router ever asks for. A request not mentioned waits.


@dataclass(frozen=True, slots=True)
class Assign:
    """Release the request to the device named in the key, now."""

    key: AssignmentKey
    request: Request


@dataclass(frozen=True, slots=True)
class Reject:
    """Turn the request away: why, the limit that it met, the knob that moves that limit, when to come back."""

    request: Request
    reason: RejectReason
    limit: str
    knob: str
    retry_after_s: float


Decision = Assign | Reject


@dataclass(frozen=True, slots=True, eq=False)
class PriceWork:
    """One price update for the whole fleet, to be split over price blocks by device (see `core.prices`).

    G devices, N buckets, S samples over all rounds. The result is due as `PricesReady` at or before `due_s`.
    """

    update_id: int
    due_s: float
    grid: int  # bucket grid on which the update is computed
    next_grid: int  # bucket grid of the next update, on which tables are returned
    rounds: int
    device_ids: tuple[str, ...]  # (G,)
    scalars: np.ndarray  # float64, layout of core.prices.PriceScalars
    occupied: np.ndarray  # (G, 2, N): expected slots and KV tokens in use
    capacity: np.ndarray  # (G, 2, N)
    step_s: np.ndarray  # (G,)
    accepted: np.ndarray  # int64 (G,): last update id whose tables the router applied
    samples: np.ndarray  # float64 (S, 5), columns of core.prices.SampleColumn
    value: np.ndarray  # (S, 4, 1 or G): reward of starting sample s after each delay
    start_prices: np.ndarray | None = None  # (G, 2, N): blocks are rebuilt from these first


@dataclass(frozen=True, slots=True)
class Step:
    """What one call of `handle` asks the driver to do.

    next_wake_s is the latest time at which `handle` wants to be called again even if nothing happens (inf: never).
    faults are the events that were skipped because they contradict the router's state, as typed errors.
    """

    decisions: tuple[Decision, ...] = ()
    price_work: PriceWork | None = None
    next_wake_s: float = math.inf
    faults: tuple[OlpRayError, ...] = ()
