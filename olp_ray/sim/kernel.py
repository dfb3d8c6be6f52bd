"""The agenda of a simulation: what is due when, in order (time, priority, id). It knows nothing of requests or devices.

Entries are never removed; whoever reads them drops those that no longer hold.
"""

from __future__ import annotations

import heapq
import math

# what is due; at equal times the smaller one goes first
INCIDENT, BOUNDARY, PREFILLED, ARRIVAL, PROGRESS, WAKE = range(6)


class Agenda:
    """A heap of (time_s, kind, id)."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []

    def add(self, time_s: float, kind: int, entry_id: int = 0) -> None:
        """Put an entry; one at infinity never comes and is not kept."""
        if time_s < math.inf:
            heapq.heappush(self._heap, (time_s, kind, entry_id))

    @property
    def next_s(self) -> float:
        """Time of the first entry, inf when empty."""
        return self._heap[0][0] if self._heap else math.inf

    def pop_due(self, now_s: float) -> list[tuple[int, int]]:
        """(kind, id) of the entries at or before now_s, in order."""
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            _, kind, entry_id = heapq.heappop(self._heap)
            due.append((kind, entry_id))
        return due
