"""Online linear programming: start a request where its reward exceeds the shadow price of what it will occupy.

Rank by what is lost by waiting per unit of price, choose the cheapest device that can hold the request for its whole
life, let deadlines gate what prices refuse, and keep room for the best request that fits nowhere yet. Prices come
from `core.prices`, one update late (paper Sections 3.1-3.3; docs/policies.md lists every departure from it).

Notation
    symbol     meaning                                                        shape     unit            paper
    s, ell     prompt tokens and calibrated mean output tokens                (J,)      tokens          s_j, o-hat_j
    n          calibrated median output, for feasibility                      (J,)      tokens
    w, L       time waited, time that a life on a device lasts                (J,), (J, G)   s
    V          reward of starting now                                         (J, G)    reward          r_{j,g,k}
    c          price of a life that starts now                                (G, J)    reward          a'p
    e          what that life would cost at the uncongested price             (J,)      reward
    A          what is lost by not starting now                               (J, G)    reward
    f          share of the price that the gate charges                       scalar
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from olp_ray.core.admission import LOAD_WEIGHT, Admission, Candidates, admit_in_order
from olp_ray.core.forecast import Forecast
from olp_ray.core.history import ArrivalHistory
from olp_ray.core.policies.base import PolicyStep, View
from olp_ray.core.policies.central import check_version
from olp_ray.core.policies.price_updates import PriceUpdates
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.core.prices import life_cost
from olp_ray.core.reward import deadline_share, start_value, urgency
from olp_ray.core.types import Decision, Objective, Reject, RejectReason


@dataclass(frozen=True, slots=True)
class Appraisal:
    """What every waiting request is worth and costs now; requests are in queue order."""

    waited_s: np.ndarray  # (J,)
    output_tokens: np.ndarray  # (J,) ell
    length_tokens: np.ndarray  # (J,) n
    life_s: np.ndarray  # (J, G) L
    value: np.ndarray  # (J, G) V
    cost: np.ndarray  # (G, J) c
    regular_cost: np.ndarray  # (J,) e
    key: np.ndarray  # (J,) A / (min c + eps0 e); nan while there are no prices


class OnlineLP:
    name = "online_lp"
    holding = True

    def __init__(self, settings: PolicySettings) -> None:
        self._settings = settings.online_lp
        self._objective = settings.objective
        self._history = ArrivalHistory(self._settings.history, self._settings.rate_window)
        self._prices = PriceUpdates(self._settings)
        self._rotation = 0

    @property
    def prices(self) -> PriceUpdates:
        """Prices in force, for reports and metrics."""
        return self._prices

    def step(self, view: View, now_s: float, rng: np.random.Generator) -> PolicyStep:
        self._history.add(view.arrivals)
        work = self._prices.update(view, self._history, view.calibration, self._objective, now_s, rng)
        decisions = self._decide(view, now_s) if view.waiting else ()
        wake_s = self._prices.next_update_s() if self._history.seen else float("inf")
        return PolicyStep(decisions, work, wake_s)

    def reconfigure(self, objective: Objective) -> None:
        self._objective = objective

    def snapshot(self) -> dict[str, Any]:
        return {
            "version": 1,
            "rotation": self._rotation,
            "history": self._history.snapshot(),
            "prices": self._prices.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        check_version(state)
        self._history.restore(state["history"])
        self._prices.restore(state["prices"])
        self._rotation = int(state["rotation"])

    def appraise(self, view: View, now_s: float) -> Appraisal:
        """Worth and price of every waiting request on every device."""
        settings, ledger, queue = self._settings, view.ledger, view.waiting
        prompt, predicted = queue.prompt_tokens, queue.predicted_output_tokens
        waited_s = np.maximum(now_s - queue.arrival_s, 0.0)
        output = view.calibration.mean_length(predicted, prompt)
        life_s = output[:, None] * ledger.step_s
        first_s = np.zeros(1)
        timing = (waited_s[:, None], first_s, life_s, output[:, None])
        value = start_value(self._objective, settings.reward_window_s, *timing)
        step_s = ledger.step_s[:, None]
        cost = life_cost(self._prices.tables, settings.bucket_s, np.zeros((1, 1)), prompt, life_s.T, step_s)
        base = self._prices.base_price
        mean_life_s = life_s.mean(axis=1)
        volume = mean_life_s / ledger.slots.mean() + (prompt + output / 2) * mean_life_s / ledger.kv_tokens.mean()
        regular = base * volume
        tick_s = float(ledger.step_s.mean())
        lost = urgency(self._objective, settings.reward_window_s, settings.urgency_s, tick_s, *timing).max(axis=1)
        with np.errstate(divide="ignore"):
            key = lost / (cost.min(axis=0) + settings.regular_price * regular)
        if base <= 0:
            key = np.full(len(lost), np.nan)
        length = view.calibration.median_length(predicted)
        return Appraisal(waited_s, output, length, life_s, value, cost, regular, key)

    def explain(self, view: View, now_s: float) -> tuple[Mapping[str, Any], ...]:
        """Per waiting request: reward, price and margin by device, option value, where it would fit."""
        if not view.waiting or not view.ledger.devices:
            return ()
        found = self.appraise(view, now_s)
        forecast = Forecast(view.ledger, view.calibration, now_s, self._settings.remaining_quantile)
        prompt = view.waiting.prompt_tokens
        ids = [device.id for device in view.ledger.devices]
        fits = np.array([forecast.fits(g, prompt, found.length_tokens) for g in range(len(ids))])
        margin = found.value.T - found.cost
        return tuple(
            {
                "request_id": entry.request.id,
                "waited_s": float(found.waited_s[j]),
                "key": float(found.key[j]),
                "option_value": float(max(margin[:, j].max(), 0.0)),
                "reward": dict(zip(ids, np.broadcast_to(found.value[j], len(ids)).tolist(), strict=True)),
                "price": dict(zip(ids, found.cost[:, j].tolist(), strict=True)),
                "fits_on": tuple(ids[g] for g in np.flatnonzero(fits[:, j])),
            }
            for j, entry in enumerate(view.waiting)
        )

    # -- one tick -----------------------------------------------------------------------------------------------

    def _decide(self, view: View, now_s: float) -> tuple[Decision, ...]:
        if not view.ledger.devices:
            return ()
        settings = self._settings
        shed = self._shed(view, now_s) if settings.shed else np.zeros(len(view.waiting), dtype=bool)
        decisions: list[Decision] = [self._refuse(view, int(i)) for i in np.flatnonzero(shed)]
        forecast = Forecast(view.ledger, view.calibration, now_s, settings.remaining_quantile)
        if (forecast.free_slots >= 1).any() and not shed.all():
            found = self.appraise(view, now_s)
            done = self._admit(view, forecast, found, shed)
            self._rotation = done.rotation
            decisions.extend(view.assign(i, g) for i, g in done.placed)
        return tuple(decisions)

    def _admit(self, view: View, forecast: Forecast, found: Appraisal, shed: np.ndarray) -> Admission:
        """Qualified requests by rank with reservations; then, on devices below the guard, the rest."""
        settings = self._settings
        first = self._goes_first(found)
        order = self._rank(found, first)
        order = order[~shed[order]]
        factor = self._gate_factor(found)
        allowed = view.may_run()
        idle = forecast.utilisation < settings.guard
        margin = found.value.T - factor * found.cost
        qualified = first | (margin.max(axis=0) > 0)
        gated = allowed & ((margin > 0) | first)
        if idle.any():
            gated = allowed & qualified
        reservations = max(1, round(len(view.ledger.devices) / 2)) if settings.reservation else 0
        if self._objective.throughput * found.output_tokens.mean() > found.value.mean() / 2:
            reservations = 0
        chosen = order[qualified[order]]
        candidates = self._candidates(view, found, chosen, gated, reserve=True)
        done = admit_in_order(forecast, candidates, self._rotation, reservations=reservations)
        if idle.any() and not qualified[order].all():
            self._fill_idle(view, forecast, found, order[~qualified[order]], allowed, done)
        return done

    def _fill_idle(
        self,
        view: View,
        forecast: Forecast,
        found: Appraisal,
        rest: np.ndarray,
        allowed: np.ndarray,
        done: Admission,
    ) -> None:
        """Let requests that the gate refuses use devices below the guard, best margin per price first."""
        guard = self._settings.guard
        forecast.slots = np.minimum(forecast.slots, np.ceil(guard * view.ledger.slots))
        below = (forecast.utilisation < guard)[:, None] & allowed
        cost = found.cost.min(axis=0)[rest]
        ratio = (found.value.max(axis=1)[rest] - cost) / np.maximum(cost, np.finfo(float).tiny)
        rest = rest[np.lexsort((rest, -ratio))]
        candidates = self._candidates(view, found, rest, below, reserve=False)
        more = admit_in_order(forecast, candidates, done.rotation)
        done.placed.extend(more.placed)
        done.rotation = more.rotation

    def _candidates(
        self, view: View, found: Appraisal, order: np.ndarray, allowed: np.ndarray, reserve: bool
    ) -> Candidates:
        load = LOAD_WEIGHT * self._prices.base_price / np.maximum(view.ledger.slots, 1.0)
        return Candidates(
            order,
            view.waiting.prompt_tokens[order],
            found.length_tokens[order],
            allowed[:, order],
            found.cost[:, order],
            load[:, None] * found.life_s.T[:, order],
            np.full(len(order), reserve),
        )

    def _rank(self, found: Appraisal, first: np.ndarray) -> np.ndarray:
        """Queue indices: starvation bound first (longest wait first), then levels of the key, then arrival."""
        index = np.arange(len(found.key))
        if np.isnan(found.key).any():
            return index
        with np.errstate(divide="ignore"):
            level = np.floor(np.log(found.key) / np.log(self._settings.level_ratio))
        overdue = np.where(first, found.waited_s, 0.0)
        return np.lexsort((index, -level, -overdue, ~first))

    def _goes_first(self, found: Appraisal) -> np.ndarray:
        """Requests at the starvation bound, except the largest by volume, (J,) bool."""
        settings = self._settings
        life_s = found.life_s.mean(axis=1)
        return found.waited_s + settings.max_wait_length_factor * life_s >= settings.max_wait_s

    def _gate_factor(self, found: Appraisal) -> float:
        settings = self._settings
        share = deadline_share(
            self._objective, settings.reward_window_s, settings.gate_horizon_s, float(found.output_tokens.mean())
        )
        factor = settings.gate_scale * share
        return factor if factor > settings.gate_off else 0.0

    # -- shedding -----------------------------------------------------------------------------------------------

    def _shed(self, view: View, now_s: float) -> np.ndarray:
        """Requests whose last deadline with a weight has passed, (J,) bool."""
        objective, queue = self._objective, view.waiting
        waited_s = now_s - queue.arrival_s
        length = view.calibration.mean_length(queue.predicted_output_tokens, queue.prompt_tokens)
        fastest_s = length * float(view.ledger.step_s.min())
        alive = np.zeros(len(queue), dtype=bool)
        if objective.tail_ttft > 0:
            alive |= waited_s < objective.ttft_threshold_s
        if objective.tail_e2e > 0:
            alive |= waited_s + fastest_s < objective.e2e_threshold_s
        return ~alive

    def _refuse(self, view: View, index: int) -> Reject:
        objective = self._objective
        return Reject(
            view.waiting[index].request,
            RejectReason.DEADLINE_PASSED,
            limit=f"ttft_threshold_s={objective.ttft_threshold_s:g}, e2e_threshold_s={objective.e2e_threshold_s:g}",
            knob="online_lp.shed",
            retry_after_s=objective.ttft_threshold_s,
        )
