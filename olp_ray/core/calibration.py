"""What completed requests teach about predictions: how long a request really is, given what was predicted.

Notation
    symbol   meaning                                         unit     paper
    o, o^    true and predicted output length                tokens   o_j, o-hat_j
    rho      length ratio o / o^
    theta    tokens decoded so far                           tokens   theta
    ell      calibrated mean length of a new request         tokens
    n        calibrated median length of a new request       tokens

With fewer than MIN_SAMPLES completions everything is the identity: lengths are what was predicted. Afterwards ratios
are kept per bin of predicted length (BINS bins from BIN_SAMPLES completions on, else one), so that a predictor that is
wrong in one range is corrected in that range only. Beyond every ratio seen, what remains is taken as exponential with
a mean of a share of what has been decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.kernels.records import Ratios
from olp_ray.errors import SnapshotError

WINDOW = 512
MIN_SAMPLES = 16
REBUILD_EVERY = 32
BIN_SAMPLES = 160
BINS = 4
BINS_IN_ALL = 8  # by predicted length, and where predictions are few or equal, by prompt length
FEW_PROMPT_BINS = 3
SHRINKAGE = 20.0  # weight of the overall ratio against a prompt tercile's own, in requests of mean length


class Calibration:
    """Ratios of the last WINDOW completions, as of MIN_SAMPLES or the last REBUILD_EVERY-th completion."""

    def __init__(self) -> None:
        self._due: list[tuple[float, float, float]] = []  # samples to rebuild from before the next look
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=WINDOW)  # prompt, predicted and true output
        self._seen = 0
        self._set_identity()

    @property
    def is_identity(self) -> bool:
        self._renew()
        return self._identity

    @property
    def ratios(self) -> Ratios:
        """Ratios of true to predicted length, as kernels take them."""
        self._renew()
        return self._ratios

    @property
    def log_error(self) -> float:
        """Standard deviation of ln(o / o^) within bins: how far lengths are off after calibration; 0 while unknown."""
        return self.ratios.log_error

    def add(self, prompt_tokens: float, predicted_tokens: float, output_tokens: float) -> None:
        """Learn one completion."""
        self._samples.append((prompt_tokens, predicted_tokens, max(output_tokens, 1.0)))
        self._seen += 1
        if self._seen == MIN_SAMPLES or (self._seen > MIN_SAMPLES and self._seen % REBUILD_EVERY == 0):
            self._due = list(self._samples)

    def mean_length(self, predicted_tokens: np.ndarray, prompt_tokens: np.ndarray) -> np.ndarray:
        """ell for new requests, tokens, unrounded; arrays of one shape."""
        return kernels.lengths.mean_lengths(_floats(predicted_tokens), _floats(prompt_tokens), self.ratios)

    def median_length(self, predicted_tokens: np.ndarray, prompt_tokens: np.ndarray) -> np.ndarray:
        """n for new requests, whole tokens >= 1; arrays of one shape."""
        return kernels.lengths.median_lengths(_floats(predicted_tokens), _floats(prompt_tokens), self.ratios)

    def remaining(
        self, decoded: np.ndarray, predicted_tokens: np.ndarray, prompt_tokens: np.ndarray, level: float
    ) -> np.ndarray:
        """Conditional quantile of the tokens still to come, given `decoded`; at least 1. Arrays of one shape.

        The ratio's distribution is conditioned on exceeding what is decoded already; past every ratio seen, the
        remainder is exponential.
        """
        given = np.broadcast_arrays(decoded, predicted_tokens, prompt_tokens)
        theta, said, prompt = (_floats(values).ravel() for values in given)
        return kernels.lengths.remaining_of_all(theta, said, prompt, level, self.ratios).reshape(np.shape(decoded))

    def snapshot(self) -> dict[str, Any]:
        self._renew()
        return {
            "version": 1,
            "samples": np.array(self._samples).reshape(-1, 3),
            "seen": self._seen,
            "built": self._built.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a `snapshot` back. Raises `SnapshotError` for another version."""
        if state.get("version") != 1:
            raise SnapshotError(f"calibration snapshot of version {state.get('version')}; expected 1")
        self._set_identity()
        self._due = []
        if len(state["built"]):
            self._rebuild(np.asarray(state["built"], dtype=np.float64))
        self._samples = deque(map(tuple, np.asarray(state["samples"]).tolist()), maxlen=WINDOW)
        self._seen = int(state["seen"])

    def _renew(self) -> None:
        if self._due:
            self._rebuild(np.array(self._due, dtype=np.float64))
            self._due = []

    def _set_identity(self) -> None:
        self._identity = True
        self._built = np.empty((0, 3))
        nothing = np.empty(0)
        self._ratios = Ratios(
            False, nothing, np.empty((1, 0)), np.zeros(2, dtype=np.int64), nothing, nothing, 1.0, *(nothing,) * 3, 0.0
        )

    def _rebuild(self, samples: np.ndarray) -> None:
        self._identity = False
        self._built = samples
        prompt, predicted, output = samples.T
        ratio = output / predicted
        self._set_edges(prompt, predicted)
        bins = kernels.lengths.bins_of_all(_floats(predicted), _floats(prompt), self._bin_edges, self._prompt_edges)
        order = np.lexsort((ratio, bins))
        cuts = self._prompt_edges.shape[1] + 1
        counts = np.bincount(bins, minlength=len(self._prompt_edges) * cuts)
        starts = np.concatenate([[0], np.cumsum(counts)])
        pieces = np.split(ratio[order], starts[1:-1])
        overall = _middle(np.sort(ratio))
        medians = np.array([_middle(piece) if len(piece) else overall for piece in pieces])
        spread = np.log(ratio[order] / np.repeat(medians, counts))
        span = float(ratio.max()) + 1.0
        lookup = ratio[order] + span * np.repeat(np.arange(len(counts)), counts)
        self._ratios = Ratios(
            True,
            *(self._bin_edges, self._prompt_edges, starts, ratio[order], lookup, span, medians),
            *_prompt_ratios(prompt, predicted, output),
            float(spread.std()),
        )

    def _set_edges(self, prompt: np.ndarray, predicted: np.ndarray) -> None:
        """Bins by predicted length, each cut by prompt length as far as BINS_IN_ALL goes."""
        enough = len(predicted) >= BIN_SAMPLES
        edges = _cuts(predicted, BINS) if enough else np.empty(0)
        self._bin_edges = np.unique(edges[edges < predicted.max()]) if enough else edges
        rows = len(self._bin_edges) + 1
        cuts = max(1, BINS_IN_ALL // rows) if enough else 1
        by_length = np.searchsorted(self._bin_edges, predicted, side="left")
        parts = [prompt[by_length == row] for row in range(rows)]
        self._prompt_edges = np.array([_cuts(part if len(part) else prompt, cuts) for part in parts])


def _middle(rising: np.ndarray) -> float:
    """The median of numbers in order."""
    return float(rising[(len(rising) - 1) // 2] + rising[len(rising) // 2]) / 2


def _cuts(values: np.ndarray, parts: int) -> np.ndarray:
    """Edges of that many parts of equal size: quantiles as numpy's, linear between neighbours."""
    rising = np.sort(values)
    at = np.arange(1, parts) / parts * (len(rising) - 1)
    below = at.astype(np.int64)
    low, high = rising[below], rising[np.minimum(below + 1, len(rising) - 1)]
    return np.where(at - below < 0.5, low + (high - low) * (at - below), high - (high - low) * (1 - (at - below)))


def _floats(values: np.ndarray) -> np.ndarray:
    """A contiguous copy of type float64, as kernels take it."""
    return np.array(values, dtype=np.float64, order="C")


def _prompt_ratios(prompt: np.ndarray, predicted: np.ndarray, output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges of parts by prompt length, and each part's ratio of true to predicted length, shrunk to that of all."""
    ratio = output.sum() / predicted.sum()
    prior = SHRINKAGE * ratio * predicted.mean()
    cuts = BINS_IN_ALL if len(prompt) >= BIN_SAMPLES else FEW_PROMPT_BINS
    edges = _cuts(prompt, cuts)
    part = np.searchsorted(edges, prompt, side="left")
    true_sum = np.bincount(part, weights=output, minlength=cuts)
    predicted_sum = np.bincount(part, weights=predicted, minlength=cuts)
    return edges, ratio * (true_sum + prior) / (ratio * predicted_sum + prior)
