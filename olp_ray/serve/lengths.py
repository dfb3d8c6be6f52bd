"""Output lengths of emulated engines: what an output turns out to be, and what the router is told of it before."""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np

from olp_ray.config.serve import LengthPredictor
from olp_ray.core.types import Request
from olp_ray.workload.generators import generate
from olp_ray.workload.online_lengths import OnlineLengths

_POOL = 4096


class OutputLengths:
    """Draws from a generated workload. The same prompt, limit and seeds give the same output.

    predictor says what a prediction is: `online` learns from completions, `mean` is the workload's mean output under
    the request's limit, `cap` that limit, or most_tokens without one.
    """

    def __init__(self, workload: str, seed: int, most_tokens: int, predictor: LengthPredictor) -> None:
        drawn = generate(workload, _POOL, 1.0, seed)["num_decode_tokens"].to_numpy()
        self._pool = np.minimum(drawn, most_tokens)
        self._seed = seed
        self._most_tokens = most_tokens
        self._predictor = predictor
        self._online = OnlineLengths()

    def draw(self, prompt: str, request_seed: int, max_tokens: int | None) -> int:
        """Tokens that the engine will produce: min(max_tokens, a seeded draw)."""
        at = zlib.crc32(f"{self._seed}/{request_seed}/{prompt}".encode()) % _POOL
        drawn = int(self._pool[at])
        return drawn if max_tokens is None else min(drawn, max_tokens)

    def predicted(self, request: Request) -> Request:
        """The request with what is known of its output before it has run."""
        if self._predictor == "online":
            return self._online.predicted(request)
        limit = request.max_output_tokens or self._most_tokens
        tokens = float(limit if self._predictor == "cap" else np.minimum(self._pool, limit).mean())
        return dataclasses.replace(request, predicted_output_tokens=tokens)

    def learn(self, request: Request, output_tokens: int) -> None:
        """Take in a completion."""
        self._online.learn(request, output_tokens)
