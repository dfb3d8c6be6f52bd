"""Least KV: the device with the smallest share of its KV tokens held, by requests queued and running.

What memory-aware load balancers of serving stacks do; blind to how many tokens are still to come.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.immediate import Immediate, least


class LeastKv(Immediate):
    name = "least_kv"

    def load(self, view: View, now_s: float) -> np.ndarray:
        return view.ledger.kv_now(now_s)

    def added_load(self, view: View, index: int) -> float:
        return float(view.waiting.prompt_tokens[index])

    def pick(self, devices: np.ndarray, load: np.ndarray, view: View, rng: np.random.Generator) -> int:
        return least(devices, load / np.maximum(view.ledger.kv_tokens, 1.0), self._turn)
