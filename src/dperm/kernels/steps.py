"""Clipping, scaling and rounding of entries to whole grid steps, compiled; long rows are shortened.

Only correctly rounded operations, one entry at a time: an entry's steps do not depend on where it stands nor on how its
row is stored.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from dperm.types import FloatArray

__all__ = ["block_steps", "entry_steps", "shorten_compressed"]


@njit(error_model="numpy")  # compiled into the loops below
def _steps(x: float, centre: float, scale: float, clip: float, per_step: float, top: float) -> float:
    if scale <= 0.0:
        return 0.0
    scaled = min(max((x - centre) / scale, -clip), clip)  # a huge value overflows to infinity and is clipped
    return min(max(np.rint(scaled * per_step), -top), top)


@njit(cache=True, error_model="numpy")
def block_steps(
    block: FloatArray, centre: FloatArray, scale: FloatArray, clip: float, per_step: float, top: float, out: FloatArray
) -> None:
    """Steps of dense rows: clip((x - centre) / scale) times ``per_step``, a power of two, rounded, at most ``top``."""
    for j in range(block.shape[1]):
        for i in range(block.shape[0]):
            out[i, j] = _steps(block[i, j], centre[j], scale[j], clip, per_step, top)


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, error_model="numpy")
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
