"""Prefill devices of a disaggregated fleet: one queue, first come first served, one prompt at a time on each.

Nothing can change a prompt's turn once it is in the queue, so its end is known when it comes.
"""

from __future__ import annotations

import heapq

from olp_ray.sim.latency import IterationTime, Stretch, to_fs, to_s


class FreePrefill:
    """Prompts are computed at no cost and in no time."""

    def submit(self, prompt_tokens: int, now_s: float) -> float:
        return now_s


class PrefillPool:
    """`devices` equal prefill devices that take chunk_tokens of a prompt in each iteration."""

    def __init__(self, devices: int, time: IterationTime, chunk_tokens: int) -> None:
        self._time = time
        self._chunk_tokens = chunk_tokens
        self._free_fs = [0] * devices

    def submit(self, prompt_tokens: int, now_s: float) -> float:
        """When the first token of this prompt is there. Call in order of time."""
        start_fs = max(to_fs(now_s), self._free_fs[0])
        end_fs = start_fs + prefill_fs(self._time, self._chunk_tokens, prompt_tokens)
        heapq.heapreplace(self._free_fs, end_fs)
        return to_s(end_fs)


def prefill_fs(time: IterationTime, chunk_tokens: int, prompt_tokens: int) -> int:
    """Time of a prompt alone on a device, in chunks; an empty prompt takes one iteration."""
    whole, rest = divmod(max(1, prompt_tokens), chunk_tokens)
    first = time.iteration_fs(0, 0, chunk_tokens, chunk_tokens * chunk_tokens)
    span = Stretch(first, time.half_pair * 2 * chunk_tokens * chunk_tokens).duration_fs(whole)
    if rest:
        span += time.iteration_fs(0, 0, rest, rest * (2 * whole * chunk_tokens + rest))
    return span
