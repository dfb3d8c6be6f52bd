"""When a waiting request is turned away: rules that every policy with a central queue shares.

Two things end a wait without a start. A request is *hopeless* once it can earn nothing by deadline any more, which is
rejected where the setting says so. If only its length is to blame, its wait is not over: it may still start, last of
all, while a device is not busy. A request is *overdue* once it has waited for the starvation bound (plus what grace
its policy gives it). Whether a price turns it away before is the policy's business. Nothing is rejected while
`rejects` is "never".

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

SLOW = 0.5  # a device that iterates at less than this share of its idle speed is busy


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
    """The settings of rejection. With grace, a request gets an E2E threshold of the objective beyond X."""

    def __init__(self, settings: PolicySettings, grace: bool = False) -> None:
        self.rejects = settings.rejects
        self.max_wait_s = settings.online_lp.max_wait_s
        self._grace = grace
        self._guard = settings.online_lp.guard

    def look(self, view: View, forecast: Forecast, objective: Objective, now_s: float) -> Refused:
        """Apply the rules to the queue. Bounds count as passed when they are reached."""
        waiting = len(view.waiting)
        nothing = np.zeros(waiting, dtype=bool)
        if self.rejects == "never" or not waiting:
            return Refused(nothing, nothing, float("inf"))
        grace_s = objective.e2e_threshold_s if self._grace else 0.0
        overdue_s = view.waiting.arrival_s + (self.max_wait_s + grace_s)
        late = passed(overdue_s, now_s)
        overdue = np.arange(waiting) < late
        next_s = float(overdue_s[late]) if late < waiting else float("inf")
        if self.rejects == "max_wait":
            return Refused(nothing, overdue, next_s)
        ttft_s, e2e_s = last_starts_s(view, objective)
        last_s = np.minimum(ttft_s, e2e_s) if objective.joint_deadlines else _later_of_finite(ttft_s, e2e_s)
        hopeless = last_s <= now_s
        next_s = min(next_s, float(last_s[~hopeless].min(initial=np.inf)))
        too_long = hopeless & (ttft_s > now_s)
        if too_long.any() and not self._is_busy(view, forecast):
            hopeless &= ~too_long
            next_s = min(next_s, float(ttft_s[too_long].min()))
        return Refused(hopeless, overdue & ~hopeless, next_s)

    def reject_all(self, view: View, refused: Refused, objective: Objective) -> list[Reject]:
        """A rejection for each request that was refused."""
        return [
            *self.reject_each(view, refused.hopeless, RejectReason.DEADLINE_PASSED, objective),
            *self.reject_each(view, refused.overdue, RejectReason.MAX_WAIT, objective),
        ]

    def reject_each(self, view: View, mask: np.ndarray, reason: RejectReason, objective: Objective) -> list[Reject]:
        """Turn away the requests of the mask (J,) for one reason, in queue order."""
        return [self._reject(view, int(i), reason, objective) for i in np.flatnonzero(mask)]

    def _reject(self, view: View, index: int, reason: RejectReason, objective: Objective) -> Reject:
        """Turn away the waiting request at this place in the queue; it may come back an E2E threshold later."""
        queue = view.waiting
        e2e_s, ttft_s = thresholds(objective, queue.slo_e2e_s[index], queue.slo_ttft_s[index])
        limit = f"max_wait_s={self.max_wait_s:g}"
        if reason is RejectReason.DEADLINE_PASSED:
            limit = f"ttft_threshold_s={float(ttft_s):g}, e2e_threshold_s={float(e2e_s):g}"
        return Reject(queue[index].request, reason, limit=limit, knob="rejects", retry_after_s=float(e2e_s))

    def _is_busy(self, view: View, forecast: Forecast) -> bool:
        """Whether every device takes no more now, or is at the guard: by what it holds, or by how much slower than when
        idle it iterates."""
        held = forecast.utilisation >= self._guard
        slow = view.ledger.idle_step_s <= SLOW * view.ledger.step_s
        return bool((held | slow | ~forecast.takes_more).all())


def passed(times_s: np.ndarray, now_s: float) -> int:
    """How many of these times, in order, have been reached."""
    return int(np.searchsorted(times_s, now_s, side="right"))


def last_starts_s(view: View, objective: Objective) -> tuple[np.ndarray, np.ndarray]:
    """Until when each waiting request can meet its TTFT and its E2E threshold, (J,) each; inf: unweighted."""
    queue = view.waiting
    e2e_s, ttft_s = thresholds(objective, queue.slo_e2e_s, queue.slo_ttft_s)
    never = np.full(len(queue), np.inf)
    by_ttft = queue.arrival_s + ttft_s if objective.tail_ttft > 0 else never
    if objective.tail_e2e <= 0:
        return by_ttft, never
    length = view.calibration.mean_length(queue.predicted_output_tokens, queue.prompt_tokens)
    fastest_s = float(view.ledger.step_s.min()) if view.ledger.devices else 0.0
    return by_ttft, queue.arrival_s + e2e_s - length * fastest_s


def _later_of_finite(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(one), other, np.where(np.isinf(other), one, np.maximum(one, other)))
