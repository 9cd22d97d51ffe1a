"""Iterated Bernstein polynomials of several variables and their minimum over the cube."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import comb

from dperm.errors import InvalidInput
from dperm.types import FloatArray

__all__ = ["GRID_PARAMETERS", "BernsteinPolynomial", "Minimum", "basis", "iterated"]

#: most variables of a grid search; its time is exponential in their number
GRID_PARAMETERS = 3
_MOST_CELLS = 40_000  # bounds time and memory
_MOST_WIDTH = 0.25  # of the box over which a polynomial is smoothed, so that half of the cube is left


def basis(x: FloatArray, k: int) -> FloatArray:
    """Return the k + 1 Bernstein polynomials of degree k at every point of ``x``."""
    v, x = np.arange(k + 1), np.asarray(x, np.float64)[:, None]
    values: FloatArray = comb(k, v) * x**v * (1.0 - x) ** (k - v)
    return values


def iterated(k: int, order: int) -> FloatArray:
    """Return W with: the iterated operator's polynomial of values f has coefficients W f in the Bernstein basis.

    I - (I - B)^h = B sum_{j < h} (I - B)^j, and B followed by sampling at the nodes is one matrix.
    """
    remainder = np.eye(k + 1) - basis(np.arange(k + 1) / k, k)
    total, power = np.zeros_like(remainder), np.eye(k + 1)
    for _ in range(order):
        total += power
        power = power @ remainder
    return total


@dataclass(frozen=True)
class Minimum:
    """The best point found; nothing in the cube is better by more than ``gap``, if the search's assumptions hold."""

    point: FloatArray
    value: float
    gap: float


@dataclass(frozen=True)
class BernsteinPolynomial:
    """A polynomial on [0, 1]^p given by its coefficients in the tensor Bernstein basis."""

    coefficients: FloatArray

    @classmethod
    def of_values(cls, values: FloatArray, order: int = 1) -> BernsteinPolynomial:
        """Return the iterated Bernstein polynomial of values at the nodes (v_1 / k, ..., v_p / k)."""
        if order < 1 or min(values.shape) < 2:
            raise InvalidInput("a Bernstein polynomial needs an order of 1 or more and two nodes in every variable.")
        coefficients = np.asarray(values, np.float64)
        for axis, size in enumerate(values.shape):
            turned = np.tensordot(iterated(size - 1, order), coefficients, axes=(1, axis))
            coefficients = np.moveaxis(turned, 0, axis)
        return cls(coefficients)

    @classmethod
    def through(cls, values: FloatArray) -> BernsteinPolynomial:
        """Return the polynomial that takes these values at the nodes (v_1 / k, ..., v_p / k)."""
        coefficients = np.asarray(values, np.float64)
        for axis, size in enumerate(values.shape):
            inverse = np.linalg.inv(basis(np.arange(size) / (size - 1), size - 1))
            coefficients = np.moveaxis(np.tensordot(inverse, coefficients, axes=(1, axis)), 0, axis)
        return cls(coefficients)

    def __call__(self, points: FloatArray) -> FloatArray:
        """Return the values at points of shape (m, p)."""
        total = np.broadcast_to(self.coefficients, (len(points), *self.coefficients.shape))
        for axis, size in enumerate(self.coefficients.shape):
            total = np.einsum("ma,ma...->m...", basis(points[:, axis], size - 1), total)
        return np.asarray(total)

    def derivative(self, axis: int) -> BernsteinPolynomial:
        """Return the derivative in one variable: its coefficients are k times differences."""
        k = self.coefficients.shape[axis] - 1
        return BernsteinPolynomial(k * np.diff(self.coefficients, axis=axis))

    def minimise(self, tolerance: float = 1e-4) -> Minimum:
        """Find the global minimum over the cube: cells that cannot contain it are dropped, the others cut in three.

        A polynomial lies between its smallest and largest Bernstein coefficient. Those of the second derivatives
        therefore bound how far the polynomial can fall below its tangent plane in a cell. The search stops at a gap of
        ``tolerance`` or when there are too many cells; the result states the remaining gap.
        """
        p = self.coefficients.ndim
        if p > GRID_PARAMETERS:
            raise InvalidInput(f"a grid search is for at most {GRID_PARAMETERS} variables, not {p}.")
        slopes = [self.derivative(axis) for axis in range(p)]
        seconds = [slope.derivative(axis).coefficients for slope in slopes for axis in range(p)]
        curvature = sum(float(np.abs(c).max(initial=0.0)) for c in seconds)
        offsets = np.stack(np.meshgrid(*[[-1.0, 0.0, 1.0]] * p, indexing="ij"), axis=-1).reshape(-1, p)
        centres, half = np.full((1, p), 0.5), 0.5
        best, point = np.inf, centres[0]
        while True:
            values = self(centres)
            lowest = int(np.argmin(values))
            if values[lowest] < best:
                best, point = self._polished(centres[lowest], slopes)
            fall = half * sum(np.abs(slope(centres)) for slope in slopes) + half**2 * curvature / 2.0
            kept = centres[values - fall < best]
            floor = float((values - fall).min())
            if best - floor <= tolerance or len(kept) * len(offsets) > _MOST_CELLS:
                return Minimum(point, best, max(0.0, best - floor))
            half /= 3.0
            centres = (kept[:, None, :] + 2.0 * half * offsets[None]).reshape(-1, p)

    def smoothed(self, width: float) -> BernsteinPolynomial:
        """Return the mean over the box of this half width around every point, exactly."""
        coefficients = self.coefficients
        for axis, size in enumerate(coefficients.shape):
            k, nodes = size - 1, np.arange(size) / max(size - 1, 1)
            places, weights = np.polynomial.legendre.leggauss(k // 2 + 1)  # exact for degrees up to k
            means = sum(w / 2.0 * basis(nodes + width * place, k) for place, w in zip(places, weights, strict=True))
            matrix = np.linalg.solve(basis(nodes, k), means)
            coefficients = np.moveaxis(np.tensordot(matrix, coefficients, axes=(1, axis)), 0, axis)
        return BernsteinPolynomial(coefficients)

    def minimise_nearly_convex(self, deviation: float, lipschitz: float = 1.0, steps: int = 400) -> Minimum:
        """Find a low point in time that is polynomial in the number of coefficients, for any number of variables.

        Assumes that a convex function with this Lipschitz constant lies within ``deviation`` of the polynomial. The
        polynomial is smoothed over boxes, which removes narrow dips that noise makes, and its smoothed gradient is
        followed for ``steps`` steps. The gap holds under the assumption alone (``bernstein_mechanisms.proof.md``).
        """
        p = self.coefficients.ndim
        root = math.sqrt(p)
        # the two terms of the error that depend on the width, balanced
        moved = lipschitz * root * (1.0 + 1.0 / math.sqrt(3.0))
        width = float(np.clip(math.sqrt(p * deviation / moved), 1e-3, _MOST_WIDTH))
        steepest = lipschitz + root * deviation / width
        smooth = self.smoothed(width)
        slopes = [smooth.derivative(axis) for axis in range(p)]
        x, total = np.full(p, 0.5), np.zeros(p)
        for _ in range(steps):
            total += x
            gradient = np.array([slope(x[None])[0] for slope in slopes])
            x = np.clip(x - root / (steepest * math.sqrt(steps)) * gradient, width, 1.0 - width)
        # downhill on the smoothed polynomial: on the polynomial itself it would end in a dip that noise made
        point = smooth._polished(total / steps, slopes, width)[1]
        value = float(self(point[None])[0])
        gap = root * steepest / math.sqrt(steps) + p * deviation / width + moved * width + 4.0 * deviation
        return Minimum(point, value, gap)

    def _polished(
        self, start: FloatArray, slopes: list[BernsteinPolynomial], margin: float = 0.0
    ) -> tuple[float, FloatArray]:
        """Go downhill inside the cube, at least ``margin`` from its faces."""

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            return float(self(x[None])[0]), np.array([slope(x[None])[0] for slope in slopes])

        found = minimize(objective, start, jac=True, bounds=[(margin, 1.0 - margin)] * len(start), method="L-BFGS-B")
        end = np.clip(found.x, margin, 1.0 - margin)
        before, after = objective(start)[0], objective(end)[0]
        return (after, end) if after < before else (before, start)
