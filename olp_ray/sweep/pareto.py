"""The non-dominated set of many points, and the volume that it dominates. Pure numpy; knows nothing of trials.

Notation
    symbol   meaning                                   shape
    P        points, one row each, every column is to be made small    (n, m)
    r        reference point, worse than what counts                   (m,)
"""

from __future__ import annotations

import numpy as np


def non_dominated(points: np.ndarray) -> np.ndarray:
    """Mask (n,) of the points that no other point beats: at most equal in every column, smaller in one.

    Equal points stand or fall together. A point with a NaN is never in the set and beats nothing.
    """
    points = _as_points(points)
    mask = ~np.isnan(points).any(axis=1)
    for index in np.lexsort(points.T[::-1]):  # a point is dominated only by what comes before it in this order
        if not mask[index]:
            continue
        rest = points[mask]
        mask[index] = not ((rest <= points[index]).all(axis=1) & (rest < points[index]).any(axis=1)).any()
    return mask


def hypervolume(points: np.ndarray, reference: np.ndarray) -> float:
    """Volume between the points and `reference` (m,): larger is better; points not below it in every column add 0.

    Exact, by slicing along the last column (Zitzler's hypervolume by slicing objectives): fine up to a few hundred
    points in three columns.
    """
    points, reference = _as_points(points), np.asarray(reference, dtype=float)
    if reference.shape != (points.shape[1],):
        raise ValueError(f"reference has shape {reference.shape}; expected ({points.shape[1]},)")
    inside = points[(points < reference).all(axis=1)]
    return _volume(inside[non_dominated(inside)], reference)


def _volume(front: np.ndarray, reference: np.ndarray) -> float:
    if not len(front):
        return 0.0
    if front.shape[1] == 1:
        return float(reference[0] - front.min())
    front = front[np.argsort(front[:, -1], kind="stable")]
    ends = np.append(front[1:, -1], reference[-1])
    total = 0.0
    for count, (start, end) in enumerate(zip(front[:, -1], ends, strict=True), start=1):
        if end > start:
            slab = front[:count, :-1]
            total += (end - start) * _volume(slab[non_dominated(slab)], reference[:-1])
    return float(total)


def _as_points(points: np.ndarray) -> np.ndarray:
    points = np.asarray(points, dtype=float)
    if points.ndim != 2 or not points.shape[1]:
        raise ValueError(f"points have shape {points.shape}; expected (n, m) with m >= 1")
    return points
