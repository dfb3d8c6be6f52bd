"""The last rows of a table against a plain list."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from olp_ray.core.recent import Recent


@given(st.integers(1, 5), st.lists(st.one_of(st.floats(-9, 9), st.integers(0, 6)), max_size=60))
def test_it_holds_what_a_list_would(size, moves):
    """A float is appended; a whole number says how many of the last are kept."""
    recent, plain = Recent(size), []
    for move in moves:
        if isinstance(move, float):
            recent.append(move)
            plain = [*plain, move][-size:]
        else:
            recent.keep(move)
            plain = plain[len(plain) - min(move, len(plain)) :]
        assert recent.rows.tolist() == plain
        assert len(recent) == len(plain)


def test_rows_may_be_wider_and_be_replaced():
    recent = Recent(2, (3,))
    recent.replace(np.arange(9.0).reshape(3, 3))
    assert recent.rows.tolist() == [[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
    recent.append((1.0, 2.0, 3.0))
    assert recent.rows.tolist() == [[6.0, 7.0, 8.0], [1.0, 2.0, 3.0]]
