"""What the operator wants: weights and thresholds. What they make of one request is the reward's."""

from __future__ import annotations

from dataclasses import dataclass

from olp_ray.core.numbers import is_finite, is_float, shown
from olp_ray.errors import RequestError

MOST_PRIORITY_FACTOR = 16.0  # and 1/16 the least: to the power of the highest priority it is 3e120, so sums stay finite
MOST_CLASS_WEIGHT = 1e6  # and 1e-6 the least, for the same reason


@dataclass(frozen=True, slots=True)
class Objective:
    """The operator's six weights and the thresholds they speak of (paper Section 3.1).

    throughput is alpha (per output token), e2e beta and ttft gamma (per second saved), qps sigma (per request),
    tail_e2e zeta1 and tail_ttft zeta2 (per request inside its threshold). e2e_threshold_s is t1', ttft_threshold_s
    is t2'. Multiplying all six weights by a constant changes no decision.

    Requests may differ in worth: class_weights multiplies the reward of a request class (1 if not named), from 1e-6 to
    1e6, and each step of priority multiplies it by priority_factor, from 1/16 to 16. tenant_fairness is the exponent of
    alpha-fairness between tenants (0: none, 1: proportional; see `core.fairness`). With joint_deadlines a deadline
    earns something only where both can be met: what counts is requests inside both thresholds (goodput), not deadlines.
    """

    throughput: float
    e2e: float
    ttft: float
    qps: float
    tail_e2e: float
    tail_ttft: float
    e2e_threshold_s: float
    ttft_threshold_s: float
    class_weights: tuple[tuple[str, float], ...] = ()
    priority_factor: float = 1.0
    tenant_fairness: float = 0.0
    joint_deadlines: bool = False

    def __post_init__(self) -> None:
        weights = self.weights
        if not all(is_finite(w) and w >= 0 for w in weights):
            raise RequestError(f"objective weights are {shown(weights)}; expected six finite numbers >= 0")
        if not any(weights):
            raise RequestError("objective weights are all zero; expected at least one above 0")
        for name in ("e2e_threshold_s", "ttft_threshold_s"):
            threshold_s = getattr(self, name)
            if not (is_float(threshold_s) and threshold_s > 0):
                raise RequestError(f"objective {name} is {shown(threshold_s)}; expected > 0")
        for name, weight in self.class_weights:
            if not 1 / MOST_CLASS_WEIGHT <= weight <= MOST_CLASS_WEIGHT:
                raise RequestError(
                    f"objective class_weights of {name!r} is {shown(weight)}; "
                    f"expected {1 / MOST_CLASS_WEIGHT} to {MOST_CLASS_WEIGHT:g}"
                )
        if not 1 / MOST_PRIORITY_FACTOR <= self.priority_factor <= MOST_PRIORITY_FACTOR:
            raise RequestError(
                f"objective priority_factor is {shown(self.priority_factor)}; "
                f"expected {1 / MOST_PRIORITY_FACTOR} to {MOST_PRIORITY_FACTOR:g}"
            )
        if not (is_finite(self.tenant_fairness) and self.tenant_fairness >= 0):
            raise RequestError(f"objective tenant_fairness is {shown(self.tenant_fairness)}; expected >= 0")

    @property
    def weights(self) -> tuple[float, float, float, float, float, float]:
        """(alpha, beta, gamma, sigma, zeta1, zeta2) in the paper's order."""
        return (self.throughput, self.e2e, self.ttft, self.qps, self.tail_e2e, self.tail_ttft)
