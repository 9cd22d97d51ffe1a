"""A quartic objective with noise of known size, minimised as a quadratic whose curvature depends on the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

import numpy as np

from dperm.solvers.local.quadratic import Estimate, NoisyQuadratic, interval
from dperm.types import FloatArray, IntArray

__all__ = ["NoisyQuartic"]

_ROUNDS = 40  # limit on the iterations, which are contractions or Newton steps
_CONVERGED = 1e-9  # largest change of a weight, relative to the radius, at which an iteration has converged


@dataclass(frozen=True)
class NoisyQuartic:
    """w.H w / 2 - g.w + T[w, w, w, w] with unbiased, independent estimates of the entries of H, g and T.

    See ``quadratic.proof.md``.

    Parameters
    ----------
    quadratic : NoisyQuadratic
        The part of degree 2.
    index : ndarray of shape (m, 4)
        Increasing indices of the known entries of T, up to symmetry.
    values, variances : ndarray of shape (m,)
        The entries and the variances of their estimates, 0 for public ones.
    lowest : float
        T changes the curvature by a share of H between this negative number and 0; known beforehand.
    """

    quadratic: NoisyQuadratic
    index: IntArray
    values: FloatArray
    variances: FloatArray
    lowest: float

    def _full_tensor(self, entries: FloatArray) -> FloatArray:
        tensor = np.zeros((self.quadratic.dimension,) * 4)
        for order in permutations(range(4)):
            tensor[tuple(self.index[:, order].T)] = entries
        return tensor

    @cached_property
    def _tensor(self) -> FloatArray:
        return self._full_tensor(self.values)

    def _along(self, weights: FloatArray) -> FloatArray:
        """The matrix T[w, w]; four times it maps w to the gradient of T, twelve times it is the second derivative."""
        return self._tensor @ weights @ weights

    def gradient_covariance(self, weights: FloatArray) -> FloatArray:
        """Covariance of the gradient at fixed weights."""
        # a known entry of T appears at all its permutations: their number times the gradient of w^m
        w, m = weights[self.index], len(self.index)
        moved = np.zeros((m, self.quadratic.dimension))
        for place in range(4):
            others = np.prod(np.delete(w, place, axis=1), axis=1)
            np.add.at(moved, (np.arange(m), self.index[:, place]), self._times * others)
        return self.quadratic.gradient_covariance(weights) + (moved * self.variances[:, None]).T @ moved

    @cached_property
    def _times(self) -> FloatArray:
        """Number of entries of the full tensor that each known entry represents."""
        return np.array([len(set(permutations(row))) for row in self.index.tolist()], np.float64)

    def local_quadratic(self, weights: FloatArray) -> NoisyQuadratic:
        """Return the quadratic whose gradient at these weights is that of the quartic.

        What T adds to H is clipped to the share of H that is possible.
        """
        flat = self.quadratic
        scales, axes = flat.floored_curvature()
        root = axes * np.sqrt(scales)
        inverse = axes / np.sqrt(scales)
        shares, turned = np.linalg.eigh(inverse.T @ (4.0 * self._along(weights)) @ inverse)
        half = root @ turned
        added = (half * np.clip(shares, self.lowest, 0.0)) @ half.T
        # an entry T_ijkl with k != l occurs twice: at most twice the sum of squares
        noise = 32.0 * (self._full_tensor(self.variances) @ weights**2 @ weights**2)
        return replace(flat, hessian=flat.hessian + added, hessian_variance=flat.hessian_variance + noise)

    def minimise(self, radius: float) -> Estimate:
        """Estimate the minimiser over the ball of this radius: minimise local quadratics until the weights converge."""
        estimate = self.quadratic.minimise(radius)
        for _ in range(_ROUNDS):
            before, estimate = estimate.weights, self.local_quadratic(estimate.weights).minimise(radius)
            if float(np.abs(estimate.weights - before).max()) <= _CONVERGED * radius:
                break
        unshrunk, covariance, reason = self._unshrunk(estimate.unshrunk, radius)
        return replace(estimate, unshrunk=unshrunk, covariance=covariance, reason=reason)

    def _unshrunk(self, start: FloatArray, radius: float) -> tuple[FloatArray, FloatArray | None, str | None]:
        """Solve for a gradient of zero by Newton's method, starting at the minimiser of the local quadratic."""
        flat, weights = self.quadratic, start
        for _ in range(_ROUNDS):
            along = self._along(weights)
            gradient = (flat.hessian + 4.0 * along) @ weights - flat.slope
            step = np.linalg.lstsq(flat.hessian + 12.0 * along, gradient, rcond=None)[0]
            weights = weights - step
            length = float(np.linalg.norm(weights))
            if not math.isfinite(length) or length > 1e3 * radius:
                return start, None, "the estimated objective has no minimiser near the ball: ask more people"
            if float(np.abs(step).max()) <= _CONVERGED * radius:
                curvature = flat.hessian + 12.0 * self._along(weights)
                fourth_noise = 9.0 * 32.0 * (self._full_tensor(self.variances) @ weights**2 @ weights**2)
                noise = flat.hessian_variance + fourth_noise
                return weights, *interval(weights, curvature, noise, self.gradient_covariance(weights), radius)
        return start, None, "the estimated objective has no clear minimiser: ask more people"
