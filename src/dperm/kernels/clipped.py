"""Sums of clipped products of sparse columns, compiled: sum over rows of clip(value * slope), each clipped alone.

Values and slopes are integers held in doubles, and so is the limit: every product and every partial sum is exact, so
the order of summation (and how the compiler splits it) does not matter. Compiled on first use and cached on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dperm.kernels.compiling import kept_njit
from dperm.types import FloatArray

__all__ = ["clipped_sums_sparse"]


# Sums of whole numbers below 2^53 are the same in any order, so the compiler may reassociate them into vector lanes.
_ANY_ORDER = {"reassoc", "nsz"}

# Positions are unsigned, because numba checks every signed index for counting from the end.


@kept_njit(nogil=True, fastmath=_ANY_ORDER)
def _sparse(
    data: FloatArray,
    indices: Any,
    indptr: Any,
    implicit: FloatArray,
    slopes: FloatArray,
    limits: FloatArray,
    out: FloatArray,
) -> None:
    for j in range(out.size):
        total = 0.0
        limit, base = limits[j], implicit[j]
        for k in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
            slope = slopes[np.uint64(indices[k])]
            total += min(max((data[k] + base) * slope, -limit), limit)
            if base != 0.0:
                total -= min(max(base * slope, -limit), limit)
        out[j] = total


@kept_njit(nogil=True, fastmath=_ANY_ORDER)
def _sparse_alike(
    data: FloatArray, indices: Any, indptr: Any, slopes: FloatArray, limit: float, out: FloatArray
) -> None:
    """The same for implicit zeros and one limit: it reads less, which matters for columns with few entries."""
    start = np.uint64(indptr[0])
    for j in range(out.size):
        stop, total = np.uint64(indptr[j + 1]), 0.0
        for k in range(start, stop):
            total += min(max(data[k] * slopes[np.uint64(indices[k])], -limit), limit)
        out[j] = total
        start = stop


@kept_njit(nogil=True, fastmath=_ANY_ORDER)
def _one_value(value: float, slopes: FloatArray, limit: float) -> float:
    total = 0.0
    for i in range(slopes.size):
        total += min(max(value * slopes[i], -limit), limit)
    return total


def _each(limits: FloatArray | float, size: int) -> FloatArray:
    return np.ascontiguousarray(np.broadcast_to(limits, size))


def clipped_sums_sparse(
    matrix: Any, implicit: FloatArray | None, slopes: FloatArray, limits: FloatArray | float, out: FloatArray
) -> None:
    """Write sums over rows of clip(x[i, j] * slopes[i], -limits[j], limits[j]); one limit or one per column.

    x is a CSC matrix of differences to a column's implicit value (None: all zero). Rows that are not stored all have
    the implicit value, so their sum is computed once per distinct (value, limit): the cost goes by stored entries.
    """
    if implicit is None:
        implicit = np.zeros(out.size)
        if np.ndim(limits) == 0:
            _sparse_alike(matrix.data, matrix.indices, matrix.indptr, slopes, float(limits), out)
            return
    limits = _each(limits, out.size)
    _sparse(matrix.data, matrix.indices, matrix.indptr, implicit, slopes, limits, out)
    cache: dict[tuple[float, float], float] = {}
    for j in np.flatnonzero(implicit):
        key = (float(implicit[j]), float(limits[j]))
        if key not in cache:
            cache[key] = _one_value(key[0], slopes, key[1])
        out[j] += cache[key]
