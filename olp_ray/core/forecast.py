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

from olp_ray.core.calibration import Calibration
from olp_ray.core.ledger import Ledger

OCCUPANCY_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # midpoints of five equal shares of a resident's remaining length
PREFILL_MARGIN_S = 1e-6  # so that a wake for room in the prefill queue finds it


class DevicePlan:
    """One device: its residents by planned end, and what candidates would add.

    ends (steps) and kv (tokens) are those of the residents, any order; capacity is M less external load.
    """

    def __init__(self, ends: np.ndarray, kv: np.ndarray, slots: float, capacity: float, block_tokens: int) -> None:
        order = np.argsort(ends, kind="stable")
        self._ends, self._kv = ends[order], kv[order]
        self._slots = slots
        self._capacity = capacity
        self._padding = float(block_tokens - 1)
        self._kv_now = float(kv.sum())
        self._set_peaks()

    def fits(self, prompt_tokens: np.ndarray, length_tokens: np.ndarray) -> np.ndarray:
        """Whether each candidate could start now and stay, bool (J,); see `Forecast.fits`."""
        count = len(self._ends)
        if count + 1 > self._slots:
            return np.zeros(len(prompt_tokens), dtype=bool)
        prompt = prompt_tokens + self._padding
        length = np.minimum(length_tokens, np.maximum(self._capacity - prompt, 1.0))
        ending_before = self._ends.searchsorted(length)
        at_end = self._left[ending_before] + (count + 1 - ending_before) * length
        most = np.maximum(np.maximum(self._peak[ending_before], at_end), self._kv_now + 1 + count)
        return most + prompt <= self._capacity

    def admit(self, prompt_tokens: float, length_tokens: float) -> float:
        """Add a candidate; returns the KV tokens that it takes now."""
        prompt = prompt_tokens + self._padding
        at = int(self._ends.searchsorted(length_tokens, side="right"))
        self._ends = np.concatenate([self._ends[:at], [length_tokens], self._ends[at:]])
        self._kv = np.concatenate([self._kv[:at], [prompt], self._kv[at:]])
        self._kv_now += prompt
        self._set_peaks()
        return prompt

    def earliest_fit(self, prompt_tokens: float, length_tokens: float) -> float:
        """Steps until the candidate would fit if nothing else were admitted, at least 1; inf if never.

        A later start makes the candidate smaller at each resident's end, and leaves more of them behind it: each
        round moves the start to where the limits that it breaks would hold, or to the next end if that comes first.
        """
        count, ends = len(self._ends), self._ends
        prompt = prompt_tokens + self._padding
        length = min(length_tokens, max(self._capacity - prompt, 1.0))
        if prompt + 1 > self._capacity or self._slots < 1:
            return float("inf")
        usage = self._left[:-1] + (count - np.arange(count)) * ends
        must_end = max(int(np.ceil(count + 1 - self._slots)), 0)
        start = max(float(ends[must_end - 1]) if must_end else 1.0, 1.0)
        while True:
            alive = int(ends.searchsorted(start, side="right"))
            stop = int(ends.searchsorted(start + length))
            fits_from = float((usage[alive:stop] + ends[alive:stop]).max(initial=0.0)) + prompt - self._capacity
            at_end = self._left[stop] + (count - stop) * (start + length) + length + prompt
            if at_end > self._capacity:
                fits_from = max(fits_from, float(ends[stop]) - length + 1)
            if fits_from <= start:
                return start
            start = min(fits_from, float(ends[alive]))

    def _set_peaks(self) -> None:
        """left[i]: KV tokens now of the residents that end i-th or later, (count + 1,). peak[i]: highest planned peak
        at one of the first i ends, with the growth of a candidate that started now, (count + 1,)."""
        count = len(self._ends)
        self._left = np.zeros(count + 1)
        self._left[:count] = self._kv[::-1].cumsum()[::-1]
        self._peak = np.zeros(count + 1)
        growing = np.arange(count + 1, 1, -1)
        np.maximum.accumulate(self._left[:count] + growing * self._ends, out=self._peak[1:])


class Forecast:
    """A working copy of one moment's plan; `admit` adds to it, the ledger stays as it is.

    level is the conditional quantile of the remaining length at which residents are planned. A device takes more only
    while its prefill backlog is at most prefill_ahead_s long: what waits behind it waits here, where order is free.
    """

    def __init__(
        self, ledger: Ledger, calibration: Calibration, now_s: float, level: float, prefill_ahead_s: float
    ) -> None:
        self._ledger, self._calibration, self._now_s, self._level = ledger, calibration, now_s, level
        self.slots = np.where(ledger.draining, 0.0, ledger.slots)
        self.kv_tokens = ledger.kv_tokens
        self.occupied_slots = ledger.occupied_slots.astype(np.float64)
        self.backlog = ledger.prefill.backlog(now_s)
        self._prefill_rate = ledger.prefill.rate_tokens_per_s
        finite = np.isfinite(self._prefill_rate)
        self._backlog_limit = np.where(finite, self._prefill_rate * prefill_ahead_s, np.inf)
        self._plans: dict[int, DevicePlan] = {}

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

    @property
    def utilisation(self) -> np.ndarray:
        """(G,) the fuller of the two resources, as a share; 1 for a device without capacity."""
        with np.errstate(divide="ignore", invalid="ignore"):
            used = np.maximum(self.occupied_slots / self.slots, self.kv_now / self.kv_tokens)
        return np.where((self.slots > 0) & (self.kv_tokens > 0), used, 1.0)

    def fits(self, g: int, prompt_tokens: np.ndarray, length_tokens: np.ndarray) -> np.ndarray:
        """Whether each candidate could start on device g now and stay, bool (J,).

        The device takes more; the engine's own check holds now (KV now + s + 1 + b <= M); and no planned peak during
        the candidate's life exceeds M. A prediction too long for the empty device is cut to what fits there, so that a
        wrong prediction can not block a request forever.
        """
        if not (self.slots[g] - self.occupied_slots[g] >= 1 and self.backlog[g] <= self._backlog_limit[g]):
            return np.zeros(len(prompt_tokens), dtype=bool)
        return self._plan(g).fits(prompt_tokens, length_tokens)

    def admit(self, g: int, prompt_tokens: float, length_tokens: float) -> None:
        """Add a candidate to device g's plan."""
        self.kv_now[g] += self._plan(g).admit(prompt_tokens, length_tokens)
        self.occupied_slots[g] += 1
        self.backlog[g] += prompt_tokens

    def earliest_fit(self, g: int, prompt_tokens: float, length_tokens: float) -> float:
        """Steps until the candidate would fit on device g if nothing else were admitted; inf if never."""
        return self._plan(g).earliest_fit(prompt_tokens, length_tokens)

    def _plan(self, g: int) -> DevicePlan:
        """The plan of device g, made when it is first asked for: most devices are full at most times."""
        plan = self._plans.get(g)
        if plan is None:
            ledger = self._ledger
            decoded = ledger.decoded_on(g, self._now_s)
            count = len(decoded)
            ends = self._calibration.remaining(decoded, ledger.predicted_tokens[g, :count], self._level)
            plan = self._plans[g] = DevicePlan(
                ends,
                ledger.prompt_tokens[g, :count] + decoded,
                float(self.slots[g] - ledger.external_slots[g]),
                float(self.kv_tokens[g] - ledger.external_kv_tokens[g]),
                ledger.devices[g].block_tokens,
            )
        return plan


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
    predicted = np.maximum(ledger.predicted_tokens, 1.0)
    row = np.nonzero(resident)[0]
    for level in levels:
        remaining = calibration.remaining(decoded, predicted, level)[resident]
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
