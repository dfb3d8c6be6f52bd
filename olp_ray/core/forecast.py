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

from olp_ray.core.calibration import Calibration
from olp_ray.core.ledger import Ledger

OCCUPANCY_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # midpoints of five equal shares of a resident's remaining length
_NEVER = 1e15
PREFILL_MARGIN_S = 1e-6  # so that a wake for room in the prefill queue finds it


class Forecast:
    """A working copy of one moment's plan; `admit` adds to it, the ledger stays as it is.

    level is the conditional quantile of the remaining length at which residents are planned. A device takes more only
    while its prefill backlog is at most prefill_ahead_s long: what waits behind it waits here, where order is free.
    """

    def __init__(
        self, ledger: Ledger, calibration: Calibration, now_s: float, level: float, prefill_ahead_s: float
    ) -> None:
        resident = ledger.is_resident
        decoded = ledger.decoded_now(now_s)
        kv = np.where(resident, ledger.prompt_tokens + decoded, 0.0)
        remaining = calibration.remaining(decoded, np.maximum(ledger.predicted_tokens, 1.0), level)
        ends = np.where(resident, remaining, _NEVER)
        order = np.argsort(ends, axis=1, kind="stable")
        self._ends = np.take_along_axis(ends, order, axis=1)
        self._kv = np.take_along_axis(kv, order, axis=1)
        self._count = ledger.count.astype(np.int64).copy()
        self.slots = np.where(ledger.draining, 0.0, ledger.slots)
        self.kv_tokens = ledger.kv_tokens
        self.external_slots = ledger.external_slots
        self.external_kv_tokens = ledger.external_kv_tokens
        self.blocks = np.array([device.block_tokens for device in ledger.devices], dtype=np.float64)
        self.kv_now = self._kv.sum(axis=1) + self.external_kv_tokens
        self.backlog = ledger.prefill.backlog(now_s)
        self._prefill_rate = rate = ledger.prefill.rate_tokens_per_s.copy()
        self._backlog_limit = np.where(np.isfinite(rate), rate * prefill_ahead_s, np.inf)
        self._left: list[np.ndarray | None] = [None] * len(self._count)
        self._peak: list[np.ndarray | None] = [None] * len(self._count)

    @property
    def occupied_slots(self) -> np.ndarray:
        """b per device, (G,): residents, admitted candidates and external load."""
        return self._count + self.external_slots

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

        A slot is free; the engine's own check holds now (KV now + s + 1 + b <= M); and no planned peak during the
        candidate's life exceeds M. A prediction too long for the empty device is cut to what fits there, so that a
        wrong prediction can not block a request forever.
        """
        count = int(self._count[g])
        occupied = count + self.external_slots[g]
        capacity = self.kv_tokens[g] - self.external_kv_tokens[g]
        if occupied + 1 > self.slots[g] or self.backlog[g] > self._backlog_limit[g]:
            return np.zeros(len(prompt_tokens), dtype=bool)
        prompt = prompt_tokens + (self.blocks[g] - 1)
        length = np.minimum(length_tokens, np.maximum(capacity - prompt, 1.0))
        ends = self._ends[g, :count]
        left, peak = self._profile(g)
        ending_before = np.searchsorted(ends, length, side="left")
        at_end = left[ending_before] + (count - ending_before) * length + prompt + length
        engine = self.kv_now[g] - self.external_kv_tokens[g] + prompt + 1 + count
        return (engine <= capacity) & (peak[ending_before] + prompt <= capacity) & (at_end <= capacity)

    def admit(self, g: int, prompt_tokens: float, length_tokens: float) -> None:
        """Add a candidate to device g's plan."""
        count = int(self._count[g])
        if count == self._ends.shape[1]:
            self._ends = np.pad(self._ends, ((0, 0), (0, 8)), constant_values=_NEVER)
            self._kv = np.pad(self._kv, ((0, 0), (0, 8)))
        prompt = prompt_tokens + self.blocks[g] - 1
        at = int(np.searchsorted(self._ends[g, :count], length_tokens, side="right"))
        for table, value in ((self._ends, length_tokens), (self._kv, prompt)):
            table[g, at + 1 : count + 1] = table[g, at:count]
            table[g, at] = value
        self._count[g] += 1
        self.kv_now[g] += prompt
        self.backlog[g] += prompt_tokens
        self._left[g] = self._peak[g] = None

    def earliest_fit(self, g: int, prompt_tokens: float, length_tokens: float) -> float:
        """Steps until the candidate would fit on device g if nothing else were admitted; inf if never.

        Looks at the planned ends only, since room appears only there.
        """
        count = int(self._count[g])
        capacity = self.kv_tokens[g] - self.external_kv_tokens[g]
        prompt = prompt_tokens + self.blocks[g] - 1
        length = min(length_tokens, max(capacity - prompt, 1.0))
        if prompt + 1 > capacity or self.slots[g] - self.external_slots[g] < 1:
            return float("inf")
        ends = self._ends[g, :count]
        left, _ = self._profile(g)
        usage = left[:-1] + (count - np.arange(count)) * ends
        first = max(int(np.ceil(count + self.external_slots[g] + 1 - self.slots[g])), 0)
        for k in range(max(first, 1), count + 1):
            start = ends[k - 1]
            stop = int(np.searchsorted(ends, start + length, side="left"))
            during = usage[k:stop] + (ends[k:stop] - start)
            at_end = left[stop] + (count - stop) * (start + length) + length
            if max(during.max(initial=0.0), at_end) + prompt <= capacity:
                return float(start)
        return float("inf")

    def _profile(self, g: int) -> tuple[np.ndarray, np.ndarray]:
        """left[i]: KV tokens now of the residents that end i-th or later, (count + 1,). peak[i]: highest planned peak
        at one of the first i ends, with the growth of a candidate that started now, (count + 1,)."""
        left, peak = self._left[g], self._peak[g]
        if left is None or peak is None:
            count = int(self._count[g])
            ends = self._ends[g, :count]
            left = np.zeros(count + 1)
            left[:count] = self._kv[g, :count][::-1].cumsum()[::-1]
            peak = np.zeros(count + 1)
            np.maximum.accumulate(left[:count] + (count - np.arange(count)) * ends + ends, out=peak[1:])
            self._left[g], self._peak[g] = left, peak
        return left, peak


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
