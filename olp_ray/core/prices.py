"""Shadow prices of a block of devices: gradient steps in, prefix tables out, and nothing else.

A `PriceBlock` knows prices, and only of its own devices. Which requests are sampled, what they are worth, what is
occupied, and what the prices are used for is the router's business. The same object runs inline and in an actor, and
gives the same bits for every way of cutting a fleet into blocks: device is the leading axis, sums run over the last
axis or through `bincount` in sample order, and only `pick_winners` looks across blocks.

Notation
    symbol      meaning                                           shape         unit           paper
    G, N, S     devices, buckets, samples of a round
    D           bucket length                                                   s              one period
    p           price per bucket of one slot / one KV token       (G, 2, N)     reward per s   p_{g,k}^bat, p_{g,k}^mem
    C           integral of a price from 0                        (N + 1,)
    t0, L       start and length of a life on a device            (G, S, 4)     s              k, o-hat
    tau         seconds per decode iteration                      (G,)          s              1
    x           relative excess demand                            (G, 2, N)                    -g-hat of eq. 8
    pi0         reward that arrives per second and device                       reward per s

Source: eq. 8 and 10 of the paper with re-timed history columns: each sample stands for a future arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.kernels.records import MARGIN_GRAIN
from olp_ray.core.types import PricesReady, PriceWork
from olp_ray.errors import PriceError, SnapshotError


class PriceScalars(NamedTuple):
    """The scalars of one update, as floats."""

    bucket_s: float
    learning_rate: float
    base_price: float  # pi0
    anchor_pull: float  # share of the way to the anchor that each gradient step goes
    slot_anchor: float  # price per slot and second, as `core.stationary` has it
    kv_anchor: float  # price per KV token and second
    rotation: float  # device index that goes first in ties
    device_count: float  # G of the whole fleet
    lookahead_buckets: float  # gradient steps touch only these; beyond, the mean of their second half
    grid: float
    next_grid: float


class SampleColumn(IntEnum):
    """Columns of `PriceWork.samples`."""

    START_S = 0
    PROMPT_TOKENS = 1
    OUTPUT_TOKENS = 2
    WEIGHT = 3
    ROUND = 4


class PerDevice(NamedTuple):
    """Rows of one block's devices out of a `PriceWork`."""

    occupied: np.ndarray
    capacity: np.ndarray
    step_s: np.ndarray
    accepted: np.ndarray


class Bids(NamedTuple):
    """Best offer of one block for each sample of a round: shapes (S,). A larger margin wins, then the smaller delay
    index, then the smaller rotated device index."""

    margin: np.ndarray
    delay: np.ndarray
    rotated: np.ndarray


class Winners(NamedTuple):
    """Fleet index of the device that takes each sample (-1: none) and the delay index, shapes (S,)."""

    device: np.ndarray
    delay: np.ndarray


def pick_winners(bids: Sequence[Bids], scalars: np.ndarray) -> Winners:
    """The argmax across blocks. Only margins above 0 win."""
    terms = PriceScalars(*scalars)
    margin, delay, rotated = bids[0]
    for other in bids[1:]:
        sooner = (other.delay < delay) | ((other.delay == delay) & (other.rotated < rotated))
        better = (other.margin > margin) | ((other.margin == margin) & sooner)
        margin, delay = np.where(better, other.margin, margin), np.where(better, other.delay, delay)
        rotated = np.where(better, other.rotated, rotated)
    device = (rotated + int(terms.rotation)) % int(terms.device_count)
    return Winners(np.where(margin > 0, device, -1), delay)


def build_tables(prices: np.ndarray, bucket_s: float) -> np.ndarray:
    """`kernels.pricing.build_tables`, from arrays of any layout."""
    return kernels.pricing.build_tables(np.array(prices, dtype=np.float64, order="C"), bucket_s)


def shift_prices(prices: np.ndarray, buckets: int) -> np.ndarray:
    """Prices (..., N) moved towards now by this many buckets; the last price is repeated."""
    size = prices.shape[-1]
    index = np.minimum(np.arange(size) + max(buckets, 0), size - 1)
    return np.take(prices, index, axis=-1)


class PriceBlock:
    """Prices of the devices with these fleet indices, over `buckets` buckets.

    One update is `begin`, then for each round `best` and `accept`, then `finish`. What an update computes stays a
    draft until the next `begin` says that the router accepted it: an update that came too late leaves no trace.
    """

    def __init__(self, device_indices: Sequence[int] | np.ndarray, prices: np.ndarray, grid: int) -> None:
        self.device_indices = np.asarray(device_indices, dtype=np.int64)
        self._prices = _checked_prices(prices, len(self.device_indices)).copy()
        self._grid = grid
        self._draft: np.ndarray | None = None
        self._draft_id = -1
        self._draft_grid = grid

    def begin(
        self,
        update_id: int,
        scalars: np.ndarray,
        per_device: PerDevice,
        samples: np.ndarray,
        value: np.ndarray,
    ) -> None:
        """Open update `update_id` on per_device rows of this block's devices; see `PriceWork` for shapes.

        Raises `PriceError` when a shape is wrong or a number is not finite (value may be -inf: may not run here).
        """
        devices, _, buckets = self._prices.shape
        if np.shape(scalars) != (len(PriceScalars._fields),) or not np.isfinite(scalars).all():
            raise PriceError(f"scalars: expected finite ({len(PriceScalars._fields)},), got shape {np.shape(scalars)}")
        per_bucket = (devices, 2, buckets)
        for name, array, shape, above in (
            ("occupied", per_device.occupied, per_bucket, -np.inf),
            ("capacity", per_device.capacity, per_bucket, 0.0),
            ("step_s", per_device.step_s, (devices,), 0.0),
        ):
            if array.shape != shape or not (np.isfinite(array) & (array > above)).all():
                raise PriceError(f"{name}: expected finite {shape} above {above}, got shape {array.shape}")
        if samples.ndim != 2 or samples.shape[1] != len(SampleColumn) or not np.isfinite(samples).all():
            raise PriceError(f"samples: expected finite (S, {len(SampleColumn)}), got shape {samples.shape}")
        if value.shape not in ((len(samples), 4, 1), (len(samples), 4, devices)) or np.isnan(value).any():
            raise PriceError(f"value: expected ({len(samples)}, 4, 1 or {devices}), got shape {value.shape}")
        self._settle(per_device.accepted)
        self._terms = PriceScalars(*scalars)
        self._update_id = update_id
        self._per_device = per_device
        self._samples = samples
        self._value = value
        rotated = (self.device_indices - int(self._terms.rotation)) % int(self._terms.device_count)
        self._rotated_order = np.argsort(rotated, kind="stable")
        self._rotated = rotated[self._rotated_order]
        self._draft = shift_prices(self._prices, int(self._terms.grid) - self._grid)

    def best(self, round_index: int) -> Bids:
        """This block's best (margin, delay, rotated device) for each sample of the round, at the draft prices."""
        self._in_round = np.flatnonzero(self._samples[:, SampleColumn.ROUND] == round_index)
        start_s, prompt, output, _, _ = self._samples[self._in_round].T.copy()
        margin, delay, place = kernels.pricing.best_bids(
            kernels.pricing.build_tables(self._open_draft(), self._terms.bucket_s),
            self._terms.bucket_s,
            self._per_device.step_s,
            self._rotated_order,
            *(start_s, prompt, output),
            np.ascontiguousarray(self._value[self._in_round]),
            self._terms.base_price * self._terms.bucket_s * MARGIN_GRAIN,
        )
        return Bids(margin, delay, self._rotated[place])

    def accept(self, winners: Winners) -> None:
        """Add the samples that this block's devices won to the demand, and take one projected gradient step."""
        draft, terms = self._open_draft(), self._terms
        stepped = kernels.pricing.gradient_step(
            draft,
            self._demand(winners),
            self._per_device.occupied,
            self._per_device.capacity,
            terms.learning_rate,
            terms.base_price,
            terms.anchor_pull,
            np.array([terms.slot_anchor, terms.kv_anchor]),
        )
        ahead = min(int(terms.lookahead_buckets), stepped.shape[2])
        stepped[:, :, ahead:] = np.ascontiguousarray(stepped[:, :, ahead // 2 : ahead]).mean(axis=2)[:, :, None]
        self._draft = stepped

    def finish(self) -> np.ndarray:
        """Prefix tables (G, 5, N + 1) of the draft prices on the grid of the next update."""
        draft = self._open_draft()
        terms = self._terms
        self._draft = shift_prices(draft, int(terms.next_grid - terms.grid))
        self._draft_id, self._draft_grid = self._update_id, int(terms.next_grid)
        return kernels.pricing.build_tables(self._draft, terms.bucket_s)

    def shift(self, buckets: int) -> None:
        """Move the settled prices towards now by this many buckets."""
        self._prices = shift_prices(self._prices, buckets)
        self._grid += buckets

    def snapshot(self) -> dict[str, Any]:
        """The settled prices and their grid, as plain values."""
        return {
            "version": 1,
            "device_indices": self.device_indices.tolist(),
            "prices": self._prices.copy(),
            "grid": self._grid,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a `snapshot` back. Raises `SnapshotError` when it is of other devices or another version."""
        if state.get("version") != 1 or state.get("device_indices") != self.device_indices.tolist():
            raise SnapshotError(
                f"price snapshot of version {state.get('version')} for devices {state.get('device_indices')}; "
                f"expected version 1 for {self.device_indices.tolist()}"
            )
        self._prices = _checked_prices(state["prices"], len(self.device_indices)).copy()
        self._grid, self._draft, self._draft_id = int(state["grid"]), None, -1

    def _settle(self, accepted: np.ndarray) -> None:
        if self._draft is not None and self._draft_id >= 0 and (accepted == self._draft_id).all():
            self._prices, self._grid = self._draft, self._draft_grid
        self._draft, self._draft_id = None, -1

    def _open_draft(self) -> np.ndarray:
        if self._draft is None:
            raise PriceError("no update is open: call begin first")
        return self._draft

    def _demand(self, winners: Winners) -> np.ndarray:
        """Mean slots and KV tokens (G, 2, N) that the samples which this block's devices won hold in each bucket."""
        devices, _, buckets = self._prices.shape
        local = np.full(int(self._terms.device_count) + 1, -1, dtype=np.int64)
        local[self.device_indices] = np.arange(devices)
        start_s, prompt, output, weight, _ = self._samples[self._in_round].T.copy()
        return kernels.pricing.demand(
            *(devices, buckets, self._terms.bucket_s, self._per_device.step_s),
            *(local[winners.device], winners.delay, start_s, prompt, output, weight),
        )


def _checked_prices(prices: np.ndarray, devices: int) -> np.ndarray:
    prices = np.asarray(prices, dtype=np.float64)
    if prices.ndim != 3 or prices.shape[:2] != (devices, 2) or not np.isfinite(prices).all() or (prices < 0).any():
        raise PriceError(f"prices: expected finite ({devices}, 2, N) >= 0, got shape {prices.shape}")
    return prices


def split_devices(device_count: int, blocks: int) -> list[np.ndarray]:
    """Fleet indices of each block: contiguous, sizes differing by at most one, never empty."""
    return [part for part in np.array_split(np.arange(device_count), max(1, blocks)) if len(part)]


def rows_of(work: PriceWork, device_indices: np.ndarray) -> tuple[PerDevice, np.ndarray]:
    """A block's rows of the per-device arrays, and its columns of the value array."""
    per_device = PerDevice(
        work.occupied[device_indices],
        work.capacity[device_indices],
        work.step_s[device_indices],
        work.accepted[device_indices],
    )
    value = work.value if work.value.shape[2] == 1 else work.value[:, :, device_indices]
    return per_device, value


class Pricer(Protocol):
    """Carries price work to blocks and results back. `collect` returns what is due; it may wait for it."""

    def submit(self, work: PriceWork) -> None: ...

    def collect(self) -> list[PricesReady]: ...


class InlinePricer:
    """Price blocks in this process. missed lists (update_id, device_ids) that are made to miss their deadline."""

    def __init__(self, blocks: int = 1, missed: Sequence[tuple[int, Sequence[str]]] = ()) -> None:
        self._block_count = blocks
        self._blocks: list[PriceBlock] = []
        self._missed = {update_id: frozenset(device_ids) for update_id, device_ids in missed}
        self._ready: list[PricesReady] = []

    def submit(self, work: PriceWork) -> None:
        if work.start_prices is not None:
            self._blocks = [
                PriceBlock(indices, work.start_prices[indices], work.grid)
                for indices in split_devices(len(work.device_ids), self._block_count)
            ]
        lost = self._missed.get(work.update_id, frozenset())
        bidding = [b for b in self._blocks if not lost.intersection(work.device_ids[i] for i in b.device_indices)]
        self._ready = run_update(bidding, work) if bidding else []

    def collect(self) -> list[PricesReady]:
        ready, self._ready = self._ready, []
        return ready


def run_update(blocks: Sequence[PriceBlock], work: PriceWork) -> list[PricesReady]:
    """All rounds of one update over blocks in this process."""
    for block in blocks:
        per_device, value = rows_of(work, block.device_indices)
        block.begin(work.update_id, work.scalars, per_device, work.samples, value)
    for round_index in range(work.rounds):
        winners = pick_winners([block.best(round_index) for block in blocks], work.scalars)
        for block in blocks:
            block.accept(winners)
    return [
        PricesReady(
            work.update_id,
            work.next_grid,
            tuple(work.device_ids[i] for i in block.device_indices),
            block.finish(),
        )
        for block in blocks
    ]
