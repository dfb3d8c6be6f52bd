"""Least outstanding requests: the device with the fewest requests queued *and* running (join the shortest queue)."""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.immediate import Immediate, least


class LeastOutstanding(Immediate):
    name = "least_outstanding"

    def pick(self, devices: np.ndarray, load: np.ndarray, view: View, rng: np.random.Generator) -> int:
        return least(devices, load, self._turn)
