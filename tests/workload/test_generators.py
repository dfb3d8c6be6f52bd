"""Generated arrivals and lengths have the moments that they claim, and one seed gives one table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from olp_ray.errors import ConfigError, WorkloadError
from olp_ray.workload import GENERATORS, generate
from olp_ray.workload.fits import FITS
from olp_ray.workload.generators import draw_lengths, gamma_arrivals, piecewise_arrivals, poisson_arrivals

RNG = np.random.default_rng


@pytest.mark.parametrize("name", GENERATORS)
def test_tables_are_valid_and_reproducible(name: str) -> None:
    frame = generate(name, 3000, 2.0, 7)
    pd.testing.assert_frame_equal(frame, generate(name, 3000, 2.0, 7))
    assert frame["arrived_at"].is_monotonic_increasing
    assert frame["num_prefill_tokens"].min() >= 1
    assert frame["num_decode_tokens"].min() >= 1
    assert (generate(name, 3000, 2.0, 8)["num_decode_tokens"] != frame["num_decode_tokens"]).any()


def test_poisson_gaps() -> None:
    gaps = np.diff(poisson_arrivals(40_000, 5.0, RNG(0)))
    assert abs(gaps.mean() - 0.2) < 0.004
    assert abs(gaps.std() / gaps.mean() - 1) < 0.03


def test_gamma_gaps_have_their_variation() -> None:
    gaps = np.diff(gamma_arrivals(40_000, 5.0, 3.0, RNG(0)))
    assert abs(gaps.mean() - 0.2) < 0.02
    assert abs(gaps.std() / gaps.mean() - 3) < 0.2


def test_piecewise_rates() -> None:
    times = piecewise_arrivals([(10_000, 0.4), (10_000, 0.6)], RNG(0))
    assert (np.diff(times) >= 0).all()
    first = (times < 10_000).sum()
    assert abs(first / 10_000 - 0.4) < 0.03
    assert abs((len(times) - first) / 10_000 - 0.6) < 0.03


def test_lmsys_lengths_are_those_of_the_published_chats() -> None:
    frame = generate("lmsys", 40_000, 1.0, 0)
    assert abs(frame["num_decode_tokens"].mean() - 1.3 * 160.5) < 6  # words of the sample, 1.3 tokens each
    assert abs(frame["num_prefill_tokens"].mean() - 1.3 * 59.1) < 4


def test_chat1m_totals_stay_below_the_published_limit() -> None:
    frame = generate("chat1m", 20_000, 1.0, 0)
    assert (frame["num_prefill_tokens"] + frame["num_decode_tokens"]).max() <= 4096
    assert abs(frame["num_prefill_tokens"].mean() - 686) < 20
    assert abs(frame["num_decode_tokens"].mean() - 211) < 6


@pytest.mark.parametrize(("name", "ratio"), [("pd_1_4", 0.25), ("pd_4_1", 4.0)])
def test_prompt_to_output_ratio(name: str, ratio: float) -> None:
    frame = generate(name, 5000, 1.0, 0)
    assert frame["num_prefill_tokens"].sum() / frame["num_decode_tokens"].sum() == pytest.approx(ratio, rel=0.01)


def test_limits_and_spikes_of_a_fit() -> None:
    tokens = draw_lengths(FITS["arena_output_tok"], 20_000, RNG(0))
    assert tokens.max() <= 1023
    assert np.isin(tokens, [511, 512, 513, 514]).mean() > 0.15


def test_bad_requests_are_errors() -> None:
    with pytest.raises(ConfigError, match="did you mean 'lmsys'"):
        generate("lmsis", 10, 1.0, 0)
    with pytest.raises(WorkloadError, match="expected both > 0"):
        poisson_arrivals(3, 0.0, RNG(0))
    with pytest.raises(WorkloadError, match="expected duration > 0"):
        piecewise_arrivals([(0.0, 1.0)], RNG(0))
