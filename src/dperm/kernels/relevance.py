"""One sweep over columns of a variational fit of which weights are not zero; public numbers only."""

from __future__ import annotations

import math

from dperm.kernels.compiling import kept_njit
from dperm.types import FloatArray

__all__ = ["relevance_sweep"]


@kept_njit(nogil=True)
def relevance_sweep(
    precision: FloatArray,
    residual: FloatArray,
    means: FloatArray,
    slab: FloatArray,
    relevance: FloatArray,
    spread: FloatArray,
    prior_odds: FloatArray,
) -> float:
    """Update every column's probability of being relevant and its mean, in place; return the largest change of a mean.

    ``precision`` is that of the noise, ``residual`` is precision (weights - means). ``slab`` becomes each weight's mean
    if it is relevant, ``spread`` is its variance then, and ``prior_odds`` are the log odds before its own size counts.
    """
    largest = 0.0
    for j in range(means.size):
        slab[j] = spread[j] * (residual[j] + precision[j, j] * means[j])
        log_odds = prior_odds[j] + 0.5 * slab[j] ** 2 / spread[j]
        relevance[j] = 1.0 / (1.0 + math.exp(-min(max(log_odds, -40.0), 40.0)))
        change = relevance[j] * slab[j] - means[j]
        for k in range(means.size):
            residual[k] -= change * precision[j, k]
        means[j] += change
        largest = max(largest, abs(change))
    return largest
