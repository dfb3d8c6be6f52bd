"""When a waiting request is turned away: rules that every policy with a central queue shares.

Two things end a wait without a start. A request is *hopeless* once it can earn nothing by deadline any more: it is
rejected where the setting says so and every device is busy; while one is not, it may still start, last of all. A
request is *overdue* once it has waited for the starvation bound (plus what grace its policy gives it). Whether a price
turns it away before is the policy's business. Nothing is rejected while `rejects` is "never".

Notation
    symbol   meaning                                                      shape   unit     paper (Section 3.1)
    t1', t2' E2E and TTFT thresholds, the request's own if it has any     (J,)    s        same
    ell      calibrated mean output                                       (J,)    tokens   o-hat_j
    tau      seconds per decode iteration, of the fastest device                  s        1
    X        starvation bound                                                     s
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from olp_ray.core.forecast import Forecast
from olp_ray.core.policies.base import View
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.core.reward import thresholds
from olp_ray.core.types import Objective, Reject, RejectReason


@dataclass(frozen=True, slots=True)
class Refused:
    """Which waiting requests are turned away now, and when the next may be; a reason each, the first that holds."""

    hopeless: np.ndarray  # (J,) bool
    overdue: np.ndarray  # (J,) bool, not hopeless
    next_s: float  # inf: never, unless something happens

    @property
    def any_reason(self) -> np.ndarray:
        """(J,) bool."""
        return self.hopeless | self.overdue


class RejectionRule:
    """The settings of rejection. grace_s is what a policy gives a request beyond X."""

    def __init__(self, settings: PolicySettings, grace_s: float = 0.0) -> None:
        self.rejects = settings.rejects
        self.max_wait_s = settings.online_lp.max_wait_s
        self._grace_s = grace_s
        self._guard = settings.online_lp.guard

    def look(self, view: View, forecast: Forecast, objective: Objective, now_s: float) -> Refused:
        """Apply the rules to the queue. Bounds count as passed when they are reached."""
        waiting = len(view.waiting)
        nothing = np.zeros(waiting, dtype=bool)
        if self.rejects == "never" or not waiting:
            return Refused(nothing, nothing, float("inf"))
        overdue_s = view.waiting.arrival_s + (self.max_wait_s + self._grace_s)
        overdue = overdue_s <= now_s
        next_s = float(overdue_s[~overdue].min(initial=np.inf))
        if self.rejects == "max_wait":
            return Refused(nothing, overdue, next_s)
        last_s = hopeless_s(view, objective)
        past = last_s <= now_s
        next_s = min(next_s, float(last_s[~past].min(initial=np.inf)))
        hopeless = past if past.any() and self._is_busy(view, forecast) else nothing
        return Refused(hopeless, overdue & ~hopeless, next_s)

    def reject_all(self, view: View, refused: Refused, objective: Objective) -> list[Reject]:
        """A rejection for each request that was refused, in queue order."""
        reason = np.where(refused.hopeless, RejectReason.DEADLINE_PASSED, RejectReason.MAX_WAIT)
        return [self.reject(view, i, RejectReason(reason[i]), objective) for i in _indices(refused.any_reason)]

    def reject(self, view: View, index: int, reason: RejectReason, objective: Objective) -> Reject:
        """Turn away the waiting request at this place in the queue; it may come back an E2E threshold later."""
        queue = view.waiting
        e2e_s, ttft_s = thresholds(objective, queue.slo_e2e_s[index], queue.slo_ttft_s[index])
        limit = f"max_wait_s={self.max_wait_s:g}"
        if reason is RejectReason.DEADLINE_PASSED:
            limit = f"ttft_threshold_s={float(ttft_s):g}, e2e_threshold_s={float(e2e_s):g}"
        return Reject(queue[index].request, reason, limit=limit, knob="rejects", retry_after_s=float(e2e_s))

    def _is_busy(self, view: View, forecast: Forecast) -> bool:
        """Whether every device is at the guard, by what it holds or by how much slower than when idle it iterates."""
        held = forecast.utilisation >= self._guard
        slow = view.ledger.idle_step_s <= self._guard * view.ledger.step_s
        return bool((held | slow | view.ledger.draining).all())


def hopeless_s(view: View, objective: Objective) -> np.ndarray:
    """Time from which on each waiting request can earn nothing by deadline, (J,); inf: it has no weighted deadline.

    That is when its last weighted deadline can not be met any more; with joint deadlines, when the first can not.
    """
    queue = view.waiting
    e2e_s, ttft_s = thresholds(objective, queue.slo_e2e_s, queue.slo_ttft_s)
    by_deadline = []
    if objective.tail_ttft > 0:
        by_deadline.append(queue.arrival_s + ttft_s)
    if objective.tail_e2e > 0:
        length = view.calibration.mean_length(queue.predicted_output_tokens, queue.prompt_tokens)
        fastest_s = float(view.ledger.step_s.min()) if view.ledger.devices else 0.0
        by_deadline.append(queue.arrival_s + e2e_s - length * fastest_s)
    if not by_deadline:
        return np.full(len(queue), np.inf)
    return np.asarray(np.min(by_deadline, axis=0) if objective.joint_deadlines else np.max(by_deadline, axis=0))


def _indices(mask: np.ndarray) -> list[int]:
    return [int(i) for i in np.flatnonzero(mask)]
