"""A packing LP as flat arrays, and its dual function: what the paper's per-step LP and its SAA have in common.

Notation
    symbol   meaning                                                          shape   paper
    I, O, N  resources, options (columns), groups of options
    x        how much of an option is taken                                   (O,)    x_{j,g,k}
    r, a     value of an option, and what it uses of each resource            (O,)    r_{j,g,k}, a_{i,(j,g,k)}
    b        capacity                                                         (I,)    b_i, or d_k
    w        most that may be taken of a group                                (N,)    1, or 1 / |Hist|
    p, y     prices of resources, option values of groups                     (I,), (N,)

Primal: max r'x with A x <= b, sum of x over each group <= w, x >= 0. With w = 1 and a group per request this is eq. 4
and 5; with w = 1 / |Hist| and a group per column its dual is eq. 6. Nothing is solved here: see `core.exact_prices`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Options of a packing LP; the matrix is given by its entries (row, option, coefficient), all >= 0."""

    capacity: np.ndarray  # (I,) b
    value: np.ndarray  # (O,) r
    group: np.ndarray  # int64 (O,)
    limit: np.ndarray  # (N,) w
    row: np.ndarray  # int64 (Z,)
    option: np.ndarray  # int64 (Z,)
    coefficient: np.ndarray  # (Z,)

    def cost(self, prices: np.ndarray) -> np.ndarray:
        """a'p of each option, (O,)."""
        return np.bincount(self.option, weights=self.coefficient * prices[self.row], minlength=len(self.value))

    def option_value(self, prices: np.ndarray) -> np.ndarray:
        """y_j* = [max over the group of r - a'p]+, (N,) (Section 3.2)."""
        best = np.zeros(len(self.limit))
        np.maximum.at(best, self.group, self.value - self.cost(prices))
        return best

    def dual_objective(self, prices: np.ndarray) -> float:
        """b'p + w'y*(p): at least the optimum for every p >= 0, and equal to it at the best p (eq. 6)."""
        return float(self.capacity @ prices + self.limit @ self.option_value(prices))
