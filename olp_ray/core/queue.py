"""The central waiting queue: requests in order (arrival_s, id) beside numpy columns of their numbers.

Here lives order and membership only; who may start is not decided here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from olp_ray.core.kernels.records import ARRIVAL_S, CAME_BACK, PREDICTED, PRIORITY, PROMPT, SLO_E2E_S, SLO_TTFT_S
from olp_ray.core.types import Request, RequestKey
from olp_ray.errors import EventError

_COLUMNS = 7


class Waiting(NamedTuple):
    """A request in the queue and the attempt (from 0) that would start now."""

    request: Request
    attempt: int


class WaitingQueue:
    """Ordered by (arrival_s, id, stage). Columns are float64 arrays of shape (len(queue),), read-only views."""

    def __init__(self) -> None:
        self._entries: list[Waiting] = []
        self._order: list[tuple[float, str, str]] = []
        self._keys: dict[RequestKey, Request] = {}
        self._columns = np.empty((_COLUMNS, 64))
        self._prioritised = 0
        self._came_back: set[RequestKey] = set()  # from a lost device, since the last `settle`
        self._written = 0  # entries whose numbers are in the columns; a later one may leave before they are asked for
        self._shown: np.ndarray | None = None  # what `_column` reads, while nobody comes or goes

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._entries)

    def __getitem__(self, index: int) -> Waiting:
        return self._entries[index]

    def __contains__(self, key: RequestKey) -> bool:
        return key in self._keys

    @property
    def prompt_tokens(self) -> np.ndarray:
        return self._column(PROMPT)

    @property
    def predicted_output_tokens(self) -> np.ndarray:
        return self._column(PREDICTED)

    @property
    def arrival_s(self) -> np.ndarray:
        return self._column(ARRIVAL_S)

    @property
    def priority(self) -> np.ndarray:
        return self._column(PRIORITY)

    @property
    def has_priorities(self) -> bool:
        """Whether any priority is not 0."""
        return self._prioritised > 0

    @property
    def slo_ttft_s(self) -> np.ndarray:
        """The request's own TTFT threshold; nan where the objective's holds."""
        return self._column(SLO_TTFT_S)

    @property
    def slo_e2e_s(self) -> np.ndarray:
        """The request's own E2E threshold; nan where the objective's holds."""
        return self._column(SLO_E2E_S)

    @property
    def columns(self) -> np.ndarray:
        """All of them, (7, len(queue) or more), as kernels take them."""
        self._write()
        return self._columns

    def add(self, request: Request, attempt: int, *, came_back: bool = False) -> None:
        """Insert in order. came_back: from a lost device, until `settle`. Raises `EventError` when the key waits."""
        if request.key in self._keys:
            raise EventError(f"request {request.id!r} ({request.stage}) already waits; ids must be unique")
        order = _order(request)
        at = bisect_left(self._order, order)
        self._shown = None
        if came_back:
            self._came_back.add(request.key)
        if at < self._written:
            self._open_gap(at)
            self._columns[:, at] = self._numbers(request)
            self._written += 1
        self._entries.insert(at, Waiting(request, attempt))
        self._order.insert(at, order)
        self._keys[request.key] = request
        self._prioritised += request.priority != 0

    def remove(self, request: Request) -> Waiting:
        """Take the request out. Raises `EventError` when it does not wait."""
        if request.key not in self._keys:
            raise EventError(f"request {request.id!r} ({request.stage}) does not wait")
        at = bisect_left(self._order, _order(request))
        self._shown = None
        if at < self._written:
            self._written -= 1
            self._columns[:, at : self._written] = self._columns[:, at + 1 : self._written + 1]
        del self._keys[request.key]
        self._came_back.discard(request.key)
        self._prioritised -= request.priority != 0
        del self._order[at]
        return self._entries.pop(at)

    def settle(self) -> None:
        """A decision was made: what came back has been offered."""
        if self._came_back:
            self._came_back.clear()
            self._columns[CAME_BACK, : self._written] = 0.0

    def find(self, key: RequestKey) -> Waiting | None:
        """The entry of this key, or None."""
        request = self._keys.get(key)
        return None if request is None else self._entries[bisect_left(self._order, _order(request))]

    def _open_gap(self, at: int) -> None:
        self._reserve(self._written + 1)
        self._columns[:, at + 1 : self._written + 1] = self._columns[:, at : self._written]

    def _reserve(self, size: int) -> None:
        while size > self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.empty_like(self._columns)], axis=1)

    def _column(self, row: int) -> np.ndarray:
        if self._shown is None:
            self._write()
            self._shown = self._columns[:, : len(self._entries)]
            self._shown.flags.writeable = False
        return self._shown[row]

    def _write(self) -> None:
        """Put the numbers of the entries at the end that are not in the columns yet."""
        first, size = self._written, len(self._entries)
        if first < size:
            self._reserve(size)
            self._columns[:, first:size] = np.array([self._numbers(entry.request) for entry in self._entries[first:]]).T
            self._written = size

    def _numbers(self, request: Request) -> tuple[float, ...]:
        return (
            request.prompt_tokens,
            request.predicted_output_tokens,
            request.arrival_s,
            request.priority,
            np.nan if request.slo_ttft_s is None else request.slo_ttft_s,
            np.nan if request.slo_e2e_s is None else request.slo_e2e_s,
            request.key in self._came_back,
        )


def _order(request: Request) -> tuple[float, str, str]:
    return (request.arrival_s, request.id, request.stage)
