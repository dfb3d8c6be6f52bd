"""What has arrived lately: a window of past requests to sample from, and the arrival rate. No price is made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from olp_ray.core.types import Request
from olp_ray.errors import SnapshotError


class ArrivalHistory:
    """The last `size` arrivals (prompt tokens, predicted tokens) and the times of the last `rate_window` ones."""

    def __init__(self, size: int, rate_window: int) -> None:
        self._size = size
        self._rate_window = rate_window
        self._lengths = np.empty((0, 2))
        self._times_s = np.empty(0)
        self.seen = 0

    def add(self, requests: Sequence[Request]) -> None:
        """Append arrivals, oldest first."""
        if not requests:
            return
        lengths = np.array([(r.prompt_tokens, r.predicted_output_tokens) for r in requests], dtype=np.float64)
        times_s = np.array([r.arrival_s for r in requests])
        self._lengths = np.concatenate([self._lengths, lengths])[-self._size :]
        self._times_s = np.concatenate([self._times_s, times_s])[-self._rate_window :]
        self.seen += len(requests)

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def prompt_tokens(self) -> np.ndarray:
        """(n,) oldest first."""
        return self._lengths[:, 0]

    @property
    def predicted_tokens(self) -> np.ndarray:
        """(n,) oldest first."""
        return self._lengths[:, 1]

    def rate_per_s(self, now_s: float, tick_s: float) -> float:
        """Arrivals per second over the window, up to now; 0 with none. tick_s is the resolution of the clock."""
        if not len(self._times_s):
            return 0.0
        return len(self._times_s) / (now_s - float(self._times_s[0]) + tick_s)

    def snapshot(self) -> dict[str, Any]:
        return {
            "version": 1,
            "lengths": self._lengths.copy(),
            "times_s": self._times_s.copy(),
            "seen": self.seen,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a `snapshot` back. Raises `SnapshotError` for another version."""
        if state.get("version") != 1:
            raise SnapshotError(f"history snapshot of version {state.get('version')}; expected 1")
        self._lengths = np.array(state["lengths"])
        self._times_s = np.array(state["times_s"])
        self.seen = int(state["seen"])
