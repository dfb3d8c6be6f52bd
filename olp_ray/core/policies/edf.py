"""EDF: the earliest first-token deadline first, arrival + threshold (the request's own, else the objective's).

Liu and Layland, JACM 1973. Optimal on one preemptive processor while every deadline can be met; in overload it spends
itself on requests that are late already. With one threshold for all it is central FIFO with skip.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.central import CentralQueue
from olp_ray.core.reward import thresholds


class Edf(CentralQueue):
    name = "edf"

    def rank(self, view: View, now_s: float) -> np.ndarray:
        queue = view.waiting
        _, ttft_s = thresholds(self.objective, queue.slo_e2e_s, queue.slo_ttft_s)
        return np.argsort(queue.arrival_s + ttft_s, kind="stable")
