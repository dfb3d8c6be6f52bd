"""Synthetic workloads by name: lengths of one of `GENERATORS`, an arrival process, and sessions where asked for.

Everything is drawn from one seed; the same seed gives the same table, in the columns of `traces`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from olp_ray.config import nearest
from olp_ray.config.workload import ArrivalsConfig, SessionsConfig
from olp_ray.errors import ConfigError
from olp_ray.workload.arrivals import draw_arrivals
from olp_ray.workload.lengths import Lengths, chat1m, fitted, ratio
from olp_ray.workload.sessions import session_table


@dataclass(frozen=True, slots=True)
class Generator:
    """A named workload: how lengths are drawn, what it stands for, and where its numbers come from.

    per_turn says whether a prompt is one turn's text; then sessions can be made of it.
    """

    lengths: Lengths
    doc: str
    source: str
    per_turn: bool = True


def generate(
    name: str,
    count: int,
    rate: float,
    seed: int,
    *,
    arrivals: ArrivalsConfig | None = None,
    sessions: SessionsConfig | None = None,
    block_tokens: int = 512,
) -> pd.DataFrame:
    """`count` requests of the named workload at `rate` requests per second; Poisson arrivals unless told otherwise.

    With sessions the table has session and prefix_blocks, one hash for block_tokens tokens. Raises `ConfigError` for an
    unknown name, or for sessions of a workload whose prompts are whole conversations already.
    """
    if name not in GENERATORS:
        raise ConfigError(f"workload {name!r} is unknown{nearest(name, GENERATORS)}")
    generator, arrivals = GENERATORS[name], arrivals or ArrivalsConfig()
    length_rng, arrival_rng = (np.random.default_rng([seed, stream]) for stream in (2, 3))
    if sessions is None:
        prompt, output = generator.lengths(count, length_rng)
        return table(draw_arrivals(arrivals, count, rate, arrival_rng), prompt, output)
    if not generator.per_turn:
        turns = ", ".join(known for known, entry in GENERATORS.items() if entry.per_turn)
        raise ConfigError(f"workload {name!r}: its prompts hold whole conversations; sessions need one of {turns}")
    return session_table(generator.lengths, arrivals, sessions, count, rate, length_rng, block_tokens)


def table(times_s: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> pd.DataFrame:
    """The columns of a trace; arrays of equal length."""
    return pd.DataFrame({"arrived_at": times_s, "num_prefill_tokens": prompt, "num_decode_tokens": output})


LMSYS = "fit to summary statistics of LMSYS-Chat-1M (Zheng et al., 2023), 1.3 tokens per word"

GENERATORS: Mapping[str, Generator] = {
    "lmsys": Generator(fitted("lmsys_prompt_words", "lmsys_output_words"), "LMSYS-like chats: short prompts", LMSYS),
    "chat1m": Generator(
        chat1m,
        "LMSYS-Chat-1M-like, whole conversation as prompt",
        "published summary statistics of LMSYS-Chat-1M (Zheng et al., 2023), cut at 4096 tokens",
        per_turn=False,
    ),
    "arena": Generator(
        fitted("arena_prompt_tok", "arena_output_tok"),
        "chat-arena-like: short prompts, output limit",
        "fit to the arena trace in the artifact of VTC (Sheng et al., OSDI 2024)",
    ),
    "pd_1_4": Generator(ratio(1, 4), "prompt to output tokens 1:4: decode-heavy", f"totals of lmsys: {LMSYS}"),
    "pd_4_1": Generator(ratio(4, 1), "prompt to output tokens 4:1: prefill-heavy", f"totals of lmsys: {LMSYS}"),
}
