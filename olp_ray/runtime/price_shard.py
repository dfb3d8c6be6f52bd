"""A price block in a process of its own. Only carries calls; all prices are computed in `olp_ray.core.prices`.

One update over K rounds is K + 1 calls: `open` (begin and the bids of round 0), `step` (accept round k - 1, bids of
round k), `close` (accept the last round, tables). A process that Ray restarted holds no block until `rebuild`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import numpy as np

from olp_ray.core.prices import Bids, PerDevice, PriceBlock, Winners
from olp_ray.errors import PriceError
from olp_ray.runtime.warm import warm_block


class PriceShard:
    """The actor's class; also works as a plain object. It answers once its kernels are loaded."""

    def __init__(self) -> None:
        warm_block()
        self._block: PriceBlock | None = None
        self._update_id = -1

    def rebuild(self, device_indices: Sequence[int], prices: np.ndarray, grid: int) -> None:
        """Hold these devices at these prices, of shape (G_block, 2, N) on bucket grid `grid`."""
        self._block = PriceBlock(device_indices, prices, grid)

    def open(
        self, update_id: int, scalars: np.ndarray, per_device: PerDevice, samples: np.ndarray, value: np.ndarray
    ) -> Bids:
        """Begin update `update_id` and bid in round 0; arrays as in `PriceBlock.begin`."""
        block = self._held()
        block.begin(update_id, scalars, per_device, samples, value)
        self._update_id = update_id
        return block.best(0)

    def step(self, update_id: int, winners: Winners, round_index: int) -> Bids:
        """Take the winners of the round before and bid in this one."""
        block = self._held(update_id)
        block.accept(winners)
        return block.best(round_index)

    def close(self, update_id: int, winners: Winners) -> np.ndarray:
        """Take the winners of the last round; the tables (G_block, 5, N + 1) of the update."""
        block = self._held(update_id)
        block.accept(winners)
        return block.finish()

    def process_id(self) -> int:
        return os.getpid()

    def stay(self) -> None:
        """Never returns: whoever waits for it learns at once that the process is gone."""
        threading.Event().wait()

    def _held(self, update_id: int | None = None) -> PriceBlock:
        if self._block is None:
            raise PriceError("this shard holds no block (its process restarted): call rebuild first")
        if update_id is not None and update_id != self._update_id:
            raise PriceError(f"update {update_id} is not open here; open is {self._update_id}")
        return self._block
