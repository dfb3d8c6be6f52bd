"""What the pricer keeps of shards and updates, and the checks of what shards send. No calls are made here."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from olp_ray.core.prices import Bids
from olp_ray.core.types import PriceWork
from olp_ray.errors import PriceError


class Home(NamedTuple):
    """What a block is rebuilt from: its devices, and prices on a bucket grid that the router has taken."""

    layout: int
    device_indices: np.ndarray
    prices: np.ndarray
    grid: int


@dataclass(eq=False)
class Shard:
    """What the pricer knows of one shard: its last call that is not answered yet (at first, the process's start).

    holds is the layout of its block, -1 when it has to be built; broken says that it was there and got lost.
    """

    index: int
    unanswered: Future[Any] | None
    holds: int = -1
    broken: bool = False
    silent_updates: int = 0
    starting: bool = True
    asked_s: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class Update:
    """One update on its way. tables is by block; nothing is added once it is closed."""

    work: PriceWork
    homes: list[Home]
    submitted_s: float
    tables: dict[int, np.ndarray] = field(default_factory=dict)
    closed: bool = False
    finished: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class PricerStatus:
    """Counts since the start; all but updates are 0 while nothing breaks.

    missed (updates whose tables did not come in time) and lag (updates since the last tables) are by block, errors by
    type. rebuilt counts blocks that were built again because their process was lost or sent nonsense, replaced the
    processes that were given up because they were silent. rounds_s is how long the last update took.
    """

    updates: int
    missed: dict[int, int]
    lag: dict[int, int]
    errors: dict[str, int]
    rebuilt: int
    replaced: int
    rounds_s: float


def check_bids(bids: Bids, samples: int) -> None:
    """Raises `PriceError` when a shard's bids have a wrong shape or hold NaN."""
    shapes = {np.shape(column) for column in bids}
    if shapes != {(samples,)} or np.isnan(bids.margin).any():
        raise PriceError(f"bids: expected three arrays of shape ({samples},) without NaN, got shapes {shapes}")


def check_tables(tables: np.ndarray, devices: int, buckets: int) -> None:
    """Raises `PriceError` when a shard's tables have a wrong shape or are not finite."""
    expected = (devices, 5, buckets + 1)
    if tables.shape != expected or not np.isfinite(tables).all():
        raise PriceError(f"tables: expected finite {expected}, got shape {tables.shape}")
