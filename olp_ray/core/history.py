"""What has arrived lately: a window of past requests to sample from, and the arrival rate. No price is made here.

When the rate is found to have changed (`core.rate_change`), what arrived before is forgotten (paper Section 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from olp_ray.core.rate_change import RateChange
from olp_ray.core.recent import Recent
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
    """The last `size` arrivals, and the arrival rate over the last `rate_window` ones.

    seen counts arrivals, changes how often the rate was found to have changed, and changed_s is the time since when the
    present rate holds, as far as is known (-inf before the first change).
    """

    def __init__(self, size: int, rate_window: int) -> None:
        self._rate_window = rate_window
        self._rows = Recent(size, (_COLUMNS,))
        self._times_s = Recent(max(size, rate_window + 1))
        self._rate_change = RateChange()
        self._newest = 0  # arrivals of the last instant, which may be more than are kept
        self._before_s = -math.inf  # the instant of arrivals before that one
        self.seen = 0
        self.changes = 0
        self.changed_s = -math.inf

    def add(self, requests: Sequence[Request], weights: np.ndarray, tick_s: float, now_s: float) -> bool:
        """Append arrivals with the multiplier of each one's reward, (n,); whether the rate is found to have changed.

        tick_s is the resolution of the clock. One that is told late counts as arriving with the one told before it, and
        one that is stamped later than now as arriving now: the rate is that of what has come.
        """
        if not requests:
            return False
        last_s = float(self._times_s.rows[-1]) if len(self._times_s) else -math.inf
        times_s = []
        for request, weight in zip(requests, weights.tolist(), strict=True):
            arrival_s = min(request.arrival_s, now_s)
            if arrival_s > last_s:
                self._before_s, self._newest = last_s, 0
                last_s = arrival_s
            self._newest += 1
            times_s.append(last_s)
            self._times_s.append(last_s)
            own = own_thresholds(request)
            self._rows.append((request.prompt_tokens, request.predicted_output_tokens, weight, *own))
        self.seen += len(requests)
        changed_s = self._rate_change.add(times_s, tick_s)
        if changed_s is None:
            return False
        self._forget(changed_s)
        return True

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> np.ndarray:
        """(n, 5) oldest first; columns PROMPT, PREDICTED, WEIGHT, OWN_E2E, OWN_TTFT (nan: the objective's). Valid until
        the next `add`."""
        return self._rows.rows

    def rate_per_s(self, now_s: float, least_s: float) -> float:
        """Arrivals per second over the window, up to now; 0 while nothing has come since it opened.

        A window is opened by an arrival, which with those of the same instant is not counted: given that something
        arrived, that it did says nothing of how often. A window younger than least_s is taken to be that long, so that
        a burst is not taken for a rate. Where a burst is all that the window holds, since it fills the window or a
        change was found in it, the instant of arrivals before it opens the window: if there was one, the rate is not 0.
        """
        window = self._times_s.rows[-self._rate_window - 1 :]
        if not len(window):
            return 0.0
        opened_s = window[0]
        if window[-1] == opened_s and self._before_s > -math.inf:
            return self._newest / max(now_s - self._before_s, least_s)
        return float((window > opened_s).sum() / max(now_s - opened_s, least_s))

    def snapshot(self) -> dict[str, Any]:
        return {
            "version": 3,
            "rows": self._rows.rows.copy(),
            "times_s": self._times_s.rows.copy(),
            "rate_change": self._rate_change.snapshot(),
            "newest": self._newest,
            "before_s": self._before_s,
            "seen": self.seen,
            "changes": self.changes,
            "changed_s": self.changed_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a `snapshot` back. Raises `SnapshotError` for another version."""
        if state.get("version") != 3:
            raise SnapshotError(f"history snapshot of version {state.get('version')}; expected 3")
        self._rows.replace(np.asarray(state["rows"]).reshape(-1, _COLUMNS))
        self._times_s.replace(np.asarray(state["times_s"]))
        self._rate_change.restore(state["rate_change"])
        self._newest, self._before_s = int(state["newest"]), float(state["before_s"])
        self.seen, self.changes = int(state["seen"]), int(state["changes"])
        self.changed_s = float(state["changed_s"])

    def _forget(self, changed_s: float) -> None:
        """Keep what arrived from changed_s on; the arrival of that time opens the new window."""
        self.changes += 1
        self.changed_s = changed_s
        self._times_s.keep(int((self._times_s.rows >= changed_s).sum()))
        self._rows.keep(len(self._times_s))
