"""Orders and quantiles of plain numbers. Nothing here knows what they stand for."""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel, part


@kernel
def below(rising: np.ndarray, value: float) -> int:
    """How many of the rising numbers are less than this one: by bisection, since `np.searchsorted` compiles ten more
    functions."""
    low, high = 0, len(rising)
    while low < high:
        middle = (low + high) // 2
        if rising[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def up_to(rising: np.ndarray, value: float) -> int:
    """How many of the rising numbers are at most this one."""
    low, high = 0, len(rising)
    while low < high:
        middle = (low + high) // 2
        if rising[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def stable_order(keys: np.ndarray) -> np.ndarray:
    """Indices by rising key, equal ones as they come, int64 (n,): a merge sort."""
    count = len(keys)
    order, merged = np.arange(count), np.empty(count, dtype=np.int64)
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            middle, stop = min(start + width, count), min(start + 2 * width, count)
            i, j = start, middle
            for k in range(start, stop):
                if i < middle and (j >= stop or keys[order[i]] <= keys[order[j]]):
                    merged[k] = order[i]
                    i += 1
                else:
                    merged[k] = order[j]
                    j += 1
        order, merged = merged, order
        width *= 2
    return order


@kernel
def chosen(indices: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Those of the indices at which `where` holds, in their order."""
    found, count = np.empty(len(indices), dtype=np.int64), 0
    for i in indices:
        if where[i]:
            found[count] = i
            count += 1
    return found[:count]


@part
def quantile(values: np.ndarray, level: float) -> float:
    """As numpy's, linear between neighbours; for levels near 1, since it sorts what is above."""
    at = (len(values) - 1) * level
    below = int(np.floor(at))
    largest = np.full(len(values) - below, -math.inf)  # rising
    for value in values:
        if value > largest[0]:
            i = 0
            while i + 1 < len(largest) and largest[i + 1] < value:
                largest[i] = largest[i + 1]
                i += 1
            largest[i] = value
    low, high = largest[0], largest[min(1, len(largest) - 1)]
    part = at - below
    return high - (high - low) * (1.0 - part) if part >= 0.5 else low + (high - low) * part
