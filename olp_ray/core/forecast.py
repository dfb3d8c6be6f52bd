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

from functools import cached_property

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.calibration import Calibration
from olp_ray.core.kernels.records import Plans, Ratios
from olp_ray.core.ledger import Ledger

OCCUPANCY_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # midpoints of five equal shares of a resident's remaining length
PREFILL_MARGIN_S = 1e-6  # so that a wake for room in the prefill queue finds it


class Forecast:
    """A working copy of one moment's plan; `admit` adds to it, the ledger stays as it is.

    level is the conditional quantile of the remaining length at which residents are planned. A device takes more only
    while its prefill backlog is at most prefill_ahead_s long: what waits behind it waits here, where order is free.
    """

    def __init__(
        self, ledger: Ledger, calibration: Calibration, now_s: float, level: float, prefill_ahead_s: float
    ) -> None:
        self._ledger, self._calibration, self._now_s = ledger, calibration, now_s
        self.level = level
        self.slots = np.where(ledger.draining, 0.0, ledger.slots)
        self.occupied_slots = ledger.occupied_slots
        self.backlog = ledger.prefill.backlog(now_s)
        self._prefill_rate = ledger.prefill.rate_tokens_per_s
        self._backlog_limit = kernels.planning.backlog_limits(self._prefill_rate, prefill_ahead_s)
        self._plans: Plans | None = None

    @cached_property
    def kv_now(self) -> np.ndarray:
        """KV tokens held per device, (G,), external load and admitted candidates included."""
        return self._ledger.kv_now(self._now_s)

    @property
    def takes_more(self) -> np.ndarray:
        """(G,) bool: a slot is free, and the prompts sent already keep prefill busy no longer than it looks ahead."""
        return kernels.planning.take_more(self.slots, self.occupied_slots, self.backlog, self._backlog_limit)

    def next_room_s(self, now_s: float) -> float:
        """When the first device with a free slot has worked off enough prompts to take more; inf if none waits so."""
        wait_s = kernels.planning.next_room(
            self.slots, self.occupied_slots, self.backlog, self._backlog_limit, self._prefill_rate
        )
        return now_s + wait_s + PREFILL_MARGIN_S

    def limit_slots(self, slots: np.ndarray) -> None:
        """Plan with at most so many slots on each device, (G,)."""
        np.minimum(self.slots, slots, out=self.slots)

    @property
    def utilisation(self) -> np.ndarray:
        """(G,) the fuller of the two resources, as a share; 1 for a device without capacity."""
        return kernels.planning.utilisation_of_all(self.slots, self._ledger.kv_tokens, self.occupied_slots, self.kv_now)

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

    @property
    def ratios(self) -> Ratios:
        """What lengths are planned by."""
        return self._calibration.ratios

    def plans(self, admissions: int) -> Plans:
        """The plan as arrays, with room for so many more on each device."""
        if self._plans is None:
            self._plans = self._begin()
        held = self._plans
        width = int(np.maximum(held.planned, held.residents).max(initial=0)) + admissions
        if width > held.ends.shape[1]:
            wider = np.empty((2, len(self.slots), width))
            wider[:, :, : held.ends.shape[1]] = held.ends, held.held
            totals = np.empty((2, len(self.slots), width + 1))
            totals[:, :, : held.left.shape[1]] = held.left, held.peak
            self._plans = held._replace(ends=wider[0], held=wider[1], left=totals[0], peak=totals[1])
        return self._plans

    def _begin(self) -> Plans:
        """Nothing planned yet: most devices are full at most times, and are never asked for."""
        ledger = self._ledger
        nothing = np.empty((len(self.slots), 0))
        return Plans(
            self.slots,
            ledger.kv_tokens,
            ledger.external_slots,
            ledger.external_kv_tokens,
            ledger.padding,
            self._backlog_limit,
            ledger.count,
            ledger.held_by,
            ledger.step_s,
            float(self._now_s),
            self.occupied_slots,
            self.kv_now,
            self.backlog,
            np.full(len(self.slots), -1),
            nothing,
            nothing,
            np.empty((len(self.slots), 1)),
            np.empty((len(self.slots), 1)),
        )


def expected_occupancy(
    ledger: Ledger, calibration: Calibration, now_s: float, bucket_s: float, buckets: int
) -> np.ndarray:
    """Expected slots and KV tokens in use per bucket, shape (G, 2, N); KV as of the bucket's end.

    A resident's remaining length is stood for by five quantiles of equal weight, so the expectation is a histogram of
    ends: linear in residents plus buckets. External load is taken to stay.
    """
    return kernels.planning.expected_occupancy(
        *(ledger.held_by, ledger.count, ledger.padding, ledger.external_slots, ledger.external_kv_tokens),
        *(now_s, ledger.step_s, bucket_s, buckets),
        np.array((0.5,) if calibration.is_identity else OCCUPANCY_LEVELS),
        calibration.ratios,
    )
