"""Decisions: everything that the router ever asks for. A request not mentioned waits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from olp_ray.core.types.requests import AssignmentKey, Request
from olp_ray.errors import OlpRayError


class RejectReason(StrEnum):
    """Why a request was turned away; stable strings, used as metric labels and in HTTP bodies.

    DEADLINE_PASSED: what earns something by a deadline can not be met any more. A request that is too long to make it
    from the start is turned away so without having waited.
    """

    NEVER_FITS = "never_fits"
    QUEUE_FULL = "queue_full"
    DEADLINE_PASSED = "deadline_passed"
    MAX_WAIT = "max_wait"
    PRICE = "price"
    NO_DEVICE = "no_device"


@dataclass(frozen=True, slots=True)
class Assign:
    """Release the request to the device named in the key, now."""

    key: AssignmentKey
    request: Request


@dataclass(frozen=True, slots=True)
class Reject:
    """Turn the request away: why, the limit that it met, the knob that moves that limit, when to come back.

    retry_after_s means nothing with NEVER_FITS: it will not fit later either.
    """

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
    faults are the events that were skipped because they contradict the router's state, and a price update that failed,
    as typed errors.
    """

    decisions: tuple[Decision, ...] = ()
    price_work: PriceWork | None = None
    next_wake_s: float = math.inf
    faults: tuple[OlpRayError, ...] = ()
