"""What the price-free policies with a central queue share: an order, the common feasibility rule, one greedy pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from olp_ray.core.admission import Admission, admit_in_order, no_admission, plain_candidates
from olp_ray.core.forecast import Forecast
from olp_ray.core.policies.base import NOTHING, PolicyStep, View
from olp_ray.core.policies.outlook import NextDecision, Outlook, look_ahead, no_devices
from olp_ray.core.policies.rejection import RejectionRule
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.core.types import Objective
from olp_ray.errors import SnapshotError


class CentralQueue:
    """Starts requests in the order that `rank` gives; a subclass says which, and whether the head blocks the rest."""

    name = ""
    holding = True
    head_of_line = False
    reserves = False  # whether requests that fit nowhere yet have devices kept for them

    def __init__(self, settings: PolicySettings) -> None:
        self._plan = (settings.online_lp.remaining_quantile, settings.online_lp.prefill_ahead_s)
        self._rejection = RejectionRule(settings)
        self.objective = settings.objective
        self._rotation = 0

    def rank(self, view: View, now_s: float) -> np.ndarray:
        """Queue indices, first to start first, (J,)."""
        raise TypeError(f"{type(self).__name__} does not say in which order it starts requests")

    def step(self, view: View, now_s: float, rng: np.random.Generator) -> PolicyStep:
        if not view.waiting:
            return NOTHING
        forecast = Forecast(view.ledger, view.calibration, now_s, *self._plan)
        refused = self._rejection.look(view, forecast, self.objective, now_s)
        started = self._start(view, forecast, ~refused.any_reason, now_s)
        rejected = self._rejection.reject_all(view, refused.codes, self.objective)
        return PolicyStep((*rejected, *started.decisions), next_wake_s=min(started.next_wake_s, refused.next_s))

    def _start(self, view: View, forecast: Forecast, alive: np.ndarray, now_s: float) -> PolicyStep:
        """Release the alive requests that fit, by rank."""
        if not forecast.takes_more.any():
            return PolicyStep(next_wake_s=forecast.next_room_s(now_s))
        done = self._admit(view, forecast, self._order(view, alive, now_s))
        self._rotation = done.rotation
        wake_s = forecast.next_room_s(now_s) if len(done.placed) < alive.sum() else np.inf
        return PolicyStep(tuple(view.assign(i, g) for i, g in done.placed), next_wake_s=wake_s)

    def _order(self, view: View, alive: np.ndarray, now_s: float) -> np.ndarray:
        order = self.rank(view, now_s)
        return order[alive[order]]

    def _admit(self, view: View, forecast: Forecast, order: np.ndarray) -> Admission:
        queue = view.waiting
        length = view.calibration.median_length(queue.predicted_output_tokens, queue.prompt_tokens)
        allowed = view.may_hold(queue.prompt_tokens, length)
        if self.head_of_line:  # others do not wait with what fits no device that is there now
            order = order[view.has_a_place(queue.prompt_tokens)[order]]
        wanted = plain_candidates(queue.prompt_tokens, length, allowed, may_reserve=self.reserves)
        return admit_in_order(
            forecast,
            wanted,
            order,
            no_admission(len(view.ledger.devices), self._rotation),
            head_of_line=self.head_of_line,
            reservations=max(1, round(len(view.ledger.devices) / 2)),
        )

    def reconfigure(self, objective: Objective) -> None:
        self.objective = objective

    def snapshot(self) -> dict[str, Any]:
        return {"version": 1, "rotation": self._rotation}

    def restore(self, state: Mapping[str, Any]) -> None:
        check_version(state)
        self._rotation = int(state["rotation"])

    def outlook(self, view: View, now_s: float) -> Outlook:
        """The decision of `step`, on a copy of the plans."""
        forecast = Forecast(view.ledger, view.calibration, now_s, *self._plan)
        refused = self._rejection.look(view, forecast, self.objective, now_s)
        if not view.ledger.devices:
            return no_devices(refused.any_reason)
        order = self._order(view, ~refused.any_reason, now_s)
        done = self._admit(view, forecast, order)
        queue = view.waiting
        length = view.calibration.median_length(queue.predicted_output_tokens, queue.prompt_tokens)
        allowed = view.may_hold(queue.prompt_tokens, length)
        decision = NextDecision(order, allowed, queue.prompt_tokens, length, done.placed, done.reserved)
        return look_ahead(view, now_s, *self._plan, decision)

    def worth(self, view: View, now_s: float) -> None:
        """Nothing is weighed: the order is all there is."""


def check_version(state: Mapping[str, Any]) -> None:
    """Raise `SnapshotError` unless the state is of version 1."""
    if state.get("version") != 1:
        raise SnapshotError(f"policy snapshot of version {state.get('version')}; expected 1")
