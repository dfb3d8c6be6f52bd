"""How long requests are, by predictions and what completions taught: new ones, and what residents have left.

Notation
    symbol   meaning                                                        shape     unit     paper
    ell      calibrated mean length of a new request                        (J,)      tokens
    n        calibrated median length of a new request                      (J,)      tokens   o-hat_j
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel
from olp_ray.core.kernels.ordering import below, up_to
from olp_ray.core.kernels.records import Ratios

OVERRUN_SHARE = 0.15  # beyond every ratio seen, the mean of what is left, as a share of what has been decoded


@kernel
def bin_of(predicted: float, prompt_tokens: float, bin_edges: np.ndarray, prompt_edges: np.ndarray) -> int:
    """Index of the bin whose ratios speak for a prediction; edges as in `Ratios`."""
    row = below(bin_edges, predicted)
    edges = prompt_edges[row]
    return int(row * (len(edges) + 1) + below(edges, prompt_tokens))


@kernel
def bins_of_all(
    predicted: np.ndarray, prompt_tokens: np.ndarray, bin_edges: np.ndarray, prompt_edges: np.ndarray
) -> np.ndarray:
    """`bin_of` each prediction, int64 (n,)."""
    found = np.empty(len(predicted), dtype=np.int64)
    for i in range(len(found)):
        found[i] = bin_of(predicted[i], prompt_tokens[i], bin_edges, prompt_edges)
    return found


@kernel
def mean_length(predicted: float, prompt_tokens: float, known: Ratios) -> float:
    """ell of a new request, unrounded."""
    if not known.known:
        return predicted
    part = below(known.ratio_edges, prompt_tokens)
    return max(predicted * known.prompt_ratios[part], 1.0)


@kernel
def mean_lengths(predicted: np.ndarray, prompt_tokens: np.ndarray, known: Ratios) -> np.ndarray:
    """`mean_length` of each request, (n,)."""
    found = np.empty(len(predicted))
    for i in range(len(found)):
        found[i] = mean_length(predicted[i], prompt_tokens[i], known)
    return found


@kernel
def median_length(predicted: float, prompt_tokens: float, known: Ratios) -> float:
    """n of a new request, whole tokens >= 1."""
    median = 1.0
    if known.known:
        median = known.medians[bin_of(predicted, prompt_tokens, known.bin_edges, known.prompt_edges)]
    return max(np.rint(predicted * median), 1.0)


@kernel
def median_lengths(predicted: np.ndarray, prompt_tokens: np.ndarray, known: Ratios) -> np.ndarray:
    """`median_length` of each request, (n,)."""
    found = np.empty(len(predicted))
    for i in range(len(found)):
        found[i] = median_length(predicted[i], prompt_tokens[i], known)
    return found


@kernel
def remaining(decoded: float, predicted: float, prompt_tokens: float, level: float, known: Ratios) -> float:
    """Conditional quantile of the tokens that a resident has still to come; at least 1."""
    if not known.known:
        left = np.ceil(predicted) - decoded
        if left > 0:
            return max(left, 1.0)
    else:
        b = bin_of(predicted, prompt_tokens, known.bin_edges, known.prompt_edges)
        start, stop = known.starts[b], known.starts[b + 1]
        sought = min(decoded / predicted, known.span - 0.5) + known.span * b
        at = min(max(up_to(known.lookup, sought), start), stop)
        if at < stop:
            at += max(int(np.ceil(level * (stop - at))) - 1, 0)
            return max(np.ceil(predicted * known.ratios[at]) - decoded, 1.0)
    return np.ceil(-math.log(1.0 - level) * max(OVERRUN_SHARE * decoded, 1.0))


@kernel
def remaining_of_all(
    decoded: np.ndarray, predicted: np.ndarray, prompt_tokens: np.ndarray, level: float, known: Ratios
) -> np.ndarray:
    """`remaining` of each entry, arrays of shape (n,)."""
    found = np.empty(len(decoded))
    for i in range(len(decoded)):
        found[i] = remaining(decoded[i], predicted[i], prompt_tokens[i], level, known)
    return found
