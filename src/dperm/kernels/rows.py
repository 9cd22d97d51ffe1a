"""Sums over pairs of entries of compressed rows, compiled: lengths of mapped rows, and second moments.

All products and sums of entries with a map, and all sums of second moments, are whole numbers below 2^53, so neither
the order of the stored entries nor leaving out zeros changes a bit. Squares of mapped entries do round: they are added
in the order of the map's columns, as for dense rows, so a row's length does not depend on how the row is stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dperm.kernels.compiling import kept_njit
from dperm.types import FloatArray

__all__ = ["mapped_squares", "second_moments", "stretched_squares"]


_ROWS = 8  # rows whose squares are added side by side, so that additions of different rows overlap


@kept_njit(nogil=True, error_model="numpy")
def _mapped(data: FloatArray, indices: Any, indptr: Any, steps: FloatArray, base: FloatArray, out: FloatArray) -> None:
    n, k = out.size, base.size
    images = np.zeros((_ROWS, k))
    for start in range(0, n, _ROWS):
        here = min(_ROWS, n - start)
        for r in range(here):
            image = images[r]
            image[:] = base
            for position in range(indptr[start + r], indptr[start + r + 1]):
                entry, line = data[position], steps[indices[position]]
                for c in range(k):
                    image[c] += entry * line[c]
        squares = out[start : start + here]
        squares[:] = 0.0
        for c in range(k):
            for r in range(here):
                squares[r] += images[r, c] * images[r, c]


def mapped_squares(rows: Any, steps: FloatArray, base: FloatArray) -> FloatArray:
    """Squared length of ``base`` plus row times ``steps`` for every row of a CSR array."""
    out = np.empty(rows.shape[0])
    _mapped(rows.data, rows.indices, rows.indptr, np.ascontiguousarray(steps), base, out)
    return out


@kept_njit(nogil=True, error_model="numpy")
def _stretched(
    data: FloatArray, indices: Any, indptr: Any, heights: FloatArray, constant: float, out: FloatArray
) -> None:
    for i in range(out.size):
        square = 0.0
        for position in range(indptr[i], indptr[i + 1]):
            entry = data[position] * heights[indices[position]]
            square += entry * entry
        out[i] = square + constant * constant


def stretched_squares(rows: Any, heights: FloatArray, constant: float) -> FloatArray:
    """Squared length of every row of a CSR array with sorted indices, entries times ``heights``, then ``constant``."""
    out = np.empty(rows.shape[0])
    _stretched(rows.data, rows.indices, rows.indptr, heights, constant, out)
    return out


@kept_njit(nogil=True, error_model="numpy")
def _moments(
    data: FloatArray,
    indices: Any,
    indptr: Any,
    heights: FloatArray,
    constant: float,
    unit: float,
    factors: FloatArray,
    per_step: float,
    out: FloatArray,
) -> None:
    d = out.shape[0]
    steps, columns = np.empty(d), np.empty(d, np.int64)
    for i in range(factors.size):
        count = 0
        for position in range(indptr[i], indptr[i + 1]):
            column = indices[position]
            steps[count] = np.trunc(data[position] * heights[column] * unit * factors[i] * per_step)
            columns[count] = column
            count += 1
        if constant != 0.0:
            steps[count] = np.trunc(constant * unit * factors[i] * per_step)
            columns[count] = d - 1
            count += 1
        for a in range(count):
            line, step = out[columns[a]], steps[a]
            for b in range(a, count):
                line[columns[b]] += step * steps[b]


def second_moments(
    rows: Any, heights: FloatArray, constant: float, unit: float, factors: FloatArray, per_step: float
) -> FloatArray:
    """Sum of v v' over the rows of a CSR array with sorted indices, ``constant`` as their last entry.

    v is entry times height times ``unit`` times the row's factor times ``per_step``, cut toward zero. There are as many
    ``heights`` as columns, including that of the constant if there is one (even if it is 0).
    """
    d = heights.size
    out = np.zeros((d, d))
    _moments(rows.data, rows.indices, rows.indptr, heights, constant, unit, factors, per_step, out)
    below = np.tril_indices(d, -1)
    out[below] = out.T[below]
    return out
