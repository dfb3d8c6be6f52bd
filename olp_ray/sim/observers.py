"""Wrappers that watch a router or a pricer at work and change nothing: decision times and prices over time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from olp_ray.core.prices import KV_PRICE, SLOT_PRICE, Pricer
from olp_ray.core.types import Event, PricesReady, PriceWork, Step
from olp_ray.sim.records import frame
from olp_ray.sim.run import Router


class HandleTime(NamedTuple):
    """One row of handle_times.parquet: how long one call took on this machine."""

    time_s: float
    wall_s: float
    events: int
    decisions: int


class PriceRow(NamedTuple):
    """One row of prices.parquet: the prices for now of one device, as they come into force."""

    time_s: float
    update_id: int
    device_id: str
    slot_price: float
    kv_price: float


class TimedRouter:
    """A router whose calls are timed by the wall clock."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._rows: list[HandleTime] = []

    def handle(self, now_s: float, events: Sequence[Event]) -> Step:
        began = time.perf_counter()
        step = self._router.handle(now_s, events)
        self._rows.append(HandleTime(now_s, time.perf_counter() - began, len(events), len(step.decisions)))
        return step

    def frame(self) -> pd.DataFrame:
        return frame(self._rows, HandleTime)


class PriceLog:
    """A pricer that writes down the prices that it hands on."""

    def __init__(self, pricer: Pricer) -> None:
        self._pricer = pricer
        self._due_s = 0.0
        self._rows: list[PriceRow] = []

    def submit(self, work: PriceWork) -> None:
        self._due_s = work.due_s
        self._pricer.submit(work)

    def collect(self) -> list[PricesReady]:
        ready = self._pricer.collect()
        for prices in ready:
            for device_id, table in zip(prices.device_ids, prices.tables, strict=True):
                slot, kv = float(table[SLOT_PRICE, 0]), float(table[KV_PRICE, 0])
                self._rows.append(PriceRow(self._due_s, prices.update_id, device_id, slot, kv))
        return ready

    def frame(self) -> pd.DataFrame:
        return frame(self._rows, PriceRow)
