"""Numbers put on a grid, compiled: entries of the design, rows that are too long, and logistic slopes.

Only correctly rounded operations are used, each in a fixed order, so the result for an entry or a slope does not depend
on its position nor on how its row is stored.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

from dperm.kernels.compiling import kept_njit
from dperm.kernels.sigmoid import sigmoid
from dperm.types import FloatArray

__all__ = ["block_steps", "compress", "entry_steps", "shorten_compressed", "shorten_logistic"]


@njit(error_model="numpy")  # compiled into the loops below
def _steps(x: float, centre: float, scale: float, clip: float, per_step: float, top: float) -> float:
    if scale <= 0.0:
        return 0.0
    scaled = min(max((x - centre) / scale, -clip), clip)  # a huge value overflows to infinity and is clipped
    steps: float = np.rint(scaled * per_step)
    return min(max(steps, -top), top)


@kept_njit(nogil=True, error_model="numpy")
def block_steps(
    block: FloatArray,
    centre: FloatArray,
    scale: FloatArray,
    clip: float,
    per_step: float,
    top: float,
    out: Any,
    first: int,
) -> None:
    """Steps of dense rows: clip((x - centre) / scale) times ``per_step``, a power of two, rounded, at most ``top``.

    They are written into a tile, which has a line for each column, from row ``first`` on. Columns of scale 0 are left
    as they are.
    """
    for j in range(block.shape[1]):
        if scale[j] <= 0.0:
            continue
        middle, unit, column, steps = centre[j], scale[j], block[:, j], out[j, first : first + block.shape[0]]
        for i in range(column.size):  # without branches, so that several entries are computed at once
            scaled = min(max((column[i] - middle) / unit, -clip), clip)
            steps[i] = min(max(np.rint(scaled * per_step), -top), top)


@kept_njit(nogil=True, error_model="numpy")
def entry_steps(
    data: FloatArray,
    indices: Any,
    centre: FloatArray,
    scale: FloatArray,
    clip: float,
    per_step: float,
    top: float,
    implicit: FloatArray,
) -> None:
    """Turn stored entries into steps less those of a zero in their column, in place."""
    for k in range(data.size):
        j = indices[k]
        data[k] = _steps(data[k], centre[j], scale[j], clip, per_step, top) - implicit[j]


@kept_njit(nogil=True, error_model="numpy")
def shorten_compressed(data: FloatArray, indptr: Any, longest: float) -> None:
    """Scale compressed rows of whole numbers that are longer than ``longest`` down to it, in place, toward zero."""
    for i in range(indptr.size - 1):
        square = 0.0  # whole and below 2^53: exact
        for k in range(indptr[i], indptr[i + 1]):
            square += data[k] * data[k]
        length = math.sqrt(square)
        if length > longest:
            factor = longest / length
            for k in range(indptr[i], indptr[i + 1]):
                data[k] = np.trunc(data[k] * factor)


@kept_njit(nogil=True, error_model="numpy")
def compress(block: FloatArray, found: int, ends: Any, columns: Any, entries: FloatArray) -> int:
    """Append the non-zero entries of dense rows after the first ``found`` ones and return their number.

    Returns -1 if there is no room. ``ends`` receives, for each row, the number of entries up to its last one.
    """
    room = entries.size - block.shape[1]
    for i in range(block.shape[0]):
        if found > room:
            return -1
        for j in range(block.shape[1]):
            # every entry is written, and a zero is overwritten by the next one: no branch to mispredict
            entry = block[i, j]
            entries[found], columns[found] = entry, j
            found += entry != 0.0
        ends[i] = found
    return found


_NUMBER, _READ = types.float64, types.Array(types.float64, 1, "C", readonly=True)


@kept_njit(
    types.void(_NUMBER[::1], _NUMBER, _READ, _READ, _NUMBER, _NUMBER, _NUMBER),
    nogil=True,
    error_model="numpy",
)
def shorten_logistic(
    scores: FloatArray,
    spacing: float,
    target: FloatArray,
    lengths: FloatArray,
    clip: float,
    label_independence: float,
    per_grid: float,
) -> None:
    """Turn scores into shortened logistic slopes in grid steps, in place.

    With limit = clip / length, a slope is multiplied by min(1, limit / m), clipped to the limit and cut toward zero,
    where m = label_independence * (largest slope of any label) + (1 - label_independence) * |slope|. Scores are whole,
    in steps of ``spacing``. The operations and their order are those of
    :class:`~dperm.queries.whitened.MappedGradient`.
    """
    dependence = 1.0 - label_independence
    for i in range(scores.size):
        label = min(max(target[i], 0.0), 1.0)
        slope = sigmoid(scores[i] * spacing) - label
        limit = clip / lengths[i]
        if label_independence != 0.0:
            probability = slope + label
            size = label_independence * max(probability, 1.0 - probability) + dependence * abs(slope)
            slope = slope * min(1.0, limit / max(size, 1e-300))
        largest = min(limit, 1.0)
        scores[i] = np.trunc(min(max(slope, -largest), largest) * per_grid)
