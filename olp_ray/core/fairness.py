"""Shares between tenants: a tenant that got much lately is worth less, so that others come first.

alpha-fairness (Mo and Walrand 2000; exponent 1 is Kelly's proportional fairness, 1998) maximises the sum of
x^(1 - a) / (1 - a) over tenants' service rates x; its gradient, x^-a, is the weight of one more unit of service. Here x
is the tenant's output and prompt tokens started lately, forgotten exponentially, and the weight multiplies the reward
of the tenant's requests. Only reward is touched: what fits, and what it costs, stay the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

LIMIT = 10.0  # no tenant counts more than this many times the mean, or less than one over it
_FORGOTTEN = 1e-3  # tokens; a tenant below this is dropped, so that memory follows active tenants


class TenantShares:
    """Tokens started per tenant, halved every `half_life_s`."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._tokens: dict[str, float] = {}
        self._at_s = 0.0

    def served(self, tenant: str, tokens: float, now_s: float) -> None:
        """Count a start of that many tokens."""
        self.forget(now_s)
        self._tokens[tenant] = self._tokens.get(tenant, 0.0) + tokens

    def forget(self, now_s: float) -> None:
        """Let time pass up to now; a time before the last one changes nothing."""
        self._tokens, self._at_s = self._left(now_s), max(now_s, self._at_s)

    def weights(self, tenants: Iterable[str], exponent: float, now_s: float) -> np.ndarray:
        """Multiplier of the reward for each of these tenants, within [1 / LIMIT, LIMIT]. Nothing is forgotten by it: it
        may be asked about a time to come."""
        left, names = self._left(now_s), list(tenants)
        active = set(left) | set(names)
        mean = sum(left.values()) / max(len(active), 1)
        if mean <= 0:
            return np.ones(len(names))
        share = np.array([left.get(name, 0.0) for name in names]) / mean
        return np.clip(np.maximum(share, 1e-12) ** -exponent, 1 / LIMIT, LIMIT)

    def snapshot(self) -> dict[str, Any]:
        return {"tokens": dict(self._tokens), "at_s": self._at_s}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._tokens, self._at_s = dict(state["tokens"]), float(state["at_s"])

    def _left(self, now_s: float) -> dict[str, float]:
        """Tokens per tenant that are not forgotten by now."""
        if now_s <= self._at_s:
            return self._tokens
        kept = math.exp(-math.log(2.0) * (now_s - self._at_s) / self._half_life_s)
        return {name: left for name, tokens in self._tokens.items() if (left := tokens * kept) > _FORGOTTEN}
