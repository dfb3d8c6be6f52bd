"""Output-length predictors for workloads whose true lengths are known: truth in, a seeded error on it out.

Predictors that learn from completions are the router's, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from olp_ray.config import nearest
from olp_ray.errors import ConfigError

Predict = Callable[[pd.DataFrame, np.random.Generator], np.ndarray]


@dataclass(frozen=True, slots=True)
class Predictor:
    """predict maps a workload (columns of `read_trace`) to float64 tokens >= 1, one per row."""

    name: str
    predict: Predict


def parse_predictor(text: str) -> Predictor:
    """Read `perfect`, `uniform:0.2` (factor within 1 +- 0.2), `lognormal:0.5` (sigma of the log error), `mean` or
    `class_mean` (mean of the request's class).

    Raises `ConfigError` naming the valid ones.
    """
    name, _, argument = text.partition(":")
    if name not in PREDICTORS:
        raise ConfigError(f"predictor {text!r} is unknown{nearest(name, PREDICTORS)}")
    predict, default, limit = PREDICTORS[name]
    if default is None:
        if argument:
            raise ConfigError(f"predictor {text!r}: {name} takes no number")
        return Predictor(text, predict)
    try:
        size = float(argument) if argument else default
    except ValueError:
        size = -1.0
    if not 0 <= size <= limit:
        raise ConfigError(f"predictor {text!r}: expected {name}:X with X from 0 to {limit:g}, got {argument!r}")
    return Predictor(text, partial(predict, size))


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


def _true(frame: pd.DataFrame) -> np.ndarray:
    return frame["num_decode_tokens"].to_numpy(dtype=np.float64)


# name -> (function, default of its number or None, largest number)
PREDICTORS: Mapping[str, tuple[Callable[..., np.ndarray], float | None, float]] = {
    "perfect": (_perfect, None, 0.0),
    "uniform": (_uniform, 0.2, 1.0),
    "lognormal": (_lognormal, 0.5, 5.0),
    "mean": (_mean, None, 0.0),
    "class_mean": (_class_mean, None, 0.0),
}
