"""Output-length predictors of workloads: truth in, a seeded error on it out; or one that learns while a run goes on.

The router's calibration (`core.calibration`) works on top of any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from olp_ray.config import nearest
from olp_ray.errors import ConfigError, WorkloadError
from olp_ray.workload.online_lengths import PRIOR_TOKENS, OnlineLengths

Predict = Callable[[pd.DataFrame, np.random.Generator], np.ndarray]


@dataclass(frozen=True, slots=True)
class Predictor:
    """predict maps a workload (columns of `read_trace`) to float64 tokens >= 1, one per row.

    prior_tokens is not None for the one that learns: then `predict` gives what holds before anything is learned, and
    `learner` what the simulator's loop asks at each arrival.
    """

    name: str
    predict: Predict
    prior_tokens: float | None = None

    def learner(self) -> OnlineLengths | None:
        """A new one that has learned nothing, for one run; None when predictions do not change in a run."""
        return None if self.prior_tokens is None else OnlineLengths(self.prior_tokens)

    def checked(self, frame: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        """`predict`, or `WorkloadError` naming the first row whose prediction is not a finite number >= 1."""
        predicted = np.asarray(self.predict(frame, rng), dtype=np.float64)
        if predicted.shape != (len(frame),):
            raise WorkloadError(
                f"predictor {self.name!r} made predictions of shape {predicted.shape} for {len(frame)} requests"
            )
        wrong = np.flatnonzero(~(np.isfinite(predicted) & (predicted >= 1)))
        if len(wrong):
            raise WorkloadError(
                f"predictor {self.name!r} predicted {predicted[wrong[0]]} output tokens for row {wrong[0]}; "
                "expected a finite number >= 1"
            )
        return predicted


def parse_predictor(text: str) -> Predictor:
    """Read `perfect`, `uniform:0.2` (factor within 1 +- 0.2), `lognormal:0.5` (sigma of the log error), `mean`,
    `class_mean` (mean of the request's class), `cap:2000` (the workload's column max_output_tokens, 2000 for
    all without one) or `online:256` (learned from completions, 256 before the first).

    Raises `ConfigError` naming the valid ones.
    """
    name, _, argument = text.partition(":")
    if name not in PREDICTORS:
        raise ConfigError(f"predictor {text!r} is unknown{nearest(name, PREDICTORS)}")
    predict, default, least, limit = PREDICTORS[name]
    if default is None:
        if argument:
            raise ConfigError(f"predictor {text!r}: {name} takes no number")
        return Predictor(text, predict)
    try:
        size = float(argument) if argument else default
    except ValueError:
        size = -1.0
    if not least <= size <= limit:
        raise ConfigError(f"predictor {text!r}: expected {name}:X with X from {least:g} to {limit:g}, got {argument!r}")
    return Predictor(text, partial(predict, size), size if name == "online" else None)


def _perfect(frame: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    return _true(frame)


def _uniform(width: float, frame: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    return np.maximum(1.0, _true(frame) * rng.uniform(1 - width, 1 + width, len(frame)))


def _lognormal(sigma: float, frame: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    return np.maximum(1.0, _true(frame) * rng.lognormal(0.0, sigma, len(frame)))


def _mean(frame: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    return np.full(len(frame), max(1.0, float(_true(frame).mean())))


def _class_mean(frame: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """Without a column `request_class`, classes are the output's quartiles: a four-way length classifier."""
    true = pd.Series(_true(frame), index=frame.index)
    if "request_class" in frame:
        classes = frame["request_class"].to_numpy()
    else:
        classes = np.searchsorted(np.quantile(true, [0.25, 0.5, 0.75]), true)
    means = true.groupby(classes).transform("mean").to_numpy(dtype=np.float64)
    return np.asarray(np.maximum(1.0, means))


def _cap(tokens: float, frame: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    if "max_output_tokens" in frame:
        return frame["max_output_tokens"].to_numpy(dtype=np.float64)
    return np.full(len(frame), tokens)


def _prior(tokens: float, frame: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    return np.full(len(frame), tokens)


def _true(frame: pd.DataFrame) -> np.ndarray:
    return frame["num_decode_tokens"].to_numpy(dtype=np.float64)


# name -> (function, default of its number or None, least and largest number)
PREDICTORS: Mapping[str, tuple[Callable[..., np.ndarray], float | None, float, float]] = {
    "perfect": (_perfect, None, 0.0, 0.0),
    "uniform": (_uniform, 0.2, 0.0, 1.0),
    "lognormal": (_lognormal, 0.5, 0.0, 5.0),
    "mean": (_mean, None, 0.0, 0.0),
    "class_mean": (_class_mean, None, 0.0, 0.0),
    "cap": (_cap, 2000.0, 1.0, 1e6),
    "online": (_prior, PRIOR_TOKENS, 1.0, 1e6),
}
