"""Synthetic workloads: token lengths, arrival processes, and named combinations of both.

Everything is drawn from one seed; the same seed gives the same table, in the columns of `traces`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from olp_ray.config import nearest
from olp_ray.errors import ConfigError, WorkloadError
from olp_ray.workload.fits import FITS, LengthFit

Lengths = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]

CHAT1M_TOTAL_LIMIT = 4096  # prompt and output together, as the published chats were cut


@dataclass(frozen=True, slots=True)
class Generator:
    """A named workload: how lengths are drawn, and a line on what it stands for."""

    lengths: Lengths
    doc: str


def generate(name: str, count: int, rate: float, seed: int) -> pd.DataFrame:
    """`count` requests of the named workload with Poisson arrivals at `rate` requests per second.

    Raises `ConfigError` for an unknown name.
    """
    if name not in GENERATORS:
        raise ConfigError(f"workload {name!r} is unknown{nearest(name, GENERATORS)}")
    length_rng, arrival_rng = (np.random.default_rng([seed, stream]) for stream in (2, 3))
    prompt, output = GENERATORS[name].lengths(count, length_rng)
    return table(poisson_arrivals(count, rate, arrival_rng), prompt, output)


def table(times_s: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> pd.DataFrame:
    """The columns of a trace; arrays of equal length."""
    return pd.DataFrame({"arrived_at": times_s, "num_prefill_tokens": prompt, "num_decode_tokens": output})


# -- arrivals ---------------------------------------------------------------------------------------------------------


def poisson_arrivals(count: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Arrival times (count,) in seconds with exponential gaps of mean 1 / rate."""
    return gamma_arrivals(count, rate, 1.0, rng)


def gamma_arrivals(count: int, rate: float, variation: float, rng: np.random.Generator) -> np.ndarray:
    """Arrival times (count,) with Gamma gaps of mean 1 / rate and the given coefficient of variation."""
    if not (rate > 0 and variation > 0):
        raise WorkloadError(f"rate {rate} and variation {variation} of arrivals: expected both > 0")
    shape = 1.0 / variation**2
    return np.cumsum(rng.gamma(shape, 1.0 / (rate * shape), count))


def piecewise_arrivals(pieces: list[tuple[float, float]], rng: np.random.Generator) -> np.ndarray:
    """Poisson arrivals at rate r for d seconds, for each (d, r) in turn."""
    times: list[np.ndarray] = []
    start_s = 0.0
    for duration_s, rate in pieces:
        if not (duration_s > 0 and rate >= 0):
            raise WorkloadError(f"piece (duration {duration_s} s, rate {rate}): expected duration > 0 and rate >= 0")
        count = rng.poisson(rate * duration_s)
        times.append(start_s + np.sort(rng.uniform(0.0, duration_s, count)))
        start_s += duration_s
    return np.concatenate(times)


# -- lengths ----------------------------------------------------------------------------------------------------------


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


def _fitted(prompt: str, output: str) -> Lengths:
    def draw(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return draw_lengths(FITS[prompt], count, rng), draw_lengths(FITS[output], count, rng)

    return draw


def _chat1m(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    prompt, output = _fitted("chat1m_prompt", "chat1m_output")(count, rng)
    while (over := prompt + output > CHAT1M_TOTAL_LIMIT).any():
        prompt[over], output[over] = _fitted("chat1m_prompt", "chat1m_output")(int(over.sum()), rng)
    return prompt, output


def _ratio(prompt_share: int, output_share: int) -> Lengths:
    """Totals as in LMSYS-like chats, split in a fixed ratio of prompt to output tokens."""

    def draw(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        prompt, output = _fitted("lmsys_prompt_words", "lmsys_output_words")(count, rng)
        total = prompt + output
        decode = np.maximum(1, np.rint(total * output_share / (prompt_share + output_share))).astype(np.int64)
        return np.maximum(1, total - decode), decode

    return draw


GENERATORS: Mapping[str, Generator] = {
    "lmsys": Generator(_fitted("lmsys_prompt_words", "lmsys_output_words"), "LMSYS-like chats: short prompts"),
    "chat1m": Generator(_chat1m, "LMSYS-Chat-1M-like, whole conversation as prompt"),
    "arena": Generator(_fitted("arena_prompt_tok", "arena_output_tok"), "chat-arena-like: short prompts, output limit"),
    "pd_1_4": Generator(_ratio(1, 4), "prompt to output tokens 1:4: decode-heavy"),
    "pd_4_1": Generator(_ratio(4, 1), "prompt to output tokens 4:1: prefill-heavy"),
}
