"""HRRN: the highest response ratio first, (waited + life) / life; ties by arrival.

Brinch Hansen, "An analysis of response ratio scheduling", IFIP 1971. Shortest first that ages: the longer a request
has waited relative to its life, the sooner it starts.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.central import CentralQueue


class Hrrn(CentralQueue):
    name = "hrrn"

    def rank(self, view: View, now_s: float) -> np.ndarray:
        queue = view.waiting
        life_s = queue.predicted_output_tokens * float(view.ledger.step_s.mean())
        return np.argsort(-(now_s - queue.arrival_s) / life_s, kind="stable")
