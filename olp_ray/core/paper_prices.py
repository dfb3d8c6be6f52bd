"""Prices of `online_lp_paper`: one per device, absolute slot of a fixed horizon, and resource; updated in place.

Here live the history of recorded columns and Algorithm 2. What is recorded, and what prices are used for, is the
policy's business. Unlike `core.prices` these prices have no lag and are not cut into blocks.

Notation
    symbol   meaning                                                          shape        paper
    G, T     devices, slots of the horizon
    p        price of a slot / of a scaled KV token                           (G, 2, T)    p_{g,k}^bat, p_{g,k}^mem
    n        recorded columns                                                              N_k
    r        reward of a column, normalised                                   (n,)         r^norm
    d        remaining capacity per request still expected, slots from now    (G, 2, L)    d_k (eq. 11)
    rho      KV tokens that a request gains per slot                          (n,)         1
    scale    weight of KV tokens against slots in d, a and p                               mem_scale

A column that began in the past keeps its full extent in its margin; prices of past slots are frozen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from olp_ray.core.packing import Packing


class Column(IntEnum):
    """Fields of a column: KV tokens in slot q are LEVEL + GROWTH (q - START) for START <= q < STOP."""

    DEVICE = 0
    START = 1
    STOP = 2
    LEVEL = 3
    GROWTH = 4
    REWARD = 5


class PaperPrices:
    """Prices, and the last `history` columns, for the devices of `device_ids` over `slots` slots."""

    def __init__(self, slots: int, history: int) -> None:
        self.device_ids: tuple[str, ...] = ()
        self.prices = np.zeros((0, 2, slots))
        self.columns = np.empty((0, len(Column)))
        self.kv_scale = 0.0
        self._history = history
        self._end = 0  # prices are 0 from this slot on

    def follow(self, device_ids: Sequence[str], kv_scale: float) -> None:
        """Keep in step with the fleet: devices that stay keep prices and columns, new ones start at price 0."""
        self.kv_scale = kv_scale
        ids = tuple(device_ids)
        if ids == self.device_ids:
            return
        new_row = {device_id: g for g, device_id in enumerate(ids)}
        moved = np.array([new_row.get(device_id, -1) for device_id in self.device_ids], dtype=np.int64)
        prices = np.zeros((len(ids), *self.prices.shape[1:]))
        prices[moved[moved >= 0]] = self.prices[moved >= 0]
        if len(self.columns):
            device = moved[self.columns[:, Column.DEVICE].astype(np.int64)]
            self.columns[:, Column.DEVICE] = device
            self.columns = self.columns[device >= 0]
        self.device_ids, self.prices = ids, prices

    def record(self, columns: np.ndarray) -> None:
        """Append columns, (m, 6), to the history (Appendix B.4)."""
        self.columns = np.concatenate([self.columns, columns])[-self._history :]
        self._end = max(self._end, int(columns[:, Column.STOP].max(initial=0)))

    def forget(self) -> None:
        """Drop the history; the next update begins at price 0 (Algorithm 2, line 4)."""
        self.columns = self.columns[:0]

    def forget_before(self, slot: int) -> None:
        """Drop columns recorded before that slot; prices stay as they are (Section 4.3: warm start)."""
        self.columns = self.columns[self.columns[:, Column.START] >= slot]

    def slots_ahead(self, now: int) -> int:
        """How many slots from `now` on can have a price above 0."""
        return max(self._end - now, 0)

    def cost(self, columns: np.ndarray) -> np.ndarray:
        """a'p of columns over their full extent, (m,): eq. 10 (Appendix B.2)."""
        slot, kv = self.cost_by_resource(columns)
        return slot + kv

    def cost_by_resource(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The shares of slots and of KV tokens in `cost`, both (m,), by prefix sums."""
        if not len(columns):
            return np.zeros(0), np.zeros(0)
        device, start, stop = (columns[:, c].astype(np.int64) for c in (Column.DEVICE, Column.START, Column.STOP))
        low, high = int(start.min()), int(max(stop.max(), start.max()))
        ahead = self.prices[:, :, low:high]
        tables = np.zeros((3, len(self.prices), high - low + 1))
        np.cumsum(ahead[:, 0], axis=1, out=tables[0, :, 1:])
        np.cumsum(ahead[:, 1], axis=1, out=tables[1, :, 1:])
        np.cumsum(ahead[:, 1] * np.arange(high - low), axis=1, out=tables[2, :, 1:])
        slot, kv, timed_kv = tables[:, device, np.maximum(stop, start) - low] - tables[:, device, start - low]
        growth = columns[:, Column.GROWTH]
        return slot, self.kv_scale * ((columns[:, Column.LEVEL] - growth * (start - low)) * kv + growth * timed_kv)

    def update(
        self,
        now: int,
        scarcity: np.ndarray,
        rewards: np.ndarray,
        learning_rate: float,
        rounds: int,
        batch: int,
        rng: np.random.Generator,
    ) -> None:
        """Algorithm 2 (Appendix B.3).

        scarcity is d over slots now .. now + slots_ahead(now), rewards (n,) those of the history.
        """
        count = len(self.columns)
        if count == 0:  # lines 3-6
            self.prices[:] = 0.0
            return
        batch = min(batch, count)  # line 7
        ahead = self.prices[:, :, now : now + scarcity.shape[2]]  # line 8: warm start
        for _ in range(rounds):  # line 9
            drawn = rng.choice(count, batch, replace=False)  # line 10
            columns = self.columns[drawn]
            taken = rewards[drawn] - self.cost(columns) > 0  # lines 13-14
            gradient = scarcity - self._usage(columns[taken], now, scarcity.shape[2]) / batch  # lines 11, 15
            ahead[:] = np.maximum(ahead - learning_rate * gradient, 0.0)  # line 18, eq. 8

    def saa(self, now: int, scarcity: np.ndarray, rewards: np.ndarray) -> Packing:
        """The whole history as the LP whose dual is eq. 6, over slots from `now` on; past slots at frozen prices."""
        frozen = self.columns.copy()
        frozen[:, Column.STOP] = np.minimum(frozen[:, Column.STOP], now)
        past = self.cost(frozen)
        count, width = len(self.columns), scarcity.shape[2]
        device = self.columns[:, Column.DEVICE].astype(np.int64)
        start = np.clip(self.columns[:, Column.START].astype(np.int64), now, None)
        stop = np.maximum(self.columns[:, Column.STOP].astype(np.int64), start)
        option = np.repeat(np.arange(count), stop - start)
        slot = np.arange(len(option)) - np.repeat(np.cumsum(stop - start) - stop, stop - start)
        age = slot - self.columns[option, Column.START]
        kv = self.columns[option, Column.LEVEL] + self.columns[option, Column.GROWTH] * age
        row = device[option] * 2 * width + slot - now
        return Packing(
            capacity=scarcity.ravel(),
            value=rewards - past,
            group=np.arange(count),
            limit=np.full(count, 1.0 / max(count, 1)),
            row=np.concatenate([row, row + width]),
            option=np.concatenate([option, option]),
            coefficient=np.concatenate([np.ones(len(option)), self.kv_scale * kv]),
        )

    def set_ahead(self, now: int, prices: np.ndarray) -> None:
        """Replace the prices of the slots from `now` on by these, (G, 2, L)."""
        self.prices[:, :, now : now + prices.shape[2]] = prices

    def snapshot(self) -> dict[str, Any]:
        return {
            "device_ids": list(self.device_ids),
            "prices": self.prices.copy(),
            "columns": self.columns.copy(),
            "kv_scale": self.kv_scale,
            "end": self._end,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.device_ids = tuple(state["device_ids"])
        self.prices, self.columns = np.array(state["prices"]), np.array(state["columns"])
        self.kv_scale, self._end = float(state["kv_scale"]), int(state["end"])

    def _usage(self, columns: np.ndarray, now: int, width: int) -> np.ndarray:
        """Sum of the columns over slots now .. now + width, (G, 2, width), by difference arrays."""
        devices = len(self.prices)
        at = columns[:, Column.DEVICE].astype(np.int64) * (width + 1)
        first = at + np.clip(columns[:, Column.START].astype(np.int64) - now, 0, width)
        last = at + np.clip(columns[:, Column.STOP].astype(np.int64) - now, 0, width)
        growth = columns[:, Column.GROWTH]
        at_now = columns[:, Column.LEVEL] + growth * (now - columns[:, Column.START])

        def running(weight: np.ndarray) -> np.ndarray:
            size = devices * (width + 1)
            step = np.bincount(first, weight, minlength=size) - np.bincount(last, weight, minlength=size)
            return step.reshape(devices, width + 1)[:, :width].cumsum(axis=1)

        kv = running(at_now) + np.arange(width) * running(growth)
        return np.stack([running(np.ones(len(columns))), self.kv_scale * kv], axis=1)
