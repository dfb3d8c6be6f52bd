"""On time, then FIFO: requests that can still start inside their first-token threshold go before those that can not.

Moore's idea of giving up on late jobs (Management Science 1968) without the exchange step: late requests wait behind,
they are not dropped.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.central import CentralQueue
from olp_ray.core.reward import thresholds
from olp_ray.core.types import Objective


class OnTimeFifo(CentralQueue):
    name = "on_time_fifo"

    def rank(self, view: View, now_s: float) -> np.ndarray:
        return np.argsort(is_late(view, self.objective, now_s), kind="stable")


def is_late(view: View, objective: Objective, now_s: float) -> np.ndarray:
    """Whether a start now would be past the request's first-token threshold, (J,) bool."""
    queue = view.waiting
    _, ttft_s = thresholds(objective, queue.slo_e2e_s, queue.slo_ttft_s)
    return now_s - queue.arrival_s >= ttft_s
