"""On time, then SJF: requests that can still meet their first-token threshold first; among equals the shortest.

Moore's idea of giving up on late jobs (Management Science 1968) with shortest-first inside each group: the strongest
price-free rule for attainment.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.central import CentralQueue
from olp_ray.core.policies.on_time_fifo import is_late


class OnTimeSjf(CentralQueue):
    name = "on_time_sjf"

    def rank(self, view: View, now_s: float) -> np.ndarray:
        return np.lexsort((view.waiting.predicted_output_tokens, is_late(view, self.objective, now_s)))
