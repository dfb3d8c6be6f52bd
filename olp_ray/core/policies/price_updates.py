"""When prices are updated and from what: the clock, the samples and the work, and the tables that came back.

Contract rule 3: the work of update u is computed while admission goes on and takes effect at update u + 1. A device
whose tables did not come by then keeps its old prices, moved towards now. No decision is made here.

Notation
    symbol      meaning                                                unit            paper
    u, U        index and interval of updates; u = floor(now / U)      s
    D, La       price bucket, how far ahead arrivals are sampled       s
    lambda^     arrival rate                                           requests/s
    V-bar       mean reward of an immediate start                      reward          r_{j,g,k}
    pi0         lambda^ * V-bar / G                                    reward/s
    S           samples of all rounds
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from olp_ray.core.forecast import expected_occupancy
from olp_ray.core.history import OWN_E2E, OWN_TTFT, PREDICTED, PROMPT, WEIGHT, ArrivalHistory
from olp_ray.core.kernels.records import DELAY_BUCKETS
from olp_ray.core.ledger import Ledger
from olp_ray.core.policies.appraisal import resource_shares
from olp_ray.core.policies.base import View
from olp_ray.core.policies.settings import OnlineLPSettings
from olp_ray.core.prices import PriceScalars, SampleColumn, build_tables, shift_prices
from olp_ray.core.reward import Terms, start_value, thresholds
from olp_ray.core.stationary import StationaryPrices, prices_of, scarcest
from olp_ray.core.types import Objective, PricesReady, PriceWork
from olp_ray.errors import PriceError

DRAWN_STEP = 0.2  # steps that are drawn to a price only have to say how one moment differs from the next
_EDGE = 1e-9  # a quotient of times that is within this of a whole number is one


class PriceUpdates:
    """Prices in force, and the schedule that renews them.

    tables is (G, 5, N + 1) on the devices of `device_ids`; base_price is pi0, 0 until enough has arrived.
    """

    def __init__(self, settings: OnlineLPSettings) -> None:
        self._settings = settings
        self.buckets = max(1, round(settings.horizon_s / settings.bucket_s))
        self.device_ids: tuple[str, ...] = ()
        self.tables = np.zeros((0, 5, self.buckets + 1))
        self.base_price = 0.0
        self.scarcity = np.ones(3)
        self._anchor = StationaryPrices(0.0, 0.0, 0.0)
        self.missed = 0
        self._grid = 0
        self._index = -1
        self._accepted = np.zeros(0, dtype=np.int64)
        self._in_flight: int | None = None
        self._rebuild_blocks = True
        self._arrived: list[PricesReady] = []

    @property
    def prefill_price(self) -> float:
        """Reward per prompt token that has to be prefilled; it has no shard, since prefill is over at once."""
        return self._anchor.prefill

    def next_update_s(self) -> float:
        """An update is due from this time on, to the bit: its tables are, too (`PriceWork.due_s`)."""
        return (self._index + 1) * self._settings.update_s

    def update(
        self,
        view: View,
        history: ArrivalHistory,
        weights: np.ndarray,
        objective: Objective,
        now_s: float,
        rng: np.random.Generator,
    ) -> PriceWork | None:
        """Take in tables, and if an update is due, apply them, renew pi0 and return the next work.

        weights (J,) multiplies the reward of each waiting request.
        """
        self._arrived.extend(view.prices)
        self._follow_fleet(view.ledger)
        if now_s < self.next_update_s():
            return None
        self._index = self._index_at(now_s)
        self._apply_tables(self._grid_at(self._index))
        self._renew_base_price(view, history, objective, now_s)
        if self.base_price <= 0:
            self._reset_prices()
            return None
        return self._work(view, history, weights, objective, now_s, rng)

    def snapshot(self) -> dict[str, Any]:
        return {
            "device_ids": list(self.device_ids),
            "tables": self.tables.copy(),
            "base_price": self.base_price,
            "scarcity": self.scarcity.copy(),
            "anchor": tuple(self._anchor),
            "missed": self.missed,
            "grid": self._grid,
            "index": self._index,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a `snapshot` back; work in flight is forgotten, and blocks are rebuilt from these prices."""
        tables = np.array(state["tables"])
        if tables.shape[1:] != self.tables.shape[1:]:
            raise PriceError(f"price tables of shape {tables.shape}; expected (G, {self.tables.shape[1:]})")
        self.device_ids = tuple(state["device_ids"])
        self.tables, self.base_price = tables, float(state["base_price"])
        self.scarcity = np.array(state["scarcity"])
        self._anchor = StationaryPrices(*state["anchor"])
        self.missed, self._grid, self._index = int(state["missed"]), int(state["grid"]), int(state["index"])
        self._accepted = np.full(len(self.device_ids), -1, dtype=np.int64)
        self._in_flight, self._rebuild_blocks, self._arrived = None, True, []

    def _index_at(self, now_s: float) -> int:
        """u of the update that is due now; a quotient may round to either side of a whole number."""
        index = math.floor(now_s / self._settings.update_s + _EDGE)
        if index * self._settings.update_s > now_s:
            index -= 1
        return max(index, self._index + 1)

    def _grid_at(self, index: int) -> int:
        return math.floor(index * self._settings.update_s / self._settings.bucket_s + _EDGE)

    def _follow_fleet(self, ledger: Ledger) -> None:
        """Keep tables in step with the fleet: devices that stay keep theirs, new ones start at price 0."""
        ids = ledger.device_ids
        if ids == self.device_ids:
            return
        tables = np.zeros((len(ids), 5, self.buckets + 1))
        kept = {device_id: g for g, device_id in enumerate(self.device_ids)}
        for g, device_id in enumerate(ids):
            if device_id in kept:
                tables[g] = self.tables[kept[device_id]]
        self.device_ids, self.tables = ids, tables
        self._accepted = np.full(len(ids), -1, dtype=np.int64)
        self._in_flight, self._rebuild_blocks = None, True

    def _apply_tables(self, grid: int) -> None:
        shift = grid - self._grid
        if shift > 0:
            self._set_prices(shift_prices(self.tables[:, :2, :-1], shift))
        self._grid = grid
        fresh = [ready for ready in self._arrived if ready.update_id == self._in_flight]
        self._arrived = []
        if self._in_flight is None:
            return
        rows = {device_id: g for g, device_id in enumerate(self.device_ids)}
        for ready in fresh:
            shape = (len(ready.device_ids), 5, self.buckets + 1)
            if ready.tables.shape != shape or not np.isfinite(ready.tables).all():
                continue
            found = {rows[device_id]: i for i, device_id in enumerate(ready.device_ids) if device_id in rows}
            at, tables = list(found), ready.tables[list(found.values())]
            late = max(grid - ready.grid, 0)
            if late:
                tables = build_tables(shift_prices(tables[:, :2, :-1], late), self._settings.bucket_s)
            self.tables[at] = tables
            self._accepted[at] = ready.update_id
        self.missed += int(np.count_nonzero(self._accepted != self._in_flight))
        self._in_flight = None

    def _reset_prices(self) -> None:
        if self.tables.any():
            self._set_prices(np.zeros((len(self.device_ids), 2, self.buckets)))
            self._rebuild_blocks = True

    def _set_prices(self, prices: np.ndarray) -> None:
        self.tables = build_tables(prices, self._settings.bucket_s)

    def _renew_base_price(
        self,
        view: View,
        history: ArrivalHistory,
        objective: Objective,
        now_s: float,
    ) -> None:
        ledger = view.ledger
        open_devices = int((~ledger.draining).sum())
        if history.seen < self._settings.min_arrivals or not open_devices:
            self.base_price, self._anchor = 0.0, StationaryPrices(0.0, 0.0, 0.0)
            return
        step_s = float(ledger.step_s.mean())
        rows = history.rows
        length = view.calibration.mean_length(rows[:, PREDICTED], rows[:, PROMPT])
        terms = Terms(
            np.zeros(len(rows)), length, rows[:, WEIGHT], *thresholds(objective, rows[:, OWN_E2E], rows[:, OWN_TTFT])
        )
        window_s = self._settings.window_s(np.full(len(rows), now_s))
        value = start_value(objective, window_s, terms, 0.0, 0.0, length * step_s)
        shares = resource_shares(ledger, rows[:, PROMPT], length, length * step_s)
        taken = shares.mean(axis=1)
        self.scarcity = taken / taken.max()
        self._rate = history.rate_per_s(now_s, self._settings.bucket_s)
        self.base_price = self._rate * float(value.mean()) / open_devices
        self._anchor = prices_of(*scarcest(value, shares, self._rate / open_devices), ledger.fleet)

    def _work(
        self,
        view: View,
        history: ArrivalHistory,
        weights: np.ndarray,
        objective: Objective,
        now_s: float,
        rng: np.random.Generator,
    ) -> PriceWork:
        settings, ledger = self._settings, view.ledger
        samples, terms = self._samples(view, history, weights, objective, now_s, rng)
        window_s = settings.window_s(now_s + samples[:, SampleColumn.START_S] - terms.waited_s)
        index, grid = self._index, self._grid
        pull = settings.anchor_pull if any(self._anchor) else 0.0
        scalars = PriceScalars(
            settings.bucket_s,
            settings.learning_rate * (DRAWN_STEP if pull > 0 else 1.0),
            self.base_price,
            pull,
            self._anchor.slot,
            self._anchor.kv,
            float(index % len(self.device_ids)),
            float(len(self.device_ids)),
            float(max(1, round(settings.lookahead_s / settings.bucket_s))),
            float(grid),
            float(self._grid_at(index + 1)),
        )
        start_prices = self.tables[:, :2, :-1].copy() if self._rebuild_blocks else None
        self._rebuild_blocks, self._in_flight = False, index
        return PriceWork(
            update_id=index,
            due_s=self.next_update_s(),
            grid=grid,
            next_grid=int(scalars.next_grid),
            rounds=settings.rounds,
            device_ids=self.device_ids,
            scalars=np.array(scalars),
            occupied=expected_occupancy(ledger, view.calibration, now_s, settings.bucket_s, self.buckets),
            capacity=ledger.capacity_ahead(now_s, settings.bucket_s, self.buckets),
            step_s=ledger.step_s.copy(),
            accepted=self._accepted.copy(),
            samples=samples,
            value=self._sample_value(ledger, objective, terms, window_s),
            start_prices=start_prices,
        )

    def _samples(
        self,
        view: View,
        history: ArrivalHistory,
        weights: np.ndarray,
        objective: Objective,
        now_s: float,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, Terms]:
        """(S, 5) samples of all rounds, and what the reward of each is made of, (S,).

        Each past arrival stands for one to come, at a random bucket ahead; each waiting request stands for itself.
        """
        settings, queue = self._settings, view.waiting
        batch, rounds = settings.batch, settings.rounds
        ahead = max(1, round(settings.lookahead_s / settings.bucket_s))
        waiting = min(len(queue), batch)
        samples = np.zeros((rounds, batch + waiting, 5))
        rows = np.empty((rounds, batch + waiting, history.rows.shape[1]))
        waited_s = np.zeros((rounds, batch + waiting))
        own_rows = np.empty((len(queue), history.rows.shape[1]))
        own_rows[:, PROMPT], own_rows[:, PREDICTED] = queue.prompt_tokens, queue.predicted_output_tokens
        own_rows[:, WEIGHT], own_rows[:, OWN_E2E], own_rows[:, OWN_TTFT] = weights, queue.slo_e2e_s, queue.slo_ttft_s
        for k in range(rounds):
            rows[k, :batch] = history.rows[rng.integers(0, len(history), batch)]
            samples[k, :batch, SampleColumn.START_S] = rng.integers(0, ahead, batch) * settings.bucket_s
            samples[k, :batch, SampleColumn.WEIGHT] = self._rate * settings.lookahead_s / batch
            chosen = np.arange(waiting)
            if len(queue) > batch:
                chosen = rng.choice(len(queue), batch, replace=False)
            rows[k, batch:] = own_rows[chosen]
            samples[k, batch:, SampleColumn.WEIGHT] = len(queue) / max(waiting, 1)
            samples[k, :, SampleColumn.ROUND] = k
            waited_s[k, batch:] = now_s - queue.arrival_s[chosen]
        flat, past = samples.reshape(-1, 5), rows.reshape(-1, rows.shape[2])
        length = view.calibration.mean_length(past[:, PREDICTED], past[:, PROMPT])
        flat[:, SampleColumn.PROMPT_TOKENS], flat[:, SampleColumn.OUTPUT_TOKENS] = past[:, PROMPT], length
        own = thresholds(objective, past[:, OWN_E2E], past[:, OWN_TTFT])
        return flat, Terms(waited_s.reshape(-1), length, past[:, WEIGHT], *own)

    def _sample_value(self, ledger: Ledger, objective: Objective, terms: Terms, window_s: np.ndarray) -> np.ndarray:
        """(S, 4, 1 or G): one column when all devices are alike."""
        step_s = ledger.step_s
        if (step_s == step_s[0]).all() and not ledger.draining.any():
            step_s = step_s[:1]
        delay_s = (DELAY_BUCKETS * self._settings.bucket_s)[None, :, None]
        life_s = terms.output_tokens[:, None, None] * step_s
        value = start_value(objective, window_s[:, None, None], terms.column(2), delay_s, 0.0, life_s)
        if ledger.draining.any():
            value = np.where(ledger.draining, -np.inf, value)
        return value
