"""What has arrived lately: a window of past requests to sample from, and the arrival rate. No price is made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from olp_ray.core.types import Request
from olp_ray.errors import SnapshotError

PROMPT, PREDICTED, WEIGHT, OWN_E2E, OWN_TTFT = range(5)
_COLUMNS = 5


def own_thresholds(request: Request) -> tuple[float, float]:
    """The request's own E2E and TTFT thresholds in seconds, nan where it has none."""
    return (
        np.nan if request.slo_e2e_s is None else request.slo_e2e_s,
        np.nan if request.slo_ttft_s is None else request.slo_ttft_s,
    )


class ArrivalHistory:
    """The last `size` arrivals, and the times of the last `rate_window` ones."""

    def __init__(self, size: int, rate_window: int) -> None:
        self._size = size
        self._rate_window = rate_window
        self._rows = np.empty((0, _COLUMNS))
        self._times_s = np.empty(0)
        self.seen = 0

    def add(self, requests: Sequence[Request], weights: np.ndarray) -> None:
        """Append arrivals, oldest first, with the multiplier of each one's reward, (n,)."""
        if not requests:
            return
        rows = [(r.prompt_tokens, r.predicted_output_tokens, 0.0, *own_thresholds(r)) for r in requests]
        table = np.array(rows, dtype=np.float64)
        table[:, WEIGHT] = weights
        times_s = np.array([r.arrival_s for r in requests])
        self._rows = np.concatenate([self._rows, table])[-self._size :]
        self._times_s = np.concatenate([self._times_s, times_s])[-self._rate_window :]
        self.seen += len(requests)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> np.ndarray:
        """(n, 5) oldest first; columns PROMPT, PREDICTED, WEIGHT, OWN_E2E, OWN_TTFT (nan: the objective's)."""
        return self._rows

    def rate_per_s(self, now_s: float, tick_s: float) -> float:
        """Arrivals per second over the window, up to now; 0 with none. tick_s is the resolution of the clock."""
        if not len(self._times_s):
            return 0.0
        return len(self._times_s) / (now_s - float(self._times_s[0]) + tick_s)

    def snapshot(self) -> dict[str, Any]:
        return {
            "version": 1,
            "rows": self._rows.copy(),
            "times_s": self._times_s.copy(),
            "seen": self.seen,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a `snapshot` back. Raises `SnapshotError` for another version."""
        if state.get("version") != 1:
            raise SnapshotError(f"history snapshot of version {state.get('version')}; expected 1")
        self._rows = np.array(state["rows"])
        self._times_s = np.array(state["times_s"])
        self.seen = int(state["seen"])
