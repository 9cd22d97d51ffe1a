"""One coordinate's clipped gradient sum in one pass over a dense column, compiled.

Only additions, products, comparisons and truncation are used, so an element's value does not depend on where it stands
or on how the compiler splits the loop; what is summed are whole numbers, exact in any order.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["add_multiple", "clipped_column_sum", "residual_column_sum"]

FloatArray = NDArray[np.float64]

_ANY_ORDER = {"reassoc", "nsz"}  # for the sum of whole numbers only


@njit(cache=True)
def add_multiple(scores: FloatArray, column: FloatArray, change: float) -> None:
    """scores += change * column, in place; all whole."""
    for i in range(scores.size):
        scores[i] += column[i] * change


@njit(cache=True)
def _residual_slopes(
    scores: FloatArray, spacing: float, target: FloatArray, bound: float, grid: float, out: FloatArray
) -> None:
    # its own loop without reassociation: these are not whole numbers yet
    per_grid = 1.0 / grid  # grids are powers of two, so multiplying is exact and as good as dividing
    for i in range(out.size):
        out[i] = np.trunc(min(max(scores[i] * spacing - target[i], -bound), bound) * per_grid)


@njit(cache=True, fastmath=_ANY_ORDER)
def clipped_column_sum(column: FloatArray, slopes: FloatArray, limit: float) -> float:
    """Sum of column * slopes, each product clipped; all whole."""
    total = 0.0
    for i in range(slopes.size):
        total += min(max(column[i] * slopes[i], -limit), limit)
    return total


@njit(cache=True)
def residual_column_sum(
    column: FloatArray,
    scores: FloatArray,
    spacing: float,
    target: FloatArray,
    bound: float,
    grid: float,
    limit: float,
    work: FloatArray,
) -> float:
    """The same with slopes clip(scores * spacing - target), rounded toward zero to multiples of ``grid``."""
    total = 0.0
    rows = work.size
    for start in range(0, scores.size, rows):  # small enough to stay in the nearest cache between the two loops
        stop = min(start + rows, scores.size)
        part = work[: stop - start]
        _residual_slopes(scores[start:stop], spacing, target[start:stop], bound, grid, part)
        total += clipped_column_sum(column[start:stop], part, limit)
    return total
