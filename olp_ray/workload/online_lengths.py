"""Output lengths learned from completions: what a request like this one turned out to be, by model, class and prompt.

Nothing is known of a request's own output: the same object predicts in the simulator's loop and in a live endpoint.

A request is looked up on four levels, from all requests over its model and its class to prompts of its size (powers of
two). The mean of a level is shrunk towards the mean of the level above with the weight of SHRINKAGE completions, and
that of the uppermost towards the prior: so the first prediction is the prior, and a level speaks for itself as far as
it has data. The prior is `prior_tokens`, and no prediction is above the request's own limit.

What finishes first is short, so early means are low; the prior counts against that. An output that its limit cut
counts as it came out.
"""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np

from olp_ray.core.types import Request
from olp_ray.errors import WorkloadError

PRIOR_TOKENS = 256.0
SHRINKAGE = 20.0  # completions
WINDOW = 512  # completions remembered by a level
MOST_LEVELS = 4096  # levels remembered; the one that learned longest ago goes first
QUANTILE_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
LEAST_FOR_QUANTILES = 32  # completions
RENEW_QUANTILES = 16  # completions after which the quantiles of a level are computed anew

Key = tuple[str | int, ...]
Quantiles = tuple[tuple[float, float], ...]  # (share, tokens), rising


class OnlineLengths:
    """Predicts from completions told so far; deterministic. Raises `WorkloadError` for a prior that is no length."""

    def __init__(self, prior_tokens: float = PRIOR_TOKENS) -> None:
        if not 1 <= prior_tokens < np.inf:
            raise WorkloadError(f"prior_tokens is {prior_tokens}; expected a finite number >= 1")
        self._prior_tokens = prior_tokens
        self._levels: dict[Key, _Level] = {}

    def predicted(self, request: Request) -> Request:
        """The request with a prediction of its mean output and, once a level has enough data, of quantiles."""
        mean = self._prior_tokens
        quantiles: Quantiles = ()
        for key in _keys(request):
            level = self._levels.get(key)
            if level is None:
                break
            mean = (level.total + SHRINKAGE * mean) / (len(level.outputs) + SHRINKAGE)
            quantiles = level.quantiles() or quantiles
        limit = request.max_output_tokens or np.inf
        return dataclasses.replace(
            request,
            predicted_output_tokens=float(min(mean, limit)),
            predicted_quantiles=tuple((share, min(tokens, float(limit))) for share, tokens in quantiles),
        )

    def learn(self, request: Request, output_tokens: int) -> None:
        """Take in a completion. Raises `WorkloadError` for fewer than 1 token; then nothing has changed."""
        if output_tokens < 1:
            raise WorkloadError(f"request {request.id!r} finished with {output_tokens} output tokens; expected >= 1")
        for key in _keys(request):
            level = self._levels.pop(key, None) or _Level()
            level.add(output_tokens)
            self._levels[key] = level
        while len(self._levels) > MOST_LEVELS:
            del self._levels[next(iter(self._levels))]

    def __len__(self) -> int:
        return len(self._levels)


class _Level:
    """The last WINDOW outputs of one kind of request, their sum and, as of lately, their quantiles."""

    def __init__(self) -> None:
        self.outputs: deque[int] = deque(maxlen=WINDOW)
        self.total = 0
        self._quantiles: Quantiles = ()
        self._unseen = 0

    def add(self, output_tokens: int) -> None:
        if len(self.outputs) == WINDOW:
            self.total -= self.outputs[0]
        self.outputs.append(output_tokens)
        self.total += output_tokens
        self._unseen += 1

    def quantiles(self) -> Quantiles:
        """Empty with fewer than LEAST_FOR_QUANTILES outputs."""
        if len(self.outputs) < LEAST_FOR_QUANTILES:
            return ()
        if not self._quantiles or self._unseen >= RENEW_QUANTILES:
            found = np.quantile(np.array(self.outputs), QUANTILE_LEVELS).tolist()
            self._quantiles, self._unseen = tuple(zip(QUANTILE_LEVELS, found, strict=True)), 0
        return self._quantiles


def _keys(request: Request) -> tuple[Key, ...]:
    """From all requests to those of this model, class and size of prompt."""
    model, kind = request.model, request.request_class
    return (), (model,), (model, kind), (model, kind, request.prompt_tokens.bit_length())
