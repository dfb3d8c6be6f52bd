"""Capacity changes that were told ahead of their time, per device. What the limits are now is the ledger's."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from olp_ray.core.numbers import is_finite, shown
from olp_ray.errors import EventError


class Limits(NamedTuple):
    """Of one device, from a time on."""

    from_s: float
    slots: int
    kv_tokens: int


class CapacityPlan:
    """Changes to come, in order of time, over the ledger's devices. next_s is the time of the next, inf for none."""

    def __init__(self) -> None:
        self._changes: list[list[Limits]] = []
        self._since_s: list[float] = []  # since when the limits in force hold
        self.next_s = math.inf

    def join(self) -> None:
        """A device without changes comes at the end."""
        self._changes.append([])
        self._since_s.append(-math.inf)

    def remove(self, g: int) -> None:
        del self._changes[g], self._since_s[g]
        self._renew()

    def add(self, g: int, device_id: str, limits: Limits) -> None:
        """A change; of two for one time the one told last counts. Raises `EventError`; then nothing has changed."""
        from_s, slots, kv_tokens = limits
        if not (all(map(is_finite, limits)) and slots >= 0 and kv_tokens >= 0):
            told = f"{shown(slots)} slots, {shown(kv_tokens)} KV tokens"
            raise EventError(
                f"capacity of {device_id!r} from {shown(from_s)} s is {told}; "
                "expected a finite time and finite numbers >= 0"
            )
        insort(self._changes[g], limits, key=lambda change: change.from_s)
        self._renew()

    def take_due(self, now_s: float) -> list[tuple[int, Limits]]:
        """Devices and their limits from now on; what was told late does not undo a change of a later time."""
        found = []
        for g, changes in enumerate(self._changes):
            while changes and changes[0].from_s <= now_s:
                limits = changes.pop(0)
                if limits.from_s >= self._since_s[g]:
                    self._since_s[g] = limits.from_s
                    found.append((g, limits))
        self._renew()
        return found

    def put_into(self, ahead: np.ndarray, now_s: float, bucket_s: float) -> None:
        """Write the changes into slots and KV tokens per bucket from now, (G, 2, N)."""
        for g, changes in enumerate(self._changes):
            for from_s, slots, kv_tokens in changes:
                first = int(max(from_s - now_s, 0.0) / bucket_s)
                ahead[g, 0, first:] = slots
                ahead[g, 1, first:] = kv_tokens

    def snapshot(self) -> dict[str, Any]:
        return {"changes": [list(changes) for changes in self._changes], "since_s": list(self._since_s)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._changes = [list(changes) for changes in state["changes"]]
        self._since_s = list(state["since_s"])
        self._renew()

    def _renew(self) -> None:
        self.next_s = min((changes[0].from_s for changes in self._changes if changes), default=math.inf)
