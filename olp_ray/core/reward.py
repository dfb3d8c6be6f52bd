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

from olp_ray.core import kernels
from olp_ray.core.kernels.records import Weights
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


def weights_of(objective: Objective) -> Weights:
    """The weights as kernels take them."""
    alpha, beta, gamma, sigma, zeta1, zeta2 = map(float, objective.weights)
    return Weights(alpha, beta, gamma, sigma, zeta1, zeta2, objective.joint_deadlines)


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
    """V: reward of a start after `delay_s` more; arguments broadcast."""
    arguments = (
        window_s,
        terms.waited_s + delay_s,
        terms.output_tokens,
        terms.weight,
        terms.e2e_threshold_s,
        terms.ttft_threshold_s,
        first_token_s,
        life_s,
    )
    shape = np.broadcast(*arguments).shape
    rows = np.empty((len(arguments), *shape))
    for row, argument in zip(rows, arguments, strict=True):
        row[...] = argument
    return kernels.worth.start_values(weights_of(objective), rows.reshape(len(arguments), -1)).reshape(shape)
