"""SJF with reservation: shortest predicted first; the shortest that fits nowhere yet has a device kept for it.

EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", 1995) over an SJF order, through `core.admission`: others
use a kept device only if they are planned to have ended by then. What `online_lp` is without its prices.
"""

from __future__ import annotations

from olp_ray.core.policies.central_sjf import CentralSjf


class SjfReservation(CentralSjf):
    name = "sjf_reservation"
    reserves = True
