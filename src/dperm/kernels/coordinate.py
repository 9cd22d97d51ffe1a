"""One coordinate's clipped gradient sum in one pass over dense columns, compiled.

Scores are first brought up to date with the step made before (``change`` times the column ``before``), so that a step
reads each array once. Only correctly rounded operations are used, so an element's value does not depend on its position
or on how the compiler splits the loop; the sums are of whole numbers, exact in any order.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dperm.kernels.compiling import kept_njit
from dperm.kernels.short_sigmoid import short_fma, short_sigmoid
from dperm.kernels.sigmoid import fma, sigmoid
from dperm.types import FloatArray

__all__ = [
    "STRIP",
    "add_multiple",
    "clipped_column_sum",
    "moved_logistic_sum",
    "moved_residual_sum",
    "moved_short_logistic_sum",
    "residual_slopes",
]

ShortArray = NDArray[np.float32]

STRIP = 512  # rows whose numbers stay in the processor's first cache from one loop to the next


# These two add whole numbers below 2^53: the compiler may fuse and reassociate, as nothing is rounded. They are
# compiled into the loops, whose other operations stay as they are written.
@njit(fastmath={"reassoc", "nsz"}, error_model="numpy")
def _plus(total: float, summand: float) -> float:
    return total + summand


@njit(fastmath={"contract"}, error_model="numpy")
def _moved(score: float, entry: float, change: float) -> float:
    return score + np.float64(entry) * change


@kept_njit(nogil=True, error_model="numpy")
def add_multiple(scores: FloatArray, column: FloatArray, change: float) -> None:
    """scores += change * column, in place; all whole."""
    for i in range(scores.size):
        scores[i] = _moved(scores[i], column[i], change)


@kept_njit(nogil=True, error_model="numpy")
def clipped_column_sum(column: FloatArray, slopes: FloatArray | ShortArray, limit: float) -> float:
    """Sum of column * slopes, each product clipped; all whole."""
    total = 0.0
    for i in range(slopes.size):
        total = _plus(total, min(max(np.float64(column[i]) * slopes[i], -limit), limit))
    return total


@kept_njit(nogil=True, error_model="numpy")
def residual_slopes(
    scores: FloatArray, spacing: float, target: FloatArray, bound: float, per_grid: float, slopes: FloatArray
) -> None:
    """Write clip(scores * spacing - target), rounded toward zero on the grid, into ``slopes``."""
    for i in range(scores.size):
        slopes[i] = np.trunc(min(max(scores[i] * spacing - target[i], -bound), bound) * per_grid)


@kept_njit(nogil=True, error_model="numpy")
def moved_residual_sum(
    before: FloatArray,
    change: float,
    column: FloatArray,
    scores: FloatArray,
    spacing: float,
    target: FloatArray,
    bound: float,
    per_grid: float,
    limit: float,
) -> float:
    """Update the scores, then return :func:`clipped_column_sum` with the slopes of :func:`residual_slopes`."""
    total = 0.0
    for i in range(scores.size):
        score = _moved(scores[i], before[i], change)
        scores[i] = score
        slope = np.trunc(min(max(score * spacing - target[i], -bound), bound) * per_grid)
        total = _plus(total, min(max(np.float64(column[i]) * slope, -limit), limit))
    return total


@kept_njit(nogil=True, error_model="numpy")
def moved_logistic_sum(
    before: FloatArray,
    change: float,
    column: FloatArray,
    scores: FloatArray,
    spacing: float,
    target: FloatArray,
    per_grid: float,
    limit: float,
    slopes: FloatArray,
) -> float:
    """The same with slopes sigmoid(scores * spacing) - target, kept in ``slopes``; targets are in grid steps."""
    total = 0.0
    for i in range(scores.size):
        score = _moved(scores[i], before[i], change)
        scores[i] = score
        # the grid is a power of two, so this is (sigmoid - target) / grid with the same single rounding
        slope = np.trunc(fma(sigmoid(score * spacing), per_grid, -target[i]))
        slopes[i] = slope
        total = _plus(total, min(max(np.float64(column[i]) * slope, -limit), limit))
    return total


# One loop per kind of number: a loop over both single and double precision is not vectorised well.
@njit(error_model="numpy")
def _move(before: FloatArray, change: float, scores: FloatArray, spacing: float, predictions: ShortArray) -> None:
    for i in range(scores.size):
        score = _moved(scores[i], before[i], change)
        scores[i] = score
        predictions[i] = score * spacing


@njit(error_model="numpy")
def _short_slopes(predictions: ShortArray, target: ShortArray, per_grid: np.float32, slopes: ShortArray) -> None:
    for i in range(slopes.size):
        slopes[i] = np.trunc(short_fma(short_sigmoid(predictions[i]), per_grid, -target[i]))


@kept_njit(nogil=True, error_model="numpy")
def moved_short_logistic_sum(
    before: FloatArray,
    change: float,
    column: FloatArray,
    scores: FloatArray,
    spacing: float,
    target: ShortArray,
    per_grid: float,
    limit: float,
    slopes: ShortArray,
) -> float:
    """:func:`moved_logistic_sum` with slopes in single precision, for short grids.

    ``slopes`` may be as short as a strip: slopes that will not be used again then stay in the processor's cache.
    """
    total, short = 0.0, np.float32(per_grid)
    predictions, kept = np.empty(STRIP, np.float32), slopes.size >= scores.size
    for start in range(0, scores.size, STRIP):
        stop = min(start + STRIP, scores.size)
        strip = slopes[start:stop] if kept else slopes[: stop - start]
        _move(before[start:stop], change, scores[start:stop], spacing, predictions)
        _short_slopes(predictions, target[start:stop], short, strip)
        total += clipped_column_sum(column[start:stop], strip, limit)
    return total
