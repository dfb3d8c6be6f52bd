"""Central FIFO with skip: in order of arrival, but a request that fits nowhere does not hold up those behind it.

First fit without a reservation ("aggressive" backfilling as in Mu'alem and Feitelson, IEEE TPDS 2001): keeps devices
fuller than strict FIFO, and lets small requests overtake a large one for as long as they keep coming.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.central import CentralQueue


class CentralFifoSkip(CentralQueue):
    name = "central_fifo_skip"

    def rank(self, view: View, now_s: float) -> np.ndarray:
        return np.arange(len(view.waiting))
