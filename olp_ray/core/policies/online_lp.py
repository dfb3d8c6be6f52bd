"""Online linear programming: start a request where its reward exceeds the shadow price of what it will occupy.

Rank by what is lost by waiting per unit of price, choose the cheapest device that can hold the request for its whole
life, let deadlines gate what prices refuse, and keep room for the best request that fits nowhere yet. Prices come
from `core.prices`, one update late (paper Sections 3.1-3.3; docs/policies.md lists every departure from it).

The decision itself is `core.kernels.decision`; here are its inputs, its state, and what comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.fairness import TenantShares
from olp_ray.core.history import ArrivalHistory
from olp_ray.core.kernels.records import KEPT, KV_INTEGRAL, KV_PRICE, TIMED_KV_INTEGRAL, Candidates, Market
from olp_ray.core.policies.appraisal import rules_of, uncached_tokens
from olp_ray.core.policies.base import PolicyStep, View
from olp_ray.core.policies.central import check_version
from olp_ray.core.policies.outlook import NextDecision, Outlook, Worth, look_ahead, no_devices
from olp_ray.core.policies.price_updates import PriceUpdates
from olp_ray.core.policies.rejection import RejectionRule
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.core.types import Decision, Objective, Request


class Decided(NamedTuple):
    """What `kernels.decision.decide` found; from order on empty where nothing was appraised."""

    placed: np.ndarray  # int64 (n, 2) queue and device indices, by rank
    refused: np.ndarray  # int64 (J,): KEPT, HOPELESS, OVERDUE or PRICED_OUT
    turned_away: int  # how many are not KEPT
    next_wake_s: float
    order: np.ndarray  # queue indices as they were looked at
    open_to: np.ndarray  # (G, J) bool where gate and guard would let each go if it were the first
    output_tokens: np.ndarray  # (J,) calibrated mean
    length_tokens: np.ndarray  # (J,) calibrated median
    reserved_by: np.ndarray  # (G,) queue index, -1: none
    reserved_steps: np.ndarray  # (G,) steps until the reservation begins, inf: none


class OnlineLP:
    name = "online_lp"
    holding = True

    def __init__(self, settings: PolicySettings) -> None:
        settings.online_lp.check()
        self._settings = settings.online_lp
        self._rejection = RejectionRule(settings, grace=True)
        self._history = ArrivalHistory(self._settings.history, self._settings.rate_window)
        self._prices = PriceUpdates(self._settings)
        self._shares = TenantShares(self._settings.reward_window_s)
        self._rotation = 0
        self._all_one = np.ones(64)
        self.reconfigure(settings.objective)

    @property
    def prices(self) -> PriceUpdates:
        """Prices in force, for reports and metrics."""
        return self._prices

    def step(self, view: View, now_s: float, rng: np.random.Generator) -> PolicyStep:
        changed = False
        if self._objective.tenant_fairness:
            self._shares.forget(now_s)
        if view.arrivals:
            priority = np.array([float(request.priority) for request in view.arrivals])
            arrived_weights = self._weights(view.arrivals, priority, now_s)
            changed = self._history.add(view.arrivals, arrived_weights, view.tick_s, now_s)
        weights = self._queue_weights(view, now_s)
        work = self._prices.update(view, self._history, weights, self._objective, now_s, rng)
        wake_s = self._prices.next_update_s() if self._history.seen else float("inf")
        if not view.waiting:
            return PolicyStep((), work, wake_s, changed)
        decided = self._decide(view, weights, now_s)
        decisions = self._carry_out(view, decided, now_s)
        return PolicyStep(decisions, work, min(wake_s, decided.next_wake_s), changed)

    def reconfigure(self, objective: Objective) -> None:
        self._objective = objective
        self._rules = rules_of(objective, self._settings, self._rejection)
        weights, limits, *rest = self._rules
        self._rule_numbers = np.array([*weights, *limits, *rest], dtype=np.float64)

    def snapshot(self) -> dict[str, Any]:
        return {
            "version": 1,
            "rotation": self._rotation,
            "history": self._history.snapshot(),
            "prices": self._prices.snapshot(),
            "shares": self._shares.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        check_version(state)
        self._history.restore(state["history"])
        self._prices.restore(state["prices"])
        self._shares.restore(state["shares"])
        self._rotation = int(state["rotation"])

    def appraise(self, view: View, now_s: float) -> Candidates:
        """Worth and price of every waiting request on every device."""
        rules, queue, known = self._rules, view.waiting, view.calibration.ratios
        plans = kernels.planning.begin(view.ledger.fleet, float(now_s), rules.prefill_ahead_s, 0)
        refused, _ = kernels.rejection.refuse(rules.limits, rules.weights, plans, queue.columns, len(queue), known)
        weights, uncached = self._queue_weights(view, now_s), uncached_tokens(view)
        return kernels.appraisal.appraise(rules, self._market, plans, queue.columns, weights, uncached, known, refused)

    def worth(self, view: View, now_s: float) -> Worth:
        """What the next decision would weigh; the price of a life is split by pricing it with a resource free."""
        requests, starts = self.appraise(view, now_s)
        key, uncached = requests["key"].copy(), uncached_tokens(view)
        kv_free = self._prices.tables.copy()
        kv_free[:, [KV_PRICE, KV_INTEGRAL, TIMED_KV_INTEGRAL]] = 0.0
        lives = starts["life_s"].copy(), requests["output_tokens"].copy()
        slot_price = kernels.pricing.costs_from_now(kv_free, self._settings.bucket_s, uncached, *lives, 0.0)
        prefill_price = np.broadcast_to(self._prices.prefill_price * uncached, slot_price.shape)
        kv_price = starts["cost"] - slot_price - prefill_price
        known = kernels.decision.levels(key, self._settings.level_ratio, view.calibration.log_error)
        level = np.where(np.isnan(key), np.nan, known)
        return Worth(starts["value"].T, slot_price, kv_price, prefill_price, requests["lost"], key, level)

    def outlook(self, view: View, now_s: float) -> Outlook:
        """The decision of `step` at the prices in force."""
        decided = self._decide(view, self._queue_weights(view, now_s), now_s, look=True)
        if not view.ledger.devices:
            return no_devices(decided.refused != KEPT)
        held = np.flatnonzero(decided.reserved_by >= 0).tolist()
        decision = NextDecision(
            decided.order,
            decided.open_to,
            view.waiting.prompt_tokens,
            decided.length_tokens,
            [(j, g) for j, g in decided.placed.tolist()],
            {g: (int(decided.reserved_by[g]), float(decided.reserved_steps[g])) for g in held},
        )
        plan = self._settings.remaining_quantile, self._settings.prefill_ahead_s
        return look_ahead(view, now_s, *plan, decision)

    # -- one tick -----------------------------------------------------------------------------------------------

    @property
    def _market(self) -> Market:
        prices = self._prices
        return Market(prices.tables, prices.base_price, prices.scarcity, prices.prefill_price)

    def _queue_weights(self, view: View, now_s: float) -> np.ndarray:
        queue, objective = view.waiting, self._objective
        if not (queue.has_priorities or objective.class_weights or objective.tenant_fairness):
            return self._ones(len(queue))
        return self._weights((entry.request for entry in queue), queue.priority, now_s)

    def _ones(self, count: int) -> np.ndarray:
        if count > len(self._all_one):
            self._all_one = np.ones(2 * count)
        return self._all_one[:count]

    def _weights(self, requests: Iterable[Request], priority: np.ndarray, now_s: float) -> np.ndarray:
        """Multiplier of each request's reward by class, priority and its tenant's share, (J,)."""
        objective = self._objective
        weights = np.ones(len(priority))
        if objective.priority_factor != 1.0 and priority.any():
            weights *= objective.priority_factor**priority
        if not (objective.class_weights or objective.tenant_fairness):
            return weights
        names = [(request.request_class, request.tenant) for request in requests]
        if objective.class_weights:
            by_class = dict(objective.class_weights)
            weights *= np.array([by_class.get(name, 1.0) for name, _ in names])
        if objective.tenant_fairness:
            weights *= self._shares.weights([tenant for _, tenant in names], objective.tenant_fairness, now_s)
        return weights

    def _decide(self, view: View, weights: np.ndarray, now_s: float, look: bool = False) -> Decided:
        """Who starts where and who is turned away; with look, all that `Decided` says although nothing may start."""
        return Decided(
            *kernels.decision.decide(
                self._rule_numbers,
                tuple(self._market),
                tuple(view.ledger.fleet),
                tuple(view.calibration.ratios),
                view.waiting.columns,
                weights,
                uncached_tokens(view),
                view.may_run(),
                self._history.rows,
                self._rotation,
                float(now_s),
                look,
            )
        )

    def _carry_out(self, view: View, decided: Decided, now_s: float) -> tuple[Decision, ...]:
        decisions: list[Decision] = []
        if decided.turned_away:
            decisions += self._rejection.reject_all(view, decided.refused, self._objective)
        placed = decided.placed.tolist()
        self._rotation += len(placed)
        decisions += [view.assign(i, g) for i, g in placed]
        if self._objective.tenant_fairness:
            for i, _ in placed:
                request = view.waiting[i].request
                tokens = request.prompt_tokens + float(decided.output_tokens[i])
                self._shares.served(request.tenant, tokens, now_s)
        return tuple(decisions)
