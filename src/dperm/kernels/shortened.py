"""Logistic slopes of whole arrays, shortened row by row and cut to a grid in one pass, compiled.

The same operations in the same order as the general way through arrays, each rounded once: an element's result is one
function of that element, wherever it stands.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from dperm.kernels.sigmoid import sigmoid
from dperm.types import FloatArray

__all__ = ["shorten_logistic"]


_NUMBER, _READ = types.float64, types.Array(types.float64, 1, "C", readonly=True)


@njit(
    [types.void(_NUMBER[::1], _NUMBER, _READ, _READ, _NUMBER, _NUMBER, _NUMBER)],
    cache=True,
    error_model="numpy",
)
def shorten_logistic(
    scores: FloatArray,
    spacing: float,
    target: FloatArray,
    lengths: FloatArray,
    clip: float,
    blindness: float,
    per_grid: float,
) -> None:
    """Turn scores into slopes in grid steps, in place.

    With limit = clip / length, a slope is multiplied by min(1, limit / m), m = blindness * (largest slope of any label)
    + (1 - blindness) * |slope|, clipped to the limit and cut toward zero. Scores are whole, in steps of ``spacing``.
    """
    sighted = 1.0 - blindness
    for i in range(scores.size):
        label = min(max(target[i], 0.0), 1.0)
        slope = sigmoid(scores[i] * spacing) - label
        limit = clip / lengths[i]
        if blindness != 0.0:
            probability = slope + label
            size = blindness * max(probability, 1.0 - probability) + sighted * abs(slope)
            slope = slope * min(1.0, limit / max(size, 1e-300))
        largest = min(limit, 1.0)
        scores[i] = np.trunc(min(max(slope, -largest), largest) * per_grid)
