"""Power of two choices: of two devices drawn at random, the one with fewer requests queued and running.

Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 2001; the paper's fourth baseline.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.immediate import Immediate, least


class PowerOfTwo(Immediate):
    name = "power_of_two"

    def pick(self, devices: np.ndarray, load: np.ndarray, view: View, rng: np.random.Generator) -> int:
        drawn = rng.choice(devices, size=min(2, len(devices)), replace=False)
        return least(np.sort(drawn), load, self._turn)
