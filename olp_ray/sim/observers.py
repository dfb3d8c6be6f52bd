"""Wrappers that watch a router or a pricer at work and change nothing: decision times, answers, prices over time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from olp_ray.core.explanation import Explanation
from olp_ray.core.kernels.records import KV_PRICE, SLOT_PRICE
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import Pricer
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


class AskedRouter:
    """A router that is asked about single requests as of given times.

    A question (time_s, request id) is about the state after the last call at or before that time. answers are in
    order of time; a request that neither waits nor runs then has none.
    """

    def __init__(self, router: PricedRouter, questions: Sequence[tuple[float, str]]) -> None:
        self._router = router
        self._questions = sorted(questions, reverse=True)
        self.answers: list[tuple[float, Explanation]] = []

    def handle(self, now_s: float, events: Sequence[Event]) -> Step:
        self._answer_before(now_s)
        return self._router.handle(now_s, events)

    def finish(self) -> None:
        """Answer what was asked about times after the last call."""
        self._answer_before(math.inf)

    def _answer_before(self, now_s: float) -> None:
        while self._questions and self._questions[-1][0] < now_s:
            time_s, request_id = self._questions.pop()
            self.answers.extend((time_s, found) for found in self._router.router.explain(time_s, request_id))


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
