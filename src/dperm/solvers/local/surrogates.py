"""Polynomials that stand for the logistic loss, and what standing in for it costs."""

from __future__ import annotations

import numpy as np
from scipy import stats

from dperm.errors import InvalidInput
from dperm.solvers.local.sketch import FloatArray

__all__ = ["TYPICAL", "logistic_curvature", "logistic_surrogate", "margins", "surrogate_bias", "typical_length"]

#: length of the weights, relative to the radius, that is taken for granted where nothing is known yet
TYPICAL = 0.75

#: mean square of the predictions of a target in [-1, 1] that is taken for granted: half of an evenly spread target's
_EXPLAINED = 1.0 / 6.0

_NODES = 200


def typical_length(loss: str, radius: float, reach: tuple[float, ...], intercept: bool) -> float:
    """Length of the best weights that is taken for granted where nothing is known yet, rows being in the unit ball.

    Weights of the squared loss cannot be long, as the target is within [-1, 1]: they are those whose predictions have
    a mean square of 1/6, if features are spread evenly over their reach and the intercept tells nothing.
    """
    if loss == "logistic":
        return TYPICAL * radius
    squares = np.square(reach[: len(reach) - intercept]) / 3.0
    # rows of the unit ball leave to the columns what the intercept does not take
    left = 1.0 - (reach[-1] ** 2 if intercept else 0.0)
    return min(TYPICAL * radius, float(np.sqrt(_EXPLAINED * len(squares) / min(left, float(squares.sum())))))


def logistic_surrogate(degree: int, margin: float) -> tuple[float, ...]:
    """Coefficients of s^2 (and s^4) of the polynomial that fits ln(2 cosh(s / 2)) at Chebyshev nodes.

    The logistic loss ln(1 + exp(-s)) is this even function minus s / 2. A quartic is fitted on [-margin, margin]; a
    parabola, which has to be wrong somewhere, on the typical margins, three quarters of it.

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
    """Evenly likely values of the product of weights of this length with a random direction of the unit sphere."""
    if dimension == 1:
        return np.array([length])
    ranks = (np.arange(size) + 0.5) / size
    return length * np.sqrt(stats.beta.ppf(ranks, 0.5, (dimension - 1) / 2.0))


def logistic_curvature(s: FloatArray) -> float:
    """Second derivative of the logistic loss along the weights, relative to the squared margins, on average."""
    return float((s**2 / (4.0 * np.cosh(s / 2.0) ** 2)).sum() / (s**2).sum())


def surrogate_bias(coefficients: tuple[float, ...], s: FloatArray) -> float:
    """Excess logistic risk of the surrogate's minimiser along the weights, for margins ``s`` at the true one.

    To first order: the surrogate's wrong slope moves its minimiser by slope over its own curvature, and the loss's
    curvature tells what that costs.
    """
    powers = [(2 * k, c) for k, c in enumerate(coefficients, start=1)]
    wrong = float(np.mean(s * (np.tanh(s / 2.0) / 2.0 - sum(k * c * s ** (k - 1) for k, c in powers))))
    square = float(np.mean(s**2))
    own = float(np.mean(sum(k * (k - 1) * c * s**k for k, c in powers))) / square
    return wrong**2 * logistic_curvature(s) / (2.0 * own**2 * square)
