"""What residents are going to occupy, and whether a candidate fits for its whole life: exact peaks at planned ends.

Each resident is planned to end when a conditional quantile of its remaining length has passed. Between two planned
ends the KV tokens of a device only grow, so its peaks are at the ends, and a candidate fits when it fits there.
Here lives feasibility; order, worth and price do not.

Notation
    symbol   meaning                                                        shape     unit     paper
    r        planned remaining decode iterations of a resident              (G, R)    steps    o-hat_j - theta
    kv       KV tokens of a resident now                                    (G, R)    tokens   m_j^mem
    s, n     prompt tokens and planned length of a candidate                (J,)      tokens   s_j, o-hat_j
    peak_e   KV tokens of a device at the end of iteration e                          tokens
    D        length of a price bucket on a device                           (G,)      steps
"""

from __future__ import annotations

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.calibration import Calibration
from olp_ray.core.kernels.records import ENDS, Plans, Ratios
from olp_ray.core.ledger import Ledger

OCCUPANCY_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # midpoints of five equal shares of a resident's remaining length


class Forecast:
    """A working copy of one moment's plan; `admit` adds to it, the ledger stays as it is.

    level is the conditional quantile of the remaining length at which residents are planned. A device takes more only
    while its prefill backlog is at most prefill_ahead_s long: what waits behind it waits here, where order is free.
    """

    def __init__(
        self, ledger: Ledger, calibration: Calibration, now_s: float, level: float, prefill_ahead_s: float
    ) -> None:
        self._calibration, self.level = calibration, level
        self._plans = kernels.planning.begin(ledger.fleet, float(now_s), float(prefill_ahead_s), 0)
        self._kv_counted = False

    @property
    def slots(self) -> np.ndarray:
        """(G,) 0 on devices that take no new requests."""
        return self._plans.devices["slots"]

    @property
    def occupied_slots(self) -> np.ndarray:
        """(G,) external load and admitted candidates included."""
        return self._plans.devices["occupied"]

    @property
    def kv_now(self) -> np.ndarray:
        """KV tokens held per device, (G,), external load and admitted candidates included."""
        return self.plans(0).devices["kv_now"]

    @property
    def takes_more(self) -> np.ndarray:
        """(G,) bool: a slot is free, and the prompts sent already keep prefill busy no longer than it looks ahead."""
        return kernels.planning.room(self._plans)

    def next_room_s(self, now_s: float) -> float:
        """When the first device with a free slot has worked off enough prompts to take more; inf if none waits so."""
        return kernels.planning.room_s(self._plans, now_s)

    @property
    def utilisation(self) -> np.ndarray:
        """(G,) the fuller of the two resources, as a share; 1 for a device without capacity."""
        return kernels.planning.utilisation_of_all(self.plans(0))

    def lift_limits(self) -> None:
        """Plan as if slots and prefill were without limit."""
        self._plans.devices["slots"] = np.inf
        self._plans.devices["backlog"] = 0.0

    def fits(self, g: int, prompt_tokens: np.ndarray, length_tokens: np.ndarray) -> np.ndarray:
        """Whether each candidate could start on device g now and stay, bool (n,).

        The device takes more; the engine's own check holds now (KV now + s + 1 + b <= M); and no planned peak during
        the candidate's life exceeds M. A prediction too long for the empty device is cut to what fits there, so that a
        wrong prediction can not block a request forever; on which devices, `View.too_small` says.
        """
        return kernels.planning.fits_of_all(
            self.plans(0), g, np.array(prompt_tokens), np.array(length_tokens), self.level, self._calibration.ratios
        )

    def admit(self, g: int, prompt_tokens: float, length_tokens: float) -> None:
        """Add a candidate to device g's plan."""
        plans = self.plans(1)
        kernels.planning.plan(plans, g, self.level, self._calibration.ratios)
        kernels.planning.admit(plans, g, prompt_tokens, length_tokens)

    def earliest_fit(self, g: int, prompt_tokens: float, length_tokens: float) -> float:
        """Steps until the candidate would fit on device g if nothing else were admitted; inf if never."""
        plans = self.plans(0)
        kernels.planning.plan(plans, g, self.level, self._calibration.ratios)
        return kernels.planning.earliest_fit(plans, g, prompt_tokens, length_tokens)

    def planned_ends(self, g: int) -> np.ndarray:
        """Steps until each of those on device g is planned to end, admitted candidates included, rising."""
        plans = self.plans(0)
        kernels.planning.plan(plans, g, self.level, self._calibration.ratios)
        return plans.ahead[ENDS, g, : plans.devices[g]["planned"]]

    @property
    def ratios(self) -> Ratios:
        """What lengths are planned by."""
        return self._calibration.ratios

    @property
    def begun(self) -> Plans:
        """The plan as arrays before anything is admitted; KV tokens may still have to be counted."""
        return self._plans

    def plans(self, admissions: int) -> Plans:
        """The plan as arrays, with room for so many more on each device."""
        held = self._plans
        if not self._kv_counted:
            kernels.planning.count_kv(held)
            self._kv_counted = True
        devices, ahead = held.devices, held.ahead
        width = int(np.maximum(devices["planned"], devices["residents"]).max(initial=0)) + admissions + 1
        if width > ahead.shape[2]:
            wider = np.empty((*ahead.shape[:2], width))
            wider[:, :, : ahead.shape[2]] = ahead
            self._plans = held._replace(ahead=wider)
        return self._plans


def expected_occupancy(
    ledger: Ledger, calibration: Calibration, now_s: float, bucket_s: float, buckets: int
) -> np.ndarray:
    """Expected slots and KV tokens in use per bucket, shape (G, 2, N); KV as of the bucket's end.

    A resident's remaining length is stood for by five quantiles of equal weight, so the expectation is a histogram of
    ends: linear in residents plus buckets. External load is taken to stay.
    """
    levels = np.array((0.5,) if calibration.is_identity else OCCUPANCY_LEVELS)
    return kernels.holding.expected_occupancy(ledger.fleet, now_s, bucket_s, buckets, levels, calibration.ratios)
