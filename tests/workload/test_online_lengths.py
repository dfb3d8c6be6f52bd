"""What is learned of output lengths: the prior first, then levels with data, never nonsense, never the future."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from olp_ray.core.types import Request
from olp_ray.errors import WorkloadError
from olp_ray.workload import OnlineLengths
from olp_ray.workload.online_lengths import LEAST_FOR_QUANTILES, MOST_LEVELS, PRIOR_TOKENS, SHRINKAGE, WINDOW


def request(prompt: int = 100, **fields: object) -> Request:
    return Request("r", 0.0, prompt, 1.0, **fields)  # type: ignore[arg-type]


def mean(lengths: OnlineLengths, asked: Request) -> float:
    return lengths.predicted(asked).predicted_output_tokens


def test_before_anything_is_known_it_is_the_prior_or_the_limit_if_that_is_less() -> None:
    lengths = OnlineLengths()
    assert mean(lengths, request()) == PRIOR_TOKENS
    assert mean(lengths, request(max_output_tokens=10)) == 10
    assert mean(OnlineLengths(50.0), request(max_output_tokens=60)) == 50
    assert lengths.predicted(request()).predicted_quantiles == ()


def test_one_completion_moves_each_level_by_its_share() -> None:
    lengths = OnlineLengths(100.0)
    lengths.learn(request(), 205)
    expected = 100.0
    for _ in range(4):
        expected = (205 + SHRINKAGE * expected) / (1 + SHRINKAGE)
    assert mean(lengths, request()) == pytest.approx(expected)
    other_size = lengths.predicted(request(prompt=5000)).predicted_output_tokens
    assert 100 < mean(lengths, request(model="b")) < other_size < expected


def test_kinds_of_requests_are_told_apart_and_the_unknown_gets_the_mean_of_all() -> None:
    lengths = OnlineLengths()
    rng = np.random.default_rng(0)
    for _ in range(WINDOW):
        for prompt, typical in ((60, 50), (3000, 400)):
            lengths.learn(request(prompt), int(rng.poisson(typical)) + 1)
        lengths.learn(request(60, request_class="code"), 900)
    assert mean(lengths, request(50)) == pytest.approx(51, rel=0.5)
    assert mean(lengths, request(3500)) == pytest.approx(401, rel=0.05)
    assert mean(lengths, request(60, request_class="code")) == pytest.approx(900, rel=0.05)
    assert mean(lengths, request(60, model="new")) == pytest.approx((51 + 401 + 900) / 3, rel=0.1)


def test_quantiles_come_with_enough_data_rise_and_respect_the_limit() -> None:
    lengths = OnlineLengths()
    for i in range(LEAST_FOR_QUANTILES - 1):
        lengths.learn(request(), i + 1)
    assert lengths.predicted(request()).predicted_quantiles == ()
    lengths.learn(request(), LEAST_FOR_QUANTILES)
    found = dict(lengths.predicted(request()).predicted_quantiles)
    assert found[0.5] == pytest.approx((LEAST_FOR_QUANTILES + 1) / 2)
    assert list(found.values()) == sorted(found.values())
    assert max(dict(lengths.predicted(request(max_output_tokens=12)).predicted_quantiles).values()) == 12


def test_old_completions_are_forgotten() -> None:
    lengths = OnlineLengths()
    for tokens in (1000, 10):
        for _ in range(WINDOW):
            lengths.learn(request(), tokens)
    assert mean(lengths, request()) == pytest.approx(10, rel=0.05)
    assert dict(lengths.predicted(request()).predicted_quantiles)[0.9] == 10


def test_memory_is_bounded_whatever_classes_come() -> None:
    lengths = OnlineLengths()
    for i in range(3 * MOST_LEVELS):
        lengths.learn(request(request_class=f"c{i}"), 7)
    assert len(lengths) == MOST_LEVELS
    assert mean(lengths, request(request_class=f"c{3 * MOST_LEVELS - 1}")) < 30


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 10**7)), max_size=60), st.integers(1, 10**6))
def test_predictions_are_lengths_whatever_was_learned(seen: list[tuple[int, int]], limit: int) -> None:
    lengths, again = OnlineLengths(), OnlineLengths()
    for prompt, output in seen:
        lengths.learn(request(prompt), output)
        again.learn(request(prompt), output)
        asked = request(prompt, max_output_tokens=limit)
        assert 1 <= mean(lengths, asked) <= limit
        assert lengths.predicted(asked) == again.predicted(asked)


@pytest.mark.parametrize("output", [0, -3])
def test_a_completion_without_tokens_is_an_error_and_changes_nothing(output: int) -> None:
    lengths = OnlineLengths()
    with pytest.raises(WorkloadError, match=f"'r' finished with {output} output tokens"):
        lengths.learn(request(), output)
    assert mean(lengths, request()) == PRIOR_TOKENS


@pytest.mark.parametrize("prior", [0.0, -1.0, float("nan"), float("inf")])
def test_a_prior_that_is_no_length_is_an_error(prior: float) -> None:
    with pytest.raises(WorkloadError, match=r"expected a finite number >= 1"):
        OnlineLengths(prior)
