"""Polynomials that replace the logistic loss, and the excess loss that the replacement causes."""

from __future__ import annotations

import numpy as np
from scipy import stats

from dperm.errors import InvalidInput
from dperm.types import FloatArray

__all__ = ["TYPICAL", "logistic_curvature", "logistic_surrogate", "margins", "surrogate_bias", "typical_length"]

#: assumed length of the weights, relative to the radius, before anything is known
TYPICAL = 0.75

#: assumed mean square of the predictions of a target in [-1, 1]: half the mean square of a uniform target
_EXPLAINED = 1.0 / 6.0

_NODES = 200  # many more than the three coefficients that are fitted


def typical_length(loss: str, radius: float, reach: tuple[float, ...], intercept: bool) -> float:
    """Assumed length of the best weights before anything is known, for rows in the unit ball.

    Weights of the squared loss cannot be long, because the target is within [-1, 1]. They are assumed to give
    predictions with a mean square of 1/6, with features uniform over their reach and an uninformative intercept.
    """
    if loss == "logistic":
        return TYPICAL * radius
    squares = np.square(reach[: len(reach) - intercept]) / 3.0
    # in the unit ball the columns have the squared length that the intercept does not use
    left = 1.0 - (reach[-1] ** 2 if intercept else 0.0)
    return min(TYPICAL * radius, float(np.sqrt(_EXPLAINED * len(squares) / min(left, float(squares.sum())))))


def logistic_surrogate(degree: int, margin: float) -> tuple[float, ...]:
    """Coefficients of s^2 (and s^4) of the polynomial that fits ln(2 cosh(s / 2)) at Chebyshev nodes.

    The logistic loss ln(1 + exp(-s)) is this even function minus s / 2. A quartic is fitted on [-margin, margin]. A
    parabola cannot fit all of that interval; it is fitted on three quarters of it, the typical margins.

    >>> [round(c, 3) for c in logistic_surrogate(2, 2.0)], [round(c, 4) for c in logistic_surrogate(4, 2.0)]
    ([0.115], [0.1229, -0.0037])
    """
    if degree not in (2, 4):
        raise InvalidInput(f"the degree of a surrogate must be 2 or 4, not {degree!r}.")
    reach = margin if degree == 4 else TYPICAL * margin
    nodes = reach * np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    powers = np.column_stack([nodes**k for k in range(0, degree + 1, 2)])
    fitted = np.linalg.lstsq(powers, np.logaddexp(nodes / 2.0, -nodes / 2.0), rcond=None)[0]
    return tuple(float(c) for c in fitted[1:])


def margins(dimension: int, length: float, size: int = 256) -> FloatArray:
    """Equally likely values of the product of weights of this length with a random direction of the unit sphere."""
    if dimension == 1:
        return np.array([length])
    ranks = (np.arange(size) + 0.5) / size
    values: FloatArray = length * np.sqrt(stats.beta.ppf(ranks, 0.5, (dimension - 1) / 2.0))
    return values


def logistic_curvature(s: FloatArray) -> float:
    """Mean second derivative of the logistic loss along the weights, relative to the mean squared margin."""
    return float((s**2 / (4.0 * np.cosh(s / 2.0) ** 2)).sum() / (s**2).sum())


def surrogate_bias(coefficients: tuple[float, ...], s: FloatArray) -> float:
    """Excess logistic loss of the surrogate's minimiser along the weights, for margins ``s`` at the true minimiser.

    To first order: the slope error of the surrogate moves its minimiser by slope error over surrogate curvature, and
    the curvature of the loss gives the resulting excess.
    """
    powers = [(2 * k, c) for k, c in enumerate(coefficients, start=1)]
    wrong = float(np.mean(s * (np.tanh(s / 2.0) / 2.0 - sum(k * c * s ** (k - 1) for k, c in powers))))
    square = float(np.mean(s**2))
    own = float(np.mean(sum(k * (k - 1) * c * s**k for k, c in powers))) / square
    return wrong**2 * logistic_curvature(s) / (2.0 * own**2 * square)
