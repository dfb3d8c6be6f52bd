"""How kernels are compiled. No kernel lives here."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile `function` at its first call, and keep the machine code on disk for later processes.

    Beside the source, else in the user's cache directory, else where NUMBA_CACHE_DIR says; with none of these writable
    every process compiles anew, and a warning says so. Sums keep their order (no fastmath, no threads), so results do
    not depend on how a fleet is cut; division by zero gives inf or nan, as on arrays.
    """
    try:
        compiled = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError as error:
        warnings.warn(
            f"{error}; it is compiled in every process anew. Set NUMBA_CACHE_DIR to a writable directory.",
            RuntimeWarning,
            stacklevel=2,
        )
        compiled = numba.njit(error_model="numpy")(function)
    return cast(Function, compiled)
