"""Predictors keep what their name says, and never go below one token."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from olp_ray.config.workload import PREDICTOR_NAMES
from olp_ray.errors import ConfigError, WorkloadError
from olp_ray.workload import PREDICTORS, Predictor, make_requests, parse_predictor

FRAME = pd.DataFrame({"num_decode_tokens": np.random.default_rng(0).integers(1, 2000, 4000)})
TRUE = FRAME["num_decode_tokens"].to_numpy(dtype=float)


def predict(text: str, frame: pd.DataFrame = FRAME, seed: int = 0) -> np.ndarray:
    return parse_predictor(text).predict(frame, np.random.default_rng(seed))


def test_a_scenario_knows_the_names_that_there_are() -> None:
    assert tuple(PREDICTORS) == PREDICTOR_NAMES


def test_perfect() -> None:
    assert (predict("perfect") == TRUE).all()


def test_uniform_stays_within_its_width_and_fills_it() -> None:
    ratio = (predict("uniform:0.3") / TRUE)[TRUE > 10]
    assert 0.7 <= ratio.min() < 0.71
    assert 1.29 < ratio.max() <= 1.3
    assert abs(ratio.mean() - 1) < 0.01


def test_lognormal_has_its_sigma() -> None:
    log_ratio = np.log(predict("lognormal:0.5") / TRUE)[TRUE > 50]
    assert abs(log_ratio.std() - 0.5) < 0.02
    assert abs(log_ratio.mean()) < 0.03


def test_mean_and_class_mean() -> None:
    assert set(predict("mean")) == {TRUE.mean()}
    classed = FRAME.assign(request_class=np.where(TRUE > 1000, "long", "short"))
    assert set(predict("class_mean", classed)) == {TRUE[TRUE > 1000].mean(), TRUE[TRUE <= 1000].mean()}
    assert len(set(predict("class_mean"))) == 4


@pytest.mark.parametrize("text", ["perfect", "uniform:1", "lognormal:2", "mean", "class_mean", "cap", "online:1"])
def test_predictions_are_at_least_one_token(text: str) -> None:
    assert predict(text).min() >= 1


def test_a_seed_draws_the_errors() -> None:
    assert (predict("uniform:0.2", seed=1) == predict("uniform:0.2", seed=1)).all()
    assert (predict("uniform:0.2", seed=1) != predict("uniform:0.2", seed=2)).any()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("perfekt", r"'perfekt' is unknown; did you mean 'perfect'"),
        ("uniform:2", r"expected uniform:X with X from 0 to 1, got '2'"),
        ("lognormal:x", r"expected lognormal:X with X from 0 to 5, got 'x'"),
        ("mean:3", r"mean takes no number"),
        ("online:0", r"expected online:X with X from 1 to 1e\+06, got '0'"),
        ("cap:nan", r"expected cap:X with X from 1 to 1e\+06, got 'nan'"),
    ],
)
def test_bad_names_are_errors(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        parse_predictor(text)


def test_cap_is_the_limit_of_the_request_or_the_number() -> None:
    assert set(predict("cap:700")) == {700}
    assert predict("cap:700", FRAME.assign(max_output_tokens=np.arange(4000) + 1)).tolist() == list(range(1, 4001))


def test_online_starts_at_its_prior_and_learns_anew_in_every_run() -> None:
    predictor = parse_predictor("online:90")
    assert set(predictor.predict(FRAME, np.random.default_rng(0))) == {90}
    one, other = predictor.learner(), predictor.learner()
    assert one is not None
    assert one is not other
    assert parse_predictor("mean").learner() is None


@pytest.mark.parametrize("wrong", [0.0, -5.0, np.nan, np.inf, 0.99])
def test_nonsense_of_a_predictor_is_an_error_that_names_it(wrong: float) -> None:
    frame = FRAME.head(3).assign(arrived_at=[0.0, 1.0, 2.0], num_prefill_tokens=5)
    predictor = Predictor("mine", lambda frame, rng: np.array([4.0, wrong, 4.0]))
    with pytest.raises(WorkloadError, match=r"predictor 'mine' predicted .* for row 1; expected a finite number >= 1"):
        make_requests(frame, predictor, 0, rotate=False)


def test_predictions_of_the_wrong_shape_are_an_error() -> None:
    frame = FRAME.head(3).assign(arrived_at=[0.0, 1.0, 2.0], num_prefill_tokens=5)
    with pytest.raises(WorkloadError, match=r"predictor 'mine' made predictions of shape \(2,\) for 3 requests"):
        make_requests(frame, Predictor("mine", lambda frame, rng: np.ones(2)), 0, rotate=False)
