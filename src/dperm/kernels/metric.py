"""Minimise a quadratic plus an elastic-net penalty by coordinate descent; public numbers only."""

from __future__ import annotations

import numpy as np

from dperm.kernels.compiling import kept_njit
from dperm.types import FloatArray

__all__ = ["metric_prox"]


@kept_njit(nogil=True)
def _sweeps(
    matrix: FloatArray,
    w: FloatArray,
    gradient: FloatArray,
    l1: FloatArray,
    l2: FloatArray,
    n_sweeps: int,
    enough: float,
) -> None:
    d = w.size
    for _ in range(n_sweeps):
        largest = 0.0
        for j in range(d):
            curvature = matrix[j, j] + l2[j]
            free = matrix[j, j] * w[j] - gradient[j]
            size = max(abs(free) - l1[j], 0.0) / curvature
            new = size if free > 0.0 else -size
            change = new - w[j]
            if change != 0.0:
                w[j] = new
                for k in range(d):
                    gradient[k] += change * matrix[j, k]
                largest = max(largest, change * change * curvature)
        if largest <= enough:
            break


def metric_prox(
    matrix: FloatArray,
    gradient: FloatArray,
    start: FloatArray,
    l1: FloatArray,
    l2: FloatArray,
    scale: float,
    n_sweeps: int = 100,
) -> FloatArray:
    """Minimise (w - centre)' matrix (w - centre) / 2 + sum_j l1_j |w_j| + l2_j w_j^2 / 2, from ``start``.

    ``gradient`` is matrix (start - centre) of the symmetric matrix. Moves far below ``scale``, centre' matrix centre,
    end the search.
    """
    w = np.array(start, np.float64)
    _sweeps(matrix, w, np.array(gradient, np.float64), l1, l2, n_sweeps, 1e-18 * scale)
    return w
