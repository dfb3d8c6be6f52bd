"""How much prompt each device has yet to prefill, and how fast it does so. Estimates only; nothing is decided here.

Notation
    symbol   meaning                                                 shape    unit
    Q        prompt tokens assigned and not prefilled yet            (G,)     tokens
    R        prompt tokens prefilled per second while some wait      (G,)     tokens/s; inf: prefill takes no time

Between reports Q drains like a fluid at R. A report says which residents have no first token yet: their prompts are an
upper bound of Q, and all of them but the one in progress a lower bound. R follows what was prefilled between two
reports with work left at both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from olp_ray.core import kernels

RATE_BLEND = 0.1  # weight of a new observation of the prefill rate


class PrefillTracker:
    """Backlog and rate per device, as arrays over the ledger's devices."""

    def __init__(self) -> None:
        self.rate_tokens_per_s = np.zeros(0)
        self._tokens = np.zeros(0)
        self._at_s = np.zeros(0)
        self._assigned = np.zeros(0)  # prompt tokens ever assigned
        self._reported_done = np.zeros(0)  # of these, prefilled by the last report; nan: nothing was left then
        self._reported_s = np.zeros(0)

    def join(self, rate_tokens_per_s: float) -> None:
        """Add an idle device at the end."""
        for name, value in zip(_ARRAYS, (rate_tokens_per_s, 0.0, 0.0, 0.0, np.nan, 0.0), strict=True):
            setattr(self, name, np.append(getattr(self, name), value))

    def remove(self, g: int) -> None:
        for name in _ARRAYS:
            setattr(self, name, np.delete(getattr(self, name), g))

    def add(self, g: int, tokens: float, now_s: float) -> None:
        """A prompt was assigned to device g (or has to be prefilled again)."""
        self._tokens[g] = self.backlog_on(g, now_s) + tokens
        self._at_s[g] = now_s
        self._assigned[g] += tokens

    def withdraw(self, g: int, tokens: float, pending_tokens: float) -> None:
        """A prompt was given up; pending_tokens is the sum of the prompts without a first token that are left."""
        self._tokens[g] = min(self._tokens[g], pending_tokens)
        self._assigned[g] -= tokens

    @property
    def state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """R, and Q as of the last look and its time, (G,) each, as kernels take them."""
        return self.rate_tokens_per_s, self._tokens, self._at_s

    def backlog(self, now_s: float) -> np.ndarray:
        """Q, (G,)."""
        return kernels.holding.backlogs(self._tokens, self._at_s, self.rate_tokens_per_s, now_s)

    def backlog_on(self, g: int, now_s: float) -> float:
        """Q of device g."""
        rate, passed_s = self.rate_tokens_per_s.item(g), now_s - self._at_s.item(g)
        if rate == math.inf:
            return 0.0
        left = self._tokens.item(g) - rate * passed_s if passed_s > 0 else self._tokens.item(g)
        return left if left > 0 else 0.0

    def backlog_time_s(self, g: int, now_s: float) -> float:
        """Q / R of device g."""
        return self.backlog_on(g, now_s) / self.rate_tokens_per_s.item(g)

    def takes_time(self, g: int) -> bool:
        """Whether R of device g is finite."""
        return self.rate_tokens_per_s.item(g) < math.inf

    def report(self, g: int, pending_tokens: float, oldest_tokens: float, now_s: float) -> None:
        """Residents of device g without a first token have prompts of pending_tokens, the oldest of oldest_tokens."""
        if not self.takes_time(g):
            return
        least = pending_tokens - oldest_tokens
        self._tokens[g] = min(max(self.backlog_on(g, now_s), least), pending_tokens)
        self._at_s[g] = now_s
        done = self._assigned.item(g) - pending_tokens
        before, since_s = self._reported_done.item(g), self._reported_s.item(g)
        if pending_tokens > 0 and not math.isnan(before) and done > before and now_s > since_s:
            observed, rate = (done - before) / (now_s - since_s), self.rate_tokens_per_s.item(g)
            self.rate_tokens_per_s[g] = rate + RATE_BLEND * (observed - rate)
        self._reported_done[g] = done if pending_tokens > 0 else math.nan
        self._reported_s[g] = now_s

    def snapshot(self) -> dict[str, Any]:
        return {name: getattr(self, name).copy() for name in _ARRAYS}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name in _ARRAYS:
            setattr(self, name, np.array(state[name]))


_ARRAYS = ("rate_tokens_per_s", "_tokens", "_at_s", "_assigned", "_reported_done", "_reported_s")
