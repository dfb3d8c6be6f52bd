"""Inner loops of the core over plain arrays, compiled by numba: each is the one implementation of its rule.

Numbers only: no requests, no devices, no state that outlives a call. Arguments are C-contiguous writable arrays of
float64, int64 and bool, one type per argument, so that each kernel is compiled once. Files are in the order in which
they call each other: ordering, lengths, holding, planning, admission, rejection; worth, pricing, appraisal; decision,
which is all of one decision of `online_lp`.

A submodule, and numba with it, is imported when first used: `kernels.planning.fits(...)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from olp_ray.core.kernels import (
        admission,
        appraisal,
        decision,
        holding,
        lengths,
        ordering,
        planning,
        pricing,
        rejection,
        worth,
    )

__all__ = [
    "admission",
    "appraisal",
    "decision",
    "holding",
    "lengths",
    "ordering",
    "planning",
    "pricing",
    "rejection",
    "worth",
]

text_digest: Callable[[], str]  # of the sources of all kernels: set by whoever may read files, before one is used


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
