"""How token lengths are drawn: from fitted mixtures, in pairs of prompt and output."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from olp_ray.workload.fits import FITS, LengthFit

Lengths = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]

CHAT1M_TOTAL_LIMIT = 4096  # prompt and output together, as the published chats were cut


def draw_lengths(fit: LengthFit, count: int, rng: np.random.Generator) -> np.ndarray:
    """int64 tokens (count,), at least 1."""
    words = _draw_mixture(fit, count, rng)
    if fit.limit is not None:
        while (over := words > fit.limit).any():
            words[over] = _draw_mixture(fit, int(over.sum()), rng)
    if fit.spike is not None:
        first, last, share = fit.spike
        piled = rng.random(count) < share
        words[piled] = rng.integers(first, last + 1, int(piled.sum()))
    return np.maximum(1, np.ceil(words * fit.scale)).astype(np.int64)


def _draw_mixture(fit: LengthFit, count: int, rng: np.random.Generator) -> np.ndarray:
    weights = np.array(fit.weights)
    part = rng.choice(len(weights), count, p=weights / weights.sum())
    return rng.lognormal(np.array(fit.mu)[part], np.array(fit.sigma)[part])


def fitted(prompt: str, output: str) -> Lengths:
    def draw(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return draw_lengths(FITS[prompt], count, rng), draw_lengths(FITS[output], count, rng)

    return draw


def chat1m(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    prompt, output = fitted("chat1m_prompt", "chat1m_output")(count, rng)
    while (over := prompt + output > CHAT1M_TOTAL_LIMIT).any():
        prompt[over], output[over] = fitted("chat1m_prompt", "chat1m_output")(int(over.sum()), rng)
    return prompt, output


def ratio(prompt_share: int, output_share: int) -> Lengths:
    """Totals as in LMSYS-like chats, split in a fixed ratio of prompt to output tokens."""

    def draw(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        prompt, output = fitted("lmsys_prompt_words", "lmsys_output_words")(count, rng)
        total = prompt + output
        decode = np.maximum(1, np.rint(total * output_share / (prompt_share + output_share))).astype(np.int64)
        return np.maximum(1, total - decode), decode

    return draw
