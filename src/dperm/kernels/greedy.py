"""Incremental gradient sums for sparse designs, compiled.

A step on one coordinate changes the slopes of the rows in which that coordinate is not zero, and through them the sums
of the columns that those rows touch. All numbers are whole: what is added and taken away leaves exactly the sum that a
full pass would give.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["update_sums"]

FloatArray = NDArray[np.float64]


@njit(cache=True)
def update_sums(
    rows: Any,
    old: FloatArray,
    new: FloatArray,
    data: FloatArray,
    indices: Any,
    indptr: Any,
    limits: FloatArray,
    sums: FloatArray,
    stamp: Any,
    mark: int,
    touched: Any,
) -> int:
    """Replace the slopes ``old`` of ``rows`` by ``new`` in ``sums`` (matrix by rows); return how many columns changed.

    The first entries of ``touched`` are the changed columns, each once; ``stamp`` remembers them by ``mark``.
    """
    n_touched = 0
    for position in range(rows.size):
        before, after = old[position], new[position]
        if before == after:
            continue
        row = rows[position]
        for k in range(indptr[row], indptr[row + 1]):
            column = indices[k]
            limit = limits[column]
            value = data[k]
            sums[column] += min(max(value * after, -limit), limit) - min(max(value * before, -limit), limit)
            if stamp[column] != mark:
                stamp[column] = mark
                touched[n_touched] = column
                n_touched += 1
    return n_touched
