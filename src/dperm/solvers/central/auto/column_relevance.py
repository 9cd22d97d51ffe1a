"""Which columns matter, told from weights of known noise: post-processing of what is released."""

from __future__ import annotations

import math

import numpy as np

from dperm.types import FloatArray

__all__ = ["column_pulls"]


#: columns taken to matter before any is looked at; with few columns that keeps all of them in
_BELIEVED = 3.0
_MOST_SWEEPS = 30
#: weights so many times longer than their noise need no choice among columns, and their numbers no care
_CLEAR = 1e8
#: least variance of noise in any direction, in mean ones: with less, its inverse is rounding errors
_LEAST_NOISE = 1e-12


def column_pulls(weights: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return the strength of a ridge penalty on every column that takes away weights which noise alone explains.

    Weights are taken as normal around true ones, with this covariance. A true weight is zero, or with probability
    ``share`` normal of one variance for all columns. Share and variance are those that fit best (variational
    inference by coordinates: Carbonetto & Stephens 2012), so that weights of which all matter keep all of them. With
    the probability c that a column matters, its strength is its own precision times (1 - c) / c: alone it would keep
    the share c of its weight, and columns with which its noise is shared move along.

    >>> noise = np.eye(40)
    >>> pulls = column_pulls(np.append(np.full(4, 8.0), np.tile([1.0, -1.0], 18)), noise)
    >>> bool(pulls[:4].max() < 0.01), bool(pulls[4:].min() > 10.0)
    (True, True)
    >>> bool(column_pulls(np.full(40, 8.0), noise).max() < 0.01)
    True
    """
    d = len(weights)
    noise, square = float(np.trace(covariance)), float(weights @ weights)
    if d == 0 or square == 0.0 or not noise * _CLEAR > square:
        return np.zeros(d)
    unit = math.sqrt(noise / d)
    weights, precision = weights / unit, np.linalg.inv(covariance / unit**2 + _LEAST_NOISE * np.eye(d))
    own = np.diag(precision).copy()
    share, variance = 0.5, max(square / (noise / d) / d - 1.0, 0.1 * square / noise, 1e-9)
    chances = np.full(d, share)
    means = share * weights
    left = precision @ (weights - means)
    for _ in range(_MOST_SWEEPS):
        spread = 1.0 / (own + 1.0 / variance)
        odds = math.log(share / (1.0 - share)) + 0.5 * np.log(spread / variance)
        slab, moved = np.zeros(d), 0.0
        for j in range(d):
            slab[j] = spread[j] * (left[j] + own[j] * means[j])
            evidence = odds[j] + 0.5 * slab[j] ** 2 / spread[j]
            chances[j] = 1.0 / (1.0 + math.exp(-min(max(evidence, -40.0), 40.0)))
            change = chances[j] * slab[j] - means[j]
            left -= change * precision[j]
            means[j] += change
            moved = max(moved, abs(change))
        total = float(chances.sum())
        share = min(max((total + _BELIEVED) / (d + _BELIEVED), 1e-3), 1.0 - 1e-3)
        variance = max(float(chances @ (slab * slab + spread)) / max(total, 1e-9), 1e-9)
        if moved < 1e-4 * math.sqrt(variance):
            break
    pulls: FloatArray = own * (1.0 - chances) / chances / unit**2
    return pulls
