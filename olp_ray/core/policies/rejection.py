"""When a waiting request is turned away: rules that every policy with a central queue shares.

Two things end a wait without a start. A request is *hopeless* once it can earn nothing by deadline any more, which is
rejected where the setting says so. If only its length is to blame, its wait is not over: it may still start, last of
all, while a device is not busy. A request is *overdue* once it has waited for the starvation bound (plus what grace
its policy gives it); one that a lost device held ran rather than waited, so one decision offers it to the others
first. Whether a price turns it away before is the policy's business. Nothing is rejected while
`rejects` is "never".

Notation
    symbol   meaning                                                      shape   unit     paper (Section 3.1)
    t1', t2' E2E and TTFT thresholds, the request's own if it has any     (J,)    s        same
    ell      calibrated mean output                                       (J,)    tokens   o-hat_j
    tau      seconds per decode iteration, of the fastest device                  s        1
    X        starvation bound                                                     s
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.forecast import Forecast
from olp_ray.core.kernels.records import (
    AT_BOUND,
    AT_DEADLINE,
    HOPELESS,
    KEPT,
    NEVER,
    OVERDUE,
    PRICED_OUT,
    Limits,
)
from olp_ray.core.policies.base import View
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.core.reward import thresholds, weights_of
from olp_ray.core.types import Objective, Reject, RejectReason

_REJECTS = {"never": NEVER, "max_wait": AT_BOUND, "deadline": AT_DEADLINE}
_REASONS = {
    HOPELESS: RejectReason.DEADLINE_PASSED,
    OVERDUE: RejectReason.MAX_WAIT,
    PRICED_OUT: RejectReason.PRICE,
}


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """Which waiting requests are turned away now, and when the next may be; a reason each, the first that holds."""

    codes: np.ndarray  # int64 (J,): KEPT, HOPELESS or OVERDUE
    next_s: float  # inf: never, unless something happens

    @property
    def any_reason(self) -> np.ndarray:
        """(J,) bool."""
        return self.codes != KEPT


class RejectionRule:
    """The settings of rejection. With grace, a request gets an E2E threshold of the objective beyond X."""

    def __init__(self, settings: PolicySettings, grace: bool = False) -> None:
        self.rejects = settings.rejects
        self.max_wait_s = settings.online_lp.max_wait_s
        self._grace = grace
        self._guard = settings.online_lp.guard

    def limits(self, objective: Objective) -> Limits:
        """The rule as kernels take it."""
        grace_s = objective.e2e_threshold_s if self._grace else 0.0
        return Limits(
            _REJECTS[self.rejects],
            float(self.max_wait_s + grace_s),
            float(self._guard),
            float(objective.e2e_threshold_s),
            float(objective.ttft_threshold_s),
        )

    def look(self, view: View, forecast: Forecast, objective: Objective, now_s: float) -> Refused:
        """Apply the rule to the queue. Bounds count as passed when they are reached."""
        queue = view.waiting
        return Refused(
            *kernels.rejection.refuse(
                self.limits(objective),
                weights_of(objective),
                forecast.begun,
                *(queue.columns, len(queue), view.calibration.ratios),
            )
        )

    def reject_all(self, view: View, codes: np.ndarray, objective: Objective) -> Iterator[Reject]:
        """A rejection for each request whose code says so: by reason, then in queue order."""
        if not np.count_nonzero(codes != KEPT):
            return  # at most looks
        for code, reason in _REASONS.items():
            for index in np.flatnonzero(codes == code).tolist():
                yield self._reject(view, index, reason, objective)

    def _reject(self, view: View, index: int, reason: RejectReason, objective: Objective) -> Reject:
        """Turn away the waiting request at this place in the queue; it may come back an E2E threshold later."""
        queue = view.waiting
        e2e_s, ttft_s = thresholds(objective, queue.slo_e2e_s[index], queue.slo_ttft_s[index])
        limit = f"max_wait_s={self.max_wait_s:g}"
        if reason is RejectReason.DEADLINE_PASSED:
            limit = f"ttft_threshold_s={float(ttft_s):g}, e2e_threshold_s={float(e2e_s):g}"
        return Reject(queue[index].request, reason, limit=limit, knob="rejects", retry_after_s=float(e2e_s))
