"""What starting a request now is worth under the operator's six weights.

Notation
    symbol          meaning                                              unit     paper (Section 3.1)
    alpha..zeta2    weights of the objective                                      same
    w               time waited since arrival                            s        k - t_j
    F               time from the start to the first token               s        0
    L               time from the start to the last token                s        o-hat_j
    ell             output tokens                                        tokens   o-hat_j
    W               rolling reward window, in place of the horizon T     s        T - t_j
    t1', t2'        E2E and TTFT thresholds                              s        same
    tau             how long "not waiting" is looked ahead               s

Arrays broadcast: requests lead, devices follow, (J, 1) or (J, G).
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.types import Objective


def start_value(
    objective: Objective,
    window_s: float,
    waited_s: np.ndarray,
    first_token_s: np.ndarray,
    life_s: np.ndarray,
    output_tokens: np.ndarray,
) -> np.ndarray:
    """V: reward of a start after waiting `waited_s` (paper Section 3.1 with a rolling window in place of the end T)."""
    ttft_s = waited_s + first_token_s
    e2e_s = waited_s + life_s
    return (
        objective.throughput * output_tokens
        + objective.e2e * np.maximum(window_s - e2e_s, 0.0)
        + objective.ttft * np.maximum(window_s - ttft_s, 0.0)
        + objective.qps
        + objective.tail_e2e * (e2e_s < objective.e2e_threshold_s)
        + objective.tail_ttft * (ttft_s < objective.ttft_threshold_s)
    )


def urgency(
    objective: Objective,
    window_s: float,
    urgency_s: float,
    tick_s: float,
    waited_s: np.ndarray,
    first_token_s: np.ndarray,
    life_s: np.ndarray,
    output_tokens: np.ndarray,
) -> np.ndarray:
    """A: what is lost by not starting now, over about `urgency_s`; 0 when nothing is left to lose.

    A deadline counts the more, the nearer its last useful start (one tick before the threshold) is.
    """
    slack_2 = objective.ttft_threshold_s - tick_s - (waited_s + first_token_s)
    slack_1 = objective.e2e_threshold_s - tick_s - (waited_s + life_s)
    by_deadline = objective.tail_ttft * _alive(slack_2, tick_s, urgency_s)
    by_deadline = by_deadline + objective.tail_e2e * _alive(slack_1, tick_s, urgency_s)
    steady = (objective.e2e + objective.ttft) * urgency_s
    held_back = (objective.qps + objective.throughput * output_tokens) * urgency_s / (window_s + urgency_s)
    return steady + held_back + by_deadline


def _alive(slack_s: np.ndarray, tick_s: float, urgency_s: float) -> np.ndarray:
    return np.where(slack_s > -tick_s, np.exp(-np.maximum(slack_s, -tick_s) / urgency_s), 0.0)


def deadline_share(objective: Objective, window_s: float, horizon_s: float, mean_tokens: float) -> float:
    """Share of the reward at stake over `horizon_s` that deadlines make, in [0, 1]."""
    tail = objective.tail_e2e + objective.tail_ttft
    rest = horizon_s * (objective.e2e + objective.ttft) + (
        objective.qps + objective.throughput * mean_tokens
    ) * horizon_s / (window_s + horizon_s)
    return tail / (tail + rest)
