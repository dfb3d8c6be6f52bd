"""Aged SJF: the smallest arrival + kappa * life first, a frontier between FIFO and SJF that needs no price.

kappa = 0 is FIFO with skip, kappa towards infinity is SJF; a request of life L can be overtaken only by those that
arrive within kappa * L after it (or fit where it does not). Jackson's dynamic priorities (Naval Research Logistics
Quarterly 1960) with an urgency number proportional to length.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.central import CentralQueue
from olp_ray.core.policies.settings import PolicySettings


class AgedSjf(CentralQueue):
    name = "aged_sjf"

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self._length_weight = settings.aged_length_weight

    def rank(self, view: View, now_s: float) -> np.ndarray:
        queue = view.waiting
        life_s = queue.predicted_output_tokens * float(view.ledger.step_s.mean())
        return np.argsort(queue.arrival_s + self._length_weight * life_s, kind="stable")
