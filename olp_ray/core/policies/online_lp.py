"""Online linear programming: start a request where its reward exceeds the shadow price of what it will occupy.

Rank by what is lost by waiting per unit of price, choose the cheapest device that can hold the request for its whole
life, let deadlines gate what prices refuse, and keep room for the best request that fits nowhere yet. Prices come
from `core.prices`, one update late (paper Sections 3.1-3.3; docs/policies.md lists every departure from it).

Notation: `core.policies.appraisal` for V, c, e, A; f is the share of the price that the gate charges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.admission import Admission, admit_in_order, no_admission
from olp_ray.core.fairness import TenantShares
from olp_ray.core.forecast import Forecast
from olp_ray.core.history import PREDICTED, PROMPT, ArrivalHistory
from olp_ray.core.kernels.records import KV_INTEGRAL, KV_PRICE, TIMED_KV_INTEGRAL, Wanted
from olp_ray.core.policies.appraisal import Appraisal, appraise, fresh_value, resource_shares, uncached_tokens
from olp_ray.core.policies.base import PolicyStep, View
from olp_ray.core.policies.central import check_version
from olp_ray.core.policies.outlook import NextDecision, Outlook, Worth, look_ahead
from olp_ray.core.policies.price_updates import PriceUpdates
from olp_ray.core.policies.rejection import RejectionRule, passed
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.core.reward import deadline_share
from olp_ray.core.types import Decision, Objective, RejectReason, Request

MIN_VOLUMES = 50  # arrivals before the largest are told from the rest


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """order are queue indices as they were looked at, open_to (G, J) bool where gate and guard would let each go if
    it were the first."""

    admission: Admission
    order: np.ndarray
    open_to: np.ndarray


class OnlineLP:
    name = "online_lp"
    holding = True

    def __init__(self, settings: PolicySettings) -> None:
        self._settings = settings.online_lp
        self._plan = (self._settings.remaining_quantile, self._settings.prefill_ahead_s)
        self._objective = settings.objective
        self._rejection = RejectionRule(settings, grace=True)
        self._history = ArrivalHistory(self._settings.history, self._settings.rate_window)
        self._prices = PriceUpdates(self._settings)
        self._shares = TenantShares(self._settings.reward_window_s)
        self._rotation = 0

    @property
    def prices(self) -> PriceUpdates:
        """Prices in force, for reports and metrics."""
        return self._prices

    def step(self, view: View, now_s: float, rng: np.random.Generator) -> PolicyStep:
        changed = False
        if view.arrivals:
            priority = np.array([float(request.priority) for request in view.arrivals])
            arrived_weights = self._weights(view.arrivals, priority, now_s)
            changed = self._history.add(view.arrivals, arrived_weights, view.tick_s)
        weights = self._queue_weights(view, now_s)
        work = self._prices.update(view, self._history, weights, self._objective, now_s, rng)
        wake_s = self._prices.next_update_s() if self._history.seen else float("inf")
        if not view.waiting:
            return PolicyStep((), work, wake_s, changed)
        decided = self._decide(view, weights, now_s)
        return PolicyStep(decided.decisions, work, min(wake_s, decided.next_wake_s), changed)

    def reconfigure(self, objective: Objective) -> None:
        self._objective = objective

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

    def appraise(self, view: View, now_s: float) -> Appraisal:
        """Worth and price of every waiting request on every device."""
        return self._appraise(view, self._queue_weights(view, now_s), now_s)

    def worth(self, view: View, now_s: float) -> Worth:
        """What the next decision would weigh; the price of a life is split by pricing it with one resource free."""
        found = self.appraise(view, now_s)
        kv_free = self._prices.tables.copy()
        kv_free[:, [KV_PRICE, KV_INTEGRAL, TIMED_KV_INTEGRAL]] = 0.0
        slot_price = kernels.pricing.costs_from_now(
            kv_free, self._settings.bucket_s, uncached_tokens(view), found.life_s, found.terms.output_tokens
        )
        level = np.where(np.isnan(found.key), np.nan, self._levels(found))
        return Worth(found.value.T, slot_price, found.cost - slot_price, found.lost, found.key, level)

    def outlook(self, view: View, now_s: float) -> Outlook:
        """The decision of `step` at the prices in force, on a copy of the plans."""
        forecast = Forecast(view.ledger, view.calibration, now_s, *self._plan)
        found = self.appraise(view, now_s)
        refused = self._rejection.look(view, forecast, self._objective, now_s)
        turned_away = refused.any_reason | self._priced_out(view, found, now_s)
        done = self._admit(view, forecast, found, turned_away, now_s)
        decision = NextDecision(
            done.order,
            done.open_to,
            view.waiting.prompt_tokens,
            found.length_tokens,
            done.admission.placed,
            done.admission.reserved,
        )
        return look_ahead(view, now_s, *self._plan, decision)

    # -- one tick -----------------------------------------------------------------------------------------------

    def _appraise(self, view: View, weights: np.ndarray, now_s: float) -> Appraisal:
        prices = self._prices
        return appraise(
            view,
            now_s,
            self._objective,
            self._settings,
            weights,
            prices.tables,
            prices.base_price,
            prices.scarcity,
        )

    def _queue_weights(self, view: View, now_s: float) -> np.ndarray:
        return self._weights((entry.request for entry in view.waiting), view.waiting.priority, now_s)

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

    def _decide(self, view: View, weights: np.ndarray, now_s: float) -> PolicyStep:
        forecast = Forecast(view.ledger, view.calibration, now_s, *self._plan)
        refused = self._rejection.look(view, forecast, self._objective, now_s)
        decisions: list[Decision] = [*self._rejection.reject_all(view, refused, self._objective)]
        turned_away = refused.any_reason
        bound_s = view.waiting.arrival_s + self._settings.max_wait_s
        at_bound = passed(bound_s, now_s)
        may_start = len(view.ledger.devices) > 0 and (at_bound > 0 or forecast.takes_more.any())
        if may_start and len(decisions) < len(view.waiting):
            found = self._appraise(view, weights, now_s)
            priced_out = self._priced_out(view, found, now_s) & ~turned_away
            decisions += self._rejection.reject_each(view, priced_out, RejectReason.PRICE, self._objective)
            done = self._admit(view, forecast, found, turned_away | priced_out, now_s).admission
            self._rotation = done.rotation
            decisions.extend(view.assign(i, g) for i, g in done.placed)
            if self._objective.tenant_fairness:
                self._count_service(view, found, done, now_s)
        if len(decisions) == len(view.waiting):
            return PolicyStep(tuple(decisions))
        next_bound_s = float(bound_s[at_bound]) if at_bound < len(bound_s) else float("inf")
        return PolicyStep(tuple(decisions), next_wake_s=min(forecast.next_room_s(now_s), refused.next_s, next_bound_s))

    def _priced_out(self, view: View, found: Appraisal, now_s: float) -> np.ndarray:
        """Requests at the starvation bound whose price exceeds what a fresh request like them is worth, (J,) bool.

        Such a request would not be admitted if it came now: capacity can not hold the bound for it (paper Section 5).
        """
        at_bound = passed(view.waiting.arrival_s + self._settings.max_wait_s, now_s)
        priced_out = np.zeros(len(view.waiting), dtype=bool)
        if self._rejection.rejects == "never" or not at_bound:
            return priced_out
        fresh = fresh_value(self._objective, self._settings, found)
        priced_out[:at_bound] = (found.cost > fresh)[:, :at_bound].all(axis=0)
        return priced_out

    def _count_service(self, view: View, found: Appraisal, done: Admission, now_s: float) -> None:
        for i, _ in done.placed:
            request = view.waiting[i].request
            self._shares.served(request.tenant, request.prompt_tokens + float(found.terms.output_tokens[i]), now_s)

    def _admit(self, view: View, forecast: Forecast, found: Appraisal, refused: np.ndarray, now_s: float) -> _Pass:
        """Qualified requests by rank with reservations; then, on devices below the guard, the rest."""
        settings = self._settings
        first = self._goes_first(view, found, now_s)
        order = self._rank(found, first)
        if refused.any():
            order = order[~refused[order]]
        factor = self._gate_factor(found)
        allowed = view.may_hold(view.waiting.prompt_tokens, found.length_tokens)
        idle = forecast.utilisation < settings.guard
        qualified, gated = kernels.worth.gate(found.value, found.cost, factor, allowed, first, bool(idle.any()))
        wanted = self._wanted(view, found, gated)
        before = no_admission(len(allowed), self._rotation)
        reservations = self._reservations(view, found)
        done = admit_in_order(forecast, wanted, order[qualified[order]], before, reservations=reservations)
        if idle.any() and not qualified[order].all():
            rest = self._by_margin_per_price(found, order[~qualified[order]])
            below = (forecast.utilisation < settings.guard)[:, None] & allowed
            forecast.limit_slots(np.ceil(settings.guard * view.ledger.slots))
            done = admit_in_order(forecast, wanted._replace(allowed=below), rest, done)
            order = np.concatenate([order[qualified[order]], rest])
            gated[:, rest] = (idle[:, None] & allowed)[:, rest]
        return _Pass(done, order, gated)

    def _reservations(self, view: View, found: Appraisal) -> int:
        """How many devices may be kept free; none where tokens make most of the reward, since waiting wastes them."""
        tokens = self._objective.throughput * found.terms.output_tokens.mean()
        if not self._settings.reservation or tokens > found.value.mean() / 2:
            return 0
        return max(1, round(len(view.ledger.devices) / 2))

    def _by_margin_per_price(self, found: Appraisal, rest: np.ndarray) -> np.ndarray:
        cost = found.cost.min(axis=0)[rest]
        ratio = (found.value.max(axis=0)[rest] - cost) / np.maximum(cost, np.finfo(float).tiny)
        return rest[np.lexsort((rest, -ratio))]

    def _wanted(self, view: View, found: Appraisal, allowed: np.ndarray) -> Wanted:
        ledger, objective = view.ledger, self._objective
        output, weight = found.terms.output_tokens, found.terms.weight
        return Wanted(
            prompt_tokens=found.prompt_tokens,
            length_tokens=found.length_tokens,
            allowed=allowed,
            may_reserve=np.ones(len(output), dtype=bool),
            cost=found.cost,
            value=found.value,
            life_s=found.life_s,
            load_price=self._settings.load_weight * self._prices.base_price / np.maximum(ledger.slots, 1.0),
            per_sequence_s=ledger.per_sequence_s,
            per_kv_token_s=ledger.per_kv_token_s,
            prefill_tokens_per_s=ledger.prefill.rate_tokens_per_s,
            mean_kv_tokens=found.prompt_tokens + output / 2,
            step_cost=objective.e2e * weight * output,
            wait_cost=(objective.e2e + objective.ttft) * weight,
        )

    def _rank(self, found: Appraisal, first: np.ndarray) -> np.ndarray:
        """Queue indices: starvation bound first (longest wait first), then levels of the key, then arrival."""
        level = self._levels(found)
        if not first.any():
            return np.argsort(-level, kind="stable")
        return np.lexsort((-level, -np.where(first, found.terms.waited_s, 0.0), ~first))

    def _levels(self, found: Appraisal) -> np.ndarray:
        """Requests whose keys are within the level ratio are equal, (J,); all of them while there are no prices."""
        if np.isnan(found.key).any():
            return np.zeros(len(found.key))
        with np.errstate(divide="ignore"):
            return np.asarray(np.floor(np.log(found.key) / max(np.log(self._settings.level_ratio), found.log_error)))

    def _goes_first(self, view: View, found: Appraisal, now_s: float) -> np.ndarray:
        """Requests at the starvation bound, except those of the largest volume in history, (J,) bool."""
        settings = self._settings
        bound_s = view.waiting.arrival_s + settings.max_wait_s  # the sum that the wake is asked for at
        late = bound_s <= now_s + settings.max_wait_length_factor * found.mean_life_s
        if late.any() and len(self._history) > MIN_VOLUMES and settings.max_wait_exempt_share > 0:
            late &= found.volume <= self._large_volume(view)
        return late

    def _large_volume(self, view: View) -> float:
        """Volume that only the exempt share of past arrivals exceeds."""
        rows = self._history.rows
        length = view.calibration.mean_length(rows[:, PREDICTED], rows[:, PROMPT])
        life_s = length * float(view.ledger.step_s.mean())
        volume = self._prices.scarcity @ resource_shares(view.ledger, rows[:, PROMPT], length, life_s)
        return float(np.quantile(volume, 1.0 - self._settings.max_wait_exempt_share))

    def _gate_factor(self, found: Appraisal) -> float:
        settings = self._settings
        mean_tokens = float(found.terms.output_tokens.mean())
        share = deadline_share(self._objective, settings.reward_window_s, settings.gate_horizon_s, mean_tokens)
        factor = settings.gate_scale * share
        return factor if factor > settings.gate_off else 0.0
