"""Central SJF: the shortest predicted output first; ties by arrival.

Smith, "Various optimizers for single-stage production", 1956 (equal weights). The strongest simple rule for mean
latency, and the one that starves long requests when there is always a shorter one.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.central import CentralQueue


class CentralSjf(CentralQueue):
    name = "central_sjf"

    def rank(self, view: View, now_s: float) -> np.ndarray:
        return np.argsort(view.waiting.predicted_output_tokens, kind="stable")
