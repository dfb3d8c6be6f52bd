"""The last rows of a growing table, as one contiguous array. Nothing here knows what they stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Recent:
    """The last `size` rows that were appended, each of `shape`; float64, oldest first.

    `rows` is a view of a buffer of twice that size, valid until the next change.
    """

    def __init__(self, size: int, shape: tuple[int, ...] = ()) -> None:
        self._size = size
        self._buffer = np.empty((2 * size, *shape))
        self._start = self._stop = 0

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def rows(self) -> np.ndarray:
        return self._buffer[self._start : self._stop]

    def append(self, row: float | Sequence[float]) -> None:
        if self._stop == len(self._buffer):
            self._move_to_front()
        self._buffer[self._stop] = row
        self._stop += 1
        self._start = max(self._start, self._stop - self._size)

    def keep(self, count: int) -> None:
        """Forget all but the last `count` rows."""
        self._start = max(self._start, self._stop - count)

    def replace(self, rows: np.ndarray) -> None:
        """Hold these rows and no others."""
        kept = rows[-self._size :]
        self._buffer[: len(kept)] = kept
        self._start, self._stop = 0, len(kept)

    def _move_to_front(self) -> None:
        self.replace(self.rows.copy())
