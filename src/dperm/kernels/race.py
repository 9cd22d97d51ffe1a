"""Group totals of the two-level race, compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["group_totals"]


@njit(cache=True)
def group_totals(table: NDArray[np.float64], groups: Any, totals: NDArray[np.float64]) -> None:
    """Write log(sum(exp(table[g]))) for every g of ``groups`` into ``totals``."""
    for position in range(groups.size):
        g = groups[position]
        top = -math.inf
        for k in range(table.shape[1]):
            top = max(top, table[g, k])
        total = 0.0
        for k in range(table.shape[1]):
            total += math.exp(table[g, k] - top)
        totals[g] = top + math.log(total)
