"""When a waiting request is too late to be worth serving: one rule for every policy with a central queue.

A request expires when the last of its deadlines that the objective gives weight to has passed: a start then earns
nothing by deadline. With no weight on deadlines nothing expires. Whether the rule is applied is a setting.

Notation
    symbol   meaning                                                      shape   unit     paper (Section 3.1)
    t1', t2' E2E and TTFT thresholds, the request's own if it has any     (J,)    s        same
    ell      calibrated mean output                                       (J,)    tokens   o-hat_j
    tau      seconds per decode iteration, of the fastest device                  s        1
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.reward import thresholds
from olp_ray.core.types import Objective, Reject, RejectReason


def expiry_s(view: View, objective: Objective) -> np.ndarray:
    """Time from which on each waiting request can meet no weighted deadline, (J,); inf: it has none."""
    queue = view.waiting
    if objective.tail_ttft <= 0 and objective.tail_e2e <= 0:
        return np.full(len(queue), np.inf)
    e2e_s, ttft_s = thresholds(objective, queue.slo_e2e_s, queue.slo_ttft_s)
    last = np.full(len(queue), -np.inf)
    if objective.tail_ttft > 0:
        last = queue.arrival_s + ttft_s
    if objective.tail_e2e > 0:
        length = view.calibration.mean_length(queue.predicted_output_tokens, queue.prompt_tokens)
        fastest_s = float(view.ledger.step_s.min()) if view.ledger.devices else 0.0
        last = np.maximum(last, queue.arrival_s + e2e_s - length * fastest_s)
    return last


def refuse_expired(view: View, index: int, objective: Objective) -> Reject:
    """Turn away the waiting request at this place in the queue; it may come back once the thresholds have passed."""
    queue = view.waiting
    e2e_s, ttft_s = thresholds(objective, queue.slo_e2e_s[index], queue.slo_ttft_s[index])
    return Reject(
        queue[index].request,
        RejectReason.DEADLINE_PASSED,
        limit=f"ttft_threshold_s={float(ttft_s):g}, e2e_threshold_s={float(e2e_s):g}",
        knob="online_lp.shed",
        retry_after_s=float(ttft_s),
    )
