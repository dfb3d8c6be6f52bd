"""Random: every request to a device drawn uniformly, whatever the device holds.

The floor of every comparison, and the paper's third baseline (Section 4.2).
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.immediate import Immediate


class RandomChoice(Immediate):
    name = "random"

    def pick(self, devices: np.ndarray, load: np.ndarray, view: View, rng: np.random.Generator) -> int:
        return int(rng.choice(devices))
