"""Central FIFO: first come, first started, as soon as the oldest request fits; nothing overtakes it.

The queueing half of what a central router brings, without any ordering by size (the classic M/G/k discipline).
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.central import CentralQueue


class CentralFifo(CentralQueue):
    name = "central_fifo"
    head_of_line = True

    def rank(self, view: View, now_s: float) -> np.ndarray:
        return np.arange(len(view.waiting))
