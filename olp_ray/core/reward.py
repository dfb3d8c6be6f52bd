"""What starting a request now is worth under the operator's six weights.

Notation
    symbol          meaning                                              unit     paper (Section 3.1)
    alpha..zeta2    weights of the objective                                      same
    w               time waited since arrival                            s        k - t_j
    F               time from the start to the first token               s        0
    L               time from the start to the last token                s        o-hat_j
    ell             output tokens                                        tokens   o-hat_j
    W               reward window: rolling, or what a fixed T leaves     s        T - t_j
    t1', t2'        E2E and TTFT thresholds, the request's own if any    s        same
    m               multiplier of the request (class, priority, tenant)
    tau             how long "not waiting" is looked ahead               s

Arrays broadcast: requests lead, devices follow last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from olp_ray.core.types import Objective


@dataclass(frozen=True, slots=True)
class Terms:
    """What the reward of a request is made of, arrays of shape (J,)."""

    waited_s: np.ndarray
    output_tokens: np.ndarray
    weight: np.ndarray
    e2e_threshold_s: np.ndarray
    ttft_threshold_s: np.ndarray

    def column(self, axes: int) -> Terms:
        """The same with so many axes of length 1 appended, to broadcast against (J, ..., G)."""
        at = (slice(None), *[None] * axes)
        return Terms(
            self.waited_s[at],
            self.output_tokens[at],
            self.weight[at],
            self.e2e_threshold_s[at],
            self.ttft_threshold_s[at],
        )


def thresholds(objective: Objective, own_e2e_s: np.ndarray, own_ttft_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(t1', t2') per request: its own where it has one (not nan), else the objective's."""
    return (
        np.where(np.isnan(own_e2e_s), objective.e2e_threshold_s, own_e2e_s),
        np.where(np.isnan(own_ttft_s), objective.ttft_threshold_s, own_ttft_s),
    )


def start_value(
    objective: Objective,
    window_s: np.ndarray | float,
    terms: Terms,
    delay_s: np.ndarray | float,
    first_token_s: np.ndarray | float,
    life_s: np.ndarray,
) -> np.ndarray:
    """V: reward of a start after `delay_s` more (paper Section 3.1, a rolling window in place of the end T)."""
    ttft_s = terms.waited_s + delay_s + first_token_s
    e2e_s = terms.waited_s + delay_s + life_s
    return terms.weight * (
        objective.throughput * terms.output_tokens
        + objective.e2e * np.maximum(window_s - e2e_s, 0.0)
        + objective.ttft * np.maximum(window_s - ttft_s, 0.0)
        + objective.qps
        + _deadline_value(objective, e2e_s < terms.e2e_threshold_s, ttft_s < terms.ttft_threshold_s)
    )


def _deadline_value(objective: Objective, e2e_met: np.ndarray, ttft_met: np.ndarray) -> np.ndarray:
    if objective.joint_deadlines:
        return (objective.tail_e2e + objective.tail_ttft) * (e2e_met & ttft_met)
    return objective.tail_e2e * e2e_met + objective.tail_ttft * ttft_met


def urgency(
    objective: Objective,
    window_s: np.ndarray | float,
    urgency_s: float,
    tick_s: float,
    terms: Terms,
    first_token_s: np.ndarray | float,
    life_s: np.ndarray,
) -> np.ndarray:
    """A: what is lost by not starting now, over about `urgency_s`; 0 when nothing is left to lose.

    A deadline counts the more, the nearer its last useful start (one tick before the threshold) is.
    """
    slack_2 = terms.ttft_threshold_s - tick_s - (terms.waited_s + first_token_s)
    slack_1 = terms.e2e_threshold_s - tick_s - (terms.waited_s + life_s)
    by_deadline = objective.tail_ttft * _alive(slack_2, tick_s, urgency_s)
    by_deadline = by_deadline + objective.tail_e2e * _alive(slack_1, tick_s, urgency_s)
    if objective.joint_deadlines:
        by_deadline = np.where(np.minimum(slack_1, slack_2) > -tick_s, by_deadline, 0.0)
    steady = (objective.e2e + objective.ttft) * urgency_s
    held_back = (objective.qps + objective.throughput * terms.output_tokens) * urgency_s / (window_s + urgency_s)
    return terms.weight * (steady + held_back + by_deadline)


def _alive(slack_s: np.ndarray, tick_s: float, urgency_s: float) -> np.ndarray:
    return np.where(slack_s > -tick_s, np.exp(-np.maximum(slack_s, -tick_s) / urgency_s), 0.0)


def deadline_share(objective: Objective, window_s: float, horizon_s: float, mean_tokens: float) -> float:
    """Share of the reward at stake over `horizon_s` that deadlines make, in [0, 1]."""
    tail = objective.tail_e2e + objective.tail_ttft
    rest = horizon_s * (objective.e2e + objective.ttft) + (
        objective.qps + objective.throughput * mean_tokens
    ) * horizon_s / (window_s + horizon_s)
    return tail / (tail + rest)
