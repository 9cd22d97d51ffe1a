"""Whether columns say anything at all, told from weights of known noise: post-processing of what is released."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtrc

from dperm.types import FloatArray

__all__ = ["NOTHING_SEEN", "null_p_value"]


#: what a fit says where every column could be of no use
NOTHING_SEEN = "no column could be told from noise: predictions are one constant, or next to it"


def null_p_value(
    result: FloatArray, variances: FloatArray, weights: FloatArray, energy: FloatArray, columns: FloatArray
) -> float:
    """Chance that columns of no use show as much as these do, at most: 1 where nothing speaks for any of them.

    Looked at in three ways, so that the smallest of three chances counts three times: at the energy of all columns,
    which many weak ones have in common, taken as the multiple of a chi-square with the same mean and variance
    (Satterthwaite 1946), at the column that stands out most among all (Bonferroni), and at the direction that does:
    what many columns say together shows in no single one of them, and with about as many columns as rows chance alone
    has as much energy as any signal.

    Parameters
    ----------
    result, variances : array of shape (d, outputs)
        Result of a descent in mapped coordinates, and how each would scatter around zero.
    weights : array of shape (outputs,)
        How much an output matters.
    energy : array of shape (k, d)
        Root of the energy: that of a result v is the square length of ``energy @ v``, an entry for every direction.
    columns : array of shape (p, d)
        Map from a result to the weights of columns.

    >>> flat, unit = np.ones((40, 1)), np.eye(40)
    >>> null_p_value(flat, flat, np.ones(1), unit, unit)
    1.0
    >>> null_p_value(2.0 * flat, flat, np.ones(1), unit, unit) < 1e-9  # many together
    True
    >>> null_p_value(6.0 * np.eye(40)[:, :1], flat, np.ones(1), unit, unit) < 1e-5  # one alone
    True
    """
    unit = float(variances.mean())  # whose square may be too small for a float
    found = expected = square = largest = longest = 0.0
    for v, variance, weight in zip(result.T / math.sqrt(unit), variances.T / unit, weights, strict=True):
        spread = energy * np.sqrt(variance)
        covariance = weight * (spread @ spread.T)
        parts, spreads = weight * np.square(energy @ v), np.diag(covariance)
        found += float(parts.sum())
        expected += float(spreads.sum())
        longest = max(longest, float((parts[spreads > 0.0] / spreads[spreads > 0.0]).max(initial=0.0)))
        square += float(np.square(covariance).sum())
        own = np.square(columns) @ variance
        known = own > 0.0  # a column that the metric leaves out has neither weight nor noise
        largest = max(largest, float((np.square(columns @ v)[known] / own[known]).max(initial=0.0)))
    if square <= 0.0:
        return 1.0
    together = float(chdtrc(expected**2 / square, found * expected / square))
    alone = float(chdtrc(1.0, largest)) * len(columns) * len(weights)
    along = float(chdtrc(1.0, longest)) * len(energy) * len(weights)
    return min(1.0, 3.0 * min(together, alone, along))
