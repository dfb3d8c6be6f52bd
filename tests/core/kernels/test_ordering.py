"""Orders and quantiles against numpy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from olp_ray.core.kernels import ordering

NUMBERS = st.sampled_from([-np.inf, -2.5, -0.0, 0.0, 1.0, 1.5, 7.0, np.inf])


@given(st.lists(NUMBERS, max_size=70))
def test_stable_order_is_that_of_numpy(keys):
    keys = np.array(keys, dtype=float)
    assert ordering.stable_order(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=120), st.floats(0.0, 1.0))
def test_quantile_is_that_of_numpy_to_the_bit(values, level):
    values = np.array(values)
    assert ordering.quantile(values, level) == np.quantile(values, level)


def test_chosen_keeps_the_order():
    where = np.array([True, False, True, True])
    assert ordering.chosen(np.array([3, 1, 0]), where).tolist() == [3, 0]


@given(st.lists(NUMBERS, max_size=40), NUMBERS)
def test_places_are_those_of_numpy(values, value):
    rising = np.sort(np.array(values, dtype=float))
    assert ordering.below(rising, value) == np.searchsorted(rising, value)
    assert ordering.up_to(rising, value) == np.searchsorted(rising, value, side="right")
