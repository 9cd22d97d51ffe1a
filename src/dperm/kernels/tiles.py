"""Loops over dense rows that are stored in tiles, compiled: scores, sums over rows, squares and logistic gradients.

A tile holds some rows, column by column, in single precision: whole numbers below 2^24, so nothing is rounded. It is
small enough to stay in the processor's cache from one loop to the next. All products and sums are of whole numbers
below 2^53 in double precision, so their order, and fusing them, changes no bit. Slopes do round: they are computed by
:func:`~dperm.kernels.grid_steps.shorten_logistic`, which has one fixed order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from dperm.kernels.compiling import kept_njit
from dperm.kernels.grid_steps import shorten_logistic
from dperm.types import FloatArray

__all__ = ["clipped_sums", "logistic_sums", "scores", "squares", "sums"]


# The compiler may fuse and reassociate where only whole numbers are multiplied and added.
_EXACT = {"reassoc", "contract", "nsz"}
_TOGETHER = 4  # columns that share one reading of a row's number; the loops below are written for exactly four


@njit(nogil=True, error_model="numpy", fastmath=_EXACT)
def _add_columns(tile: Any, n: int, weights: FloatArray, out: FloatArray) -> None:
    """out += rows times weights."""
    p, together = tile.shape[0], tile.shape[0] - tile.shape[0] % _TOGETHER
    for j in range(0, together, _TOGETHER):
        a, b, c, d = tile[j], tile[j + 1], tile[j + 2], tile[j + 3]
        w, x, y, z = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        for i in range(n):
            out[i] += (np.float64(a[i]) * w + np.float64(b[i]) * x) + (np.float64(c[i]) * y + np.float64(d[i]) * z)
    for j in range(together, p):
        a, w = tile[j], weights[j]
        for i in range(n):
            out[i] += np.float64(a[i]) * w


@njit(nogil=True, error_model="numpy", fastmath=_EXACT)
def _add_rows(tile: Any, n: int, row_steps: FloatArray, out: FloatArray) -> None:
    """out += sum over rows of row times its number."""
    p, together = tile.shape[0], tile.shape[0] - tile.shape[0] % _TOGETHER
    for j in range(0, together, _TOGETHER):
        a, b, c, d = tile[j], tile[j + 1], tile[j + 2], tile[j + 3]
        w, x, y, z = 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            step = row_steps[i]
            w += np.float64(a[i]) * step
            x += np.float64(b[i]) * step
            y += np.float64(c[i]) * step
            z += np.float64(d[i]) * step
        out[j] += w
        out[j + 1] += x
        out[j + 2] += y
        out[j + 3] += z
    for j in range(together, p):
        a, w = tile[j], 0.0
        for i in range(n):
            w += np.float64(a[i]) * row_steps[i]
        out[j] += w


@kept_njit(nogil=True, error_model="numpy")
def scores(tiles: Any, weights: FloatArray, start: float, out: FloatArray) -> None:
    """Write ``start`` plus row times weights for every row."""
    size = tiles.shape[2]
    for k in range(tiles.shape[0]):
        part = out[k * size : min((k + 1) * size, out.size)]
        part[:] = start
        _add_columns(tiles[k], part.size, weights, part)


@kept_njit(nogil=True, error_model="numpy")
def sums(tiles: Any, row_steps: FloatArray, out: FloatArray) -> None:
    """Add the sum over rows of row times its number to ``out``."""
    size = tiles.shape[2]
    for k in range(tiles.shape[0]):
        part = row_steps[k * size : min((k + 1) * size, row_steps.size)]
        _add_rows(tiles[k], part.size, part, out)


@kept_njit(nogil=True, error_model="numpy")
def logistic_sums(
    tiles: Any,
    weights: FloatArray,
    start: float,
    spacing: float,
    target: FloatArray,
    lengths: FloatArray,
    clip: float,
    label_independence: float,
    per_grid: float,
    out: FloatArray,
) -> float:
    """Add the sum over rows of row times its shortened logistic slope to ``out``, and return the sum of the slopes.

    It is :func:`scores`, ``shorten_logistic`` and :func:`sums` for one tile after the other, so that every row is read
    from memory once, and other threads run meanwhile.
    """
    n, size, total = target.size, tiles.shape[2], 0.0
    slopes = np.empty(size)
    for k in range(tiles.shape[0]):
        first, last = k * size, min((k + 1) * size, n)
        part = slopes[: last - first]
        part[:] = start
        _add_columns(tiles[k], part.size, weights, part)
        shorten_logistic(part, spacing, target[first:last], lengths[first:last], clip, label_independence, per_grid)
        _add_rows(tiles[k], part.size, part, out)
        for i in range(part.size):
            total += part[i]
    return total


@kept_njit(nogil=True, error_model="numpy", fastmath=_EXACT)
def squares(tiles: Any, out: FloatArray) -> None:
    """Write the squared length of every row."""
    size = tiles.shape[2]
    for k in range(tiles.shape[0]):
        part = out[k * size : min((k + 1) * size, out.size)]
        part[:] = 0.0
        for j in range(tiles.shape[1]):
            column = tiles[k, j]
            for i in range(part.size):
                part[i] += np.float64(column[i]) * np.float64(column[i])


@kept_njit(nogil=True, error_model="numpy", fastmath=_EXACT)
def clipped_sums(tiles: Any, row_steps: FloatArray, limits: FloatArray, out: FloatArray) -> None:
    """Write sums over rows of entry times the row's number, each product clipped to its column's limit."""
    size, n, p = tiles.shape[2], row_steps.size, out.size
    out[:] = 0.0
    for k in range(tiles.shape[0]):
        steps = row_steps[k * size : min((k + 1) * size, n)]
        for j in range(0, p - 1, 2):  # two columns share each number that is read
            one, two = 0.0, 0.0
            limit_one, limit_two = limits[j], limits[j + 1]
            column_one, column_two = tiles[k, j], tiles[k, j + 1]
            for i in range(steps.size):
                one += min(max(np.float64(column_one[i]) * steps[i], -limit_one), limit_one)
                two += min(max(np.float64(column_two[i]) * steps[i], -limit_two), limit_two)
            out[j] += one
            out[j + 1] += two
        if p % 2:
            limit, column, total = limits[p - 1], tiles[k, p - 1], 0.0
            for i in range(steps.size):
                total += min(max(np.float64(column[i]) * steps[i], -limit), limit)
            out[p - 1] += total
