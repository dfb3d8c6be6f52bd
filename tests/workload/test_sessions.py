"""Sessions against their closed forms: how many turns, how far apart, at which rate, and which blocks they share."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from olp_ray.config.workload import ArrivalsConfig, SessionsConfig
from olp_ray.workload.generators import generate
from olp_ray.workload.sessions import ANSWER_S_PER_TOKEN, CONTEXT_TOKENS, session_table

TURNS, THINK_S, TEXT, ANSWER = 4.0, 10.0, 30, 20


def even_lengths(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every text has 30 tokens and every answer 20, so a prompt's length says which turn it is."""
    return np.full(count, TEXT), np.full(count, ANSWER)


def even_sessions(count: int, rate: float = 2.0, shared: int = 0, arrivals: str = "poisson") -> pd.DataFrame:
    sessions = SessionsConfig(turns=TURNS, think_s=THINK_S, shared_tokens=shared)
    rng = np.random.default_rng(0)
    return session_table(even_lengths, ArrivalsConfig.parse(arrivals), sessions, count, rate, rng, block_tokens=16)


def turn(frame: pd.DataFrame) -> pd.Series:
    return (frame["num_prefill_tokens"] - TEXT) // (TEXT + ANSWER)


def test_shares_of_turns_are_geometric_from_the_first_request_on() -> None:
    frame = even_sessions(40_000)
    for part in (frame[:5000], frame[-5000:]):
        for k in range(4):
            share = (1 - 1 / TURNS) ** k / TURNS
            assert (turn(part) == k).mean() == pytest.approx(share, abs=5 * math.sqrt(share / 5000))


def test_time_between_turns() -> None:
    frame = even_sessions(20_000)
    gaps = frame.groupby("session")["arrived_at"].diff().dropna() - ANSWER_S_PER_TOKEN * ANSWER
    assert gaps.min() > 0
    assert gaps.mean() == pytest.approx(THINK_S, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)


def test_rate_of_requests() -> None:
    frame = even_sessions(20_000)
    assert frame["arrived_at"].is_monotonic_increasing
    # a cluster process: the variance of counts is that of Poisson times E[N^2] / E[N] = 2 turns - 1
    half_width = 4 * math.sqrt((2 * TURNS - 1) / len(frame))
    assert len(frame) / frame["arrived_at"].iloc[-1] == pytest.approx(2.0, rel=half_width)


def test_stated_rates_are_of_requests() -> None:
    times = even_sessions(30_000, arrivals="rates:2@0,6@3000")["arrived_at"]
    assert (times < 3000).sum() / 3000 == pytest.approx(2.0, rel=0.15)
    settled = times[times > 3000 + 10 * TURNS * THINK_S]
    assert (len(settled) - 1) / (settled.iloc[-1] - settled.iloc[0]) == pytest.approx(6.0, rel=0.1)


def test_blocks_grow_by_turn_and_are_shared_with_nobody_else_but_for_the_system_prompt() -> None:
    frame = even_sessions(3000, shared=40)
    owner: dict[int, str] = {}
    for name, rows in frame.groupby("session"):
        for earlier, later in pairwise(rows["prefix_blocks"]):
            assert later[: len(earlier)] == earlier
            assert len(later) > len(earlier)
        for blocks, prompt in zip(rows["prefix_blocks"], rows["num_prefill_tokens"], strict=True):
            assert len(blocks) == prompt // 16
            assert blocks[:2] == (0, 1)  # 40 shared tokens are two whole blocks of 16
            assert all(owner.setdefault(block, str(name)) == name for block in blocks[2:])


def test_prompts_hold_what_was_said_and_sessions_end_at_the_context() -> None:
    frame = generate("lmsys", 5000, 5.0, 1, sessions=SessionsConfig(turns=20, think_s=5))
    assert (frame["num_prefill_tokens"] + frame["num_decode_tokens"]).max() <= CONTEXT_TOKENS
    for _, rows in frame.groupby("session"):
        said = (rows["num_prefill_tokens"] + rows["num_decode_tokens"]).shift().dropna()
        assert (rows["num_prefill_tokens"][said.index] > said).all()
    pd.testing.assert_frame_equal(frame, generate("lmsys", 5000, 5.0, 1, sessions=SessionsConfig(turns=20, think_s=5)))
