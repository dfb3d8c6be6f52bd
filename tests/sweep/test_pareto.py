"""The front and its volume against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.sweep.pareto import hypervolume, non_dominated

SIDE = 5


@st.composite
def small_points(draw: st.DrawFn) -> np.ndarray:
    columns = draw(st.integers(1, 4))
    row = st.lists(st.integers(0, SIDE), min_size=columns, max_size=columns)
    return np.array(draw(st.lists(row, min_size=1, max_size=9)), dtype=float)


def beats(a: np.ndarray, b: np.ndarray) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


@given(small_points())
def test_mask_is_the_definition(points: np.ndarray) -> None:
    plain = [not any(beats(other, point) for other in points) for point in points]
    assert non_dominated(points).tolist() == plain


@given(small_points())
@settings(deadline=None)
def test_volume_counts_unit_cells(points: np.ndarray) -> None:
    columns = points.shape[1]
    cells = itertools.product(range(SIDE), repeat=columns)
    dominated = sum(any((point <= cell).all() for point in points) for cell in map(np.array, cells))
    assert hypervolume(points, np.full(columns, SIDE)) == pytest.approx(dominated)


def test_dominated_points_add_no_volume() -> None:
    front = np.array([[1.0, 4.0], [2.0, 2.0], [4.0, 1.0]])
    more = np.vstack([front, [[3.0, 3.0], [9.0, 0.0]]])
    reference = np.array([5.0, 5.0])
    assert hypervolume(front, reference) == hypervolume(more, reference) == 4 + 6 + 1


def test_nan_is_never_on_the_front_and_beats_nothing() -> None:
    points = np.array([[np.nan, 0.0], [1.0, 1.0]])
    assert non_dominated(points).tolist() == [False, True]
    assert hypervolume(points, np.array([2.0, 2.0])) == 1.0


def test_nothing_below_the_reference() -> None:
    assert hypervolume(np.array([[3.0, 1.0]]), np.array([2.0, 2.0])) == 0.0
    assert hypervolume(np.empty((0, 2)), np.array([2.0, 2.0])) == 0.0


@pytest.mark.parametrize("points", [np.zeros(3), np.zeros((2, 0)), np.zeros((1, 2, 3))])
def test_wrong_shapes_are_named(points: np.ndarray) -> None:
    with pytest.raises(ValueError, match="points have shape"):
        non_dominated(points)


def test_reference_must_match() -> None:
    with pytest.raises(ValueError, match=r"reference has shape \(3,\); expected \(2,\)"):
        hypervolume(np.zeros((1, 2)), np.zeros(3))
