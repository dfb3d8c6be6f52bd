"""What counts as a number: whole numbers may have any length in Python, and most are no float.

Here live the two questions that checks of input ask; which limits hold is said where a field is checked.
"""

from __future__ import annotations

import math
from typing import Any


def is_float(value: float) -> bool:
    """Whether it can be reckoned with: not nan, and no whole number beyond the largest float; inf is one."""
    try:
        return not math.isnan(value)
    except OverflowError:
        return False


def is_finite(value: float) -> bool:
    """Whether it is a finite float, or a whole number that can be one."""
    return is_float(value) and math.isfinite(value)


def shown(value: Any) -> str:
    """The text of a value for an error, whatever whole numbers it has."""
    try:
        return str(value)
    except ValueError:  # more digits than Python shows
        return f"a {type(value).__name__} with too many digits to show"
