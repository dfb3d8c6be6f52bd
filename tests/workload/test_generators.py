"""Generated arrivals and lengths have the moments that they claim, and one seed gives one table."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

from olp_ray.config.workload import ArrivalsConfig, SessionsConfig
from olp_ray.errors import ConfigError
from olp_ray.workload import GENERATORS, generate
from olp_ray.workload.fits import FITS
from olp_ray.workload.lengths import draw_lengths

RNG = np.random.default_rng


@pytest.mark.parametrize("name", GENERATORS)
def test_tables_are_valid_and_reproducible(name: str) -> None:
    frame = generate(name, 3000, 2.0, 7)
    pd.testing.assert_frame_equal(frame, generate(name, 3000, 2.0, 7))
    assert frame["arrived_at"].is_monotonic_increasing
    assert frame["num_prefill_tokens"].min() >= 1
    assert frame["num_decode_tokens"].min() >= 1
    assert (generate(name, 3000, 2.0, 8)["num_decode_tokens"] != frame["num_decode_tokens"]).any()


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


@pytest.mark.parametrize("name", ["lmsys_prompt_words", "lmsys_output_words", "azure_code_output", "chat1m_output"])
def test_mean_of_a_fit_in_closed_form(name: str) -> None:
    """E[X; X <= limit] of a lognormal is exp(mu + sigma^2 / 2) Phi((ln limit - mu) / sigma - sigma)."""
    fit, log_limit = FITS[name], math.log(FITS[name].limit or math.inf)
    parts = list(zip(fit.weights, fit.mu, fit.sigma, strict=True))
    below = sum(w * ndtr((log_limit - m) / s) for w, m, s in parts)
    mean = sum(w * math.exp(m + s * s / 2) * ndtr((log_limit - m) / s - s) for w, m, s in parts) / below
    tokens = draw_lengths(fit, 200_000, RNG(0))
    half_width = 4 * tokens.std() / math.sqrt(len(tokens))
    assert tokens.mean() == pytest.approx(fit.scale * mean + 0.5, abs=half_width + 0.1)  # rounded up: half a token more


def test_bad_requests_are_errors() -> None:
    with pytest.raises(ConfigError, match="did you mean 'lmsys'"):
        generate("lmsis", 10, 1.0, 0)
    with pytest.raises(ConfigError, match="'chat1m': its prompts hold whole conversations; sessions need one of lmsys"):
        generate("chat1m", 10, 1.0, 0, sessions=SessionsConfig())


def test_every_workload_names_its_source() -> None:
    assert all("et al." in generator.source for generator in GENERATORS.values())


def test_arrivals_leave_lengths_as_they_are() -> None:
    plain, bursty = (
        generate("arena", 500, 2.0, 3),
        generate("arena", 500, 2.0, 3, arrivals=ArrivalsConfig.parse("gamma:3")),
    )
    columns = ["num_prefill_tokens", "num_decode_tokens"]
    assert plain[columns].equals(bursty[columns])
    assert np.diff(bursty["arrived_at"]).std() > 1.5 * np.diff(plain["arrived_at"]).std()
