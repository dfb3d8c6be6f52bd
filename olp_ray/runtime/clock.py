"""The live driver's clock: seconds since an epoch that survives a restart of the process."""

from __future__ import annotations

import time


class LiveClock:
    """Starts at 0 at `epoch_s` (Unix time; None: now). Within a process it never goes back.

    Nor does it from one process to the next: least_s is what the clock of the one before had reached, and this one goes
    on from there where the wall clock was set back or is another node's.
    """

    def __init__(self, epoch_s: float | None = None, least_s: float = 0.0) -> None:
        wall_s = time.time()
        self.epoch_s = wall_s if epoch_s is None else epoch_s
        began_s = max(wall_s - self.epoch_s, least_s)
        self._offset_s = began_s - time.monotonic()

    def __call__(self) -> float:
        return max(0.0, time.monotonic() + self._offset_s)
