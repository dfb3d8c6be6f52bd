"""The live driver's clock: seconds since an epoch that survives a restart of the process."""

from __future__ import annotations

import time


class LiveClock:
    """Starts at 0 at `epoch_s` (Unix time; None: now). Within a process it never goes back."""

    def __init__(self, epoch_s: float | None = None) -> None:
        wall_s = time.time()
        self.epoch_s = wall_s if epoch_s is None else epoch_s
        self._offset_s = (wall_s - self.epoch_s) - time.monotonic()

    def __call__(self) -> float:
        return max(0.0, time.monotonic() + self._offset_s)
