"""Round robin: each device in turn, whatever it holds (the default of most load balancers)."""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.immediate import Immediate


class RoundRobin(Immediate):
    name = "round_robin"

    def load(self, view: View, now_s: float) -> np.ndarray:
        """Nothing counts as load."""
        return np.zeros(len(view.ledger.devices))

    def pick(self, devices: np.ndarray, load: np.ndarray, view: View, rng: np.random.Generator) -> int:
        return int(devices[self._turn % len(devices)])
