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
        self.occupied_slots = ledger.occupied_slots.astype(np.float64)
        self.backlog = ledger.prefill.backlog(now_s)
        self._prefill_rate = ledger.prefill.rate_tokens_per_s
        self._backlog_limit = np.where(np.isfinite(self._prefill_rate), self._prefill_rate * prefill_ahead_s, np.inf)
        self._plans: Plans | None = None

    @cached_property
    def kv_now(self) -> np.ndarray:
        """KV tokens held per device, (G,), external load and admitted candidates included."""
        return self._ledger.kv_now(self._now_s)

    @property
    def takes_more(self) -> np.ndarray:
        """(G,) bool: a slot is free, and the prompts sent already keep prefill busy no longer than it looks ahead."""
        return (self.slots - self.occupied_slots >= 1) & (self.backlog <= self._backlog_limit)

    def next_room_s(self, now_s: float) -> float:
        """When the first device with a free slot has worked off enough prompts to take more; inf if none waits so."""
        excess = self.backlog - self._backlog_limit
        waiting = (self.slots - self.occupied_slots >= 1) & (excess > 0)
        if not waiting.any():
            return float("inf")
        return now_s + float((excess[waiting] / self._prefill_rate[waiting]).min()) + PREFILL_MARGIN_S

    def limit_slots(self, slots: np.ndarray) -> None:
        """Plan with at most so many slots on each device, (G,)."""
        np.minimum(self.slots, slots, out=self.slots)

    @property
    def utilisation(self) -> np.ndarray:
        """(G,) the fuller of the two resources, as a share; 1 for a device without capacity."""
        slots, kv_tokens = self.slots, self._ledger.kv_tokens
        usable = (slots > 0) & (kv_tokens > 0)
        used = np.maximum(
            self.occupied_slots / np.where(usable, slots, 1.0), self.kv_now / np.where(usable, kv_tokens, 1.0)
        )
        return np.where(usable, used, 1.0)

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
        decoded = ledger.decoded_now(self._now_s)
        nothing = np.empty((len(self.slots), 0))
        return Plans(
            self.slots,
            ledger.kv_tokens,
            ledger.external_slots,
            ledger.external_kv_tokens,
            np.array([device.block_tokens - 1.0 for device in ledger.devices]),
            self._backlog_limit,
            ledger.count,
            decoded,
            ledger.predicted_tokens.copy(),
            ledger.raw_prompt_tokens,
            ledger.prompt_tokens + decoded,
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
    devices = len(ledger.devices)
    resident = ledger.is_resident
    decoded = ledger.decoded_now(now_s)
    kv = ledger.prompt_tokens + decoded
    bucket_steps = bucket_s / ledger.step_s
    levels = (0.5,) if calibration.is_identity else OCCUPANCY_LEVELS
    alive = np.zeros((devices, buckets + 1))
    alive_kv = np.zeros((devices, buckets + 1))
    predicted, prompt = np.maximum(ledger.predicted_tokens, 1.0), ledger.raw_prompt_tokens
    row = np.nonzero(resident)[0]
    for level in levels:
        remaining = calibration.remaining(decoded, predicted, prompt, level)[resident]
        last = np.minimum(np.ceil(remaining / bucket_steps[row]), buckets).astype(np.int64)
        at, size = row * (buckets + 1) + last, devices * (buckets + 1)
        alive += np.bincount(at, minlength=size).reshape(devices, -1) / len(levels)
        alive_kv += np.bincount(at, weights=kv[resident], minlength=size).reshape(devices, -1) / len(levels)
    alive = alive[:, :0:-1].cumsum(axis=1)[:, ::-1]
    alive_kv = alive_kv[:, :0:-1].cumsum(axis=1)[:, ::-1]
    grown = np.arange(1, buckets + 1) * bucket_steps[:, None]
    occupied = np.stack([alive, alive_kv + alive * grown], axis=1)
    occupied[:, 0] += ledger.external_slots[:, None]
    occupied[:, 1] += ledger.external_kv_tokens[:, None]
    return occupied
