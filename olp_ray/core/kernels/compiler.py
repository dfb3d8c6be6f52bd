"""How kernels are compiled. No kernel lives here."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar, cast

import numba

from olp_ray.core import kernels

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile `function` at its first call, and keep the machine code on disk for later processes.

    Beside the source, else in the user's cache directory, else where NUMBA_CACHE_DIR says; with none of these writable
    every process compiles anew, and a warning says so. Sums keep their order (no fastmath, no threads), so results do
    not depend on how a fleet is cut; division by zero gives inf or nan, as on arrays.
    """
    return _compiled(function)


def part(function: Function) -> Function:
    """As `kernel`, but written into each kernel that calls it: to pass all that a decision knows to one more function
    costs more to compile than its few lines, so this is for what is called in few places."""
    return _compiled(function, inline="always")


def _compiled(function: Function, **options: str) -> Function:
    options_of_all = {"error_model": "numpy", "no_cfunc_wrapper": True, **options}
    try:
        compiled = numba.njit(cache=True, **options_of_all)(function)
    except RuntimeError as error:
        warnings.warn(
            f"{error}; it is compiled in every process anew. Set NUMBA_CACHE_DIR to a writable directory.",
            RuntimeWarning,
            stacklevel=3,
        )
        compiled = numba.njit(**options_of_all)(function)
    else:
        _renew_with_all(compiled)
    return cast(Function, compiled)


def will_be_compiled(function: Callable[..., object]) -> bool:
    """Whether the first call of this kernel compiles it for the processes to come: the disk does not have it yet."""
    if numba.config.DISABLE_JIT:
        return False
    kept = getattr(function._cache, "_cache_file", None)  # type: ignore[attr-defined]
    return kept is not None and not kept._load_index()


def _renew_with_all(compiled: object) -> None:
    """Let a change of any kernel renew the code on disk: it holds that of the kernels that this one calls, and numba by
    itself looks at the kernel's own file only."""
    if numba.config.DISABLE_JIT:
        return
    kept = compiled._cache._cache_file  # type: ignore[attr-defined]
    kept._source_stamp = (kept._source_stamp, kernels.text_digest())
