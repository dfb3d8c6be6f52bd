"""Output lengths of emulated engines: what an output turns out to be, and what the router may know of it."""

from __future__ import annotations

import zlib

import numpy as np

from olp_ray.workload.generators import generate

_POOL = 4096


class OutputLengths:
    """Draws from a generated workload. The same prompt, limit and seeds give the same output."""

    def __init__(self, workload: str, seed: int, most_tokens: int) -> None:
        drawn = generate(workload, _POOL, 1.0, seed)["num_decode_tokens"].to_numpy()
        self._pool = np.minimum(drawn, most_tokens)
        self._seed = seed

    def draw(self, prompt: str, request_seed: int, max_tokens: int | None) -> int:
        """Tokens that the engine will produce: min(max_tokens, a seeded draw)."""
        at = zlib.crc32(f"{self._seed}/{request_seed}/{prompt}".encode()) % _POOL
        drawn = int(self._pool[at])
        return drawn if max_tokens is None else min(drawn, max_tokens)

    def predict(self, max_tokens: int | None) -> float:
        """Mean output under this limit: all that is known before a request has run."""
        pool = self._pool if max_tokens is None else np.minimum(self._pool, max_tokens)
        return float(pool.mean())
