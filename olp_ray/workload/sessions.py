"""Multi-turn sessions: each turn's prompt is the conversation so far and a new text, so prompts share prefixes.

Open loop: the next turn comes a nominal answer time and a think time after the last one, whether or not the answer is
finished. The table starts in the middle of things: sessions that began before its first request go on in it, with all
that was said before in their prompts. Which texts are how long is drawn by the caller's length function.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from olp_ray.config.workload import ArrivalsConfig, RateFrom, SessionsConfig
from olp_ray.workload.arrivals import draw_arrivals
from olp_ray.workload.lengths import Lengths

ANSWER_S_PER_TOKEN = 0.03  # how fast answers come, nominally: about an iteration of a busy A100
CONTEXT_TOKENS = 8192  # a session ends before the turn that would pass it: the context of the built-in 8B model
WARM_UP = 10  # mean lengths of a session before the first request; e^-10 of the sessions are longer
SESSION_STRIDE = 2**20  # block hashes of a session start at a multiple of this


class Turns(NamedTuple):
    """Turns in order of session and turn, arrays of equal length."""

    session: np.ndarray
    arrival_s: np.ndarray
    prompt: np.ndarray
    output: np.ndarray


def session_table(
    lengths: Lengths,
    arrivals: ArrivalsConfig,
    sessions: SessionsConfig,
    count: int,
    rate: float,
    rng: np.random.Generator,
    block_tokens: int,
) -> pd.DataFrame:
    """`count` requests at `rate` per second on average, in the columns of a trace with session and prefix_blocks.

    arrivals is the process of session starts; stated rates are of requests, and what follows a start follows later.
    A hash stands for block_tokens tokens; only whole blocks have one.
    """
    first_rate = arrivals.rates[0].rate if arrivals.rates else rate
    warm_up_s = WARM_UP * sessions.turns * _turn_s(lengths, sessions, rng)
    per_turn = _per_session(_delayed(arrivals, warm_up_s), sessions.turns)
    started = int(np.ceil((count + warm_up_s * first_rate) / sessions.turns))
    while True:
        started += int(np.ceil(0.2 * started)) + 10
        start_s = draw_arrivals(per_turn, started, rate / sessions.turns, rng)
        turns = _turns(lengths, sessions, start_s, rng)
        inside = np.flatnonzero((turns.arrival_s >= warm_up_s) & (turns.arrival_s <= start_s[-1]))
        if len(inside) >= count:
            break
    kept = inside[np.argsort(turns.arrival_s[inside], kind="stable")][:count]
    prompt, session = turns.prompt[kept], turns.session[kept]
    shared = sessions.shared_tokens // block_tokens
    return pd.DataFrame(
        {
            "arrived_at": turns.arrival_s[kept] - warm_up_s,
            "num_prefill_tokens": prompt,
            "num_decode_tokens": turns.output[kept],
            "session": [f"s{i}" for i in session],
            "prefix_blocks": [
                _blocks(i, tokens // block_tokens, shared)
                for i, tokens in zip(session.tolist(), prompt.tolist(), strict=True)
            ],
        }
    )


def _turns(lengths: Lengths, sessions: SessionsConfig, start_s: np.ndarray, rng: np.random.Generator) -> Turns:
    """Every turn of the sessions that start at these times, within the context."""
    turns = rng.geometric(1.0 / sessions.turns, len(start_s))
    session = np.repeat(np.arange(len(start_s)), turns)
    first = np.cumsum(turns) - turns  # each session's first turn
    text, output = lengths(len(session), rng)
    said = _running(text + output, first, turns)
    gap_s = ANSWER_S_PER_TOKEN * np.roll(output, 1) + rng.exponential(sessions.think_s, len(session))
    gap_s[first] = start_s
    within = sessions.shared_tokens + said <= CONTEXT_TOKENS
    found = Turns(session, _running(gap_s, first, turns), sessions.shared_tokens + said - output, output)
    return Turns(*(column[within] for column in found))


def _running(values: np.ndarray, first: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Sums so far within each session."""
    total = np.cumsum(values)
    return total - np.repeat((total - values)[first], turns)


def _turn_s(lengths: Lengths, sessions: SessionsConfig, rng: np.random.Generator) -> float:
    """Mean time from one turn to the next."""
    return sessions.think_s + ANSWER_S_PER_TOKEN * float(lengths(1000, rng)[1].mean())


def _delayed(arrivals: ArrivalsConfig, by_s: float) -> ArrivalsConfig:
    """Stated times count from the end of the warm-up, which has the first rate."""
    rates = tuple(
        RateFrom(from_s=piece.from_s + by_s if piece.from_s else 0.0, rate=piece.rate) for piece in arrivals.rates
    )
    return arrivals.model_copy(update={"rates": rates})


def _per_session(arrivals: ArrivalsConfig, turns: float) -> ArrivalsConfig:
    rates = tuple(RateFrom(from_s=piece.from_s, rate=piece.rate / turns) for piece in arrivals.rates)
    return arrivals.model_copy(update={"rates": rates})


def _blocks(session: int, count: int, shared: int) -> tuple[int, ...]:
    """Hashes of a prompt's whole blocks: the system prompt's are the same in every session."""
    own = (session + 1) * SESSION_STRIDE
    return (*range(min(count, shared)), *range(own + shared, own + count))
