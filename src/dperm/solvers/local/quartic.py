"""A quartic objective known up to noise of known size: a quadratic that bends with the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

import numpy as np

from dperm.solvers.local.quadratic import Estimate, NoisyQuadratic, interval
from dperm.solvers.local.sketch import FloatArray
from dperm.types import IntArray

__all__ = ["NoisyQuartic"]

_ROUNDS = 40
_SETTLED = 1e-9


@dataclass(frozen=True)
class NoisyQuartic:
    """w.H w / 2 - g.w + T[w, w, w, w] with unbiased, independent estimates of the entries of H, g and T.

    See ``quadratic.proof.md``.

    Parameters
    ----------
    quadratic : NoisyQuadratic
        The part of degree 2.
    index : ndarray of shape (m, 4)
        Rising indices of the entries of T that are known, up to symmetry.
    values, variances : ndarray of shape (m,)
        The entries and the variances of their estimates, 0 for what is public.
    lowest : float
        T bends the curvature by a share of H between this negative number and 0, which is known beforehand.
    """

    quadratic: NoisyQuadratic
    index: IntArray
    values: FloatArray
    variances: FloatArray
    lowest: float

    def _spread_out(self, entries: FloatArray) -> FloatArray:
        tensor = np.zeros((self.quadratic.dimension,) * 4)
        for order in permutations(range(4)):
            tensor[tuple(self.index[:, order].T)] = entries
        return tensor

    @cached_property
    def _tensor(self) -> FloatArray:
        return self._spread_out(self.values)

    def _along(self, weights: FloatArray) -> FloatArray:
        """The matrix T[w, w]: four times it maps w to the gradient, twelve times it is the curvature."""
        return self._tensor @ weights @ weights

    def gradient_covariance(self, weights: FloatArray) -> FloatArray:
        """Covariance of the gradient at fixed weights."""
        # one entry of T stands at all its permutations: times their number, w^m, and the gradient of that
        w, m = weights[self.index], len(self.index)
        moved = np.zeros((m, self.quadratic.dimension))
        for place in range(4):
            others = np.prod(np.delete(w, place, axis=1), axis=1)
            np.add.at(moved, (np.arange(m), self.index[:, place]), self._times * others)
        return self.quadratic.gradient_covariance(weights) + (moved * self.variances[:, None]).T @ moved

    @cached_property
    def _times(self) -> FloatArray:
        """How many entries of the full tensor each known entry stands for."""
        return np.array([len(set(permutations(row))) for row in self.index.tolist()], np.float64)

    def local_quadratic(self, weights: FloatArray) -> NoisyQuadratic:
        """Return the quadratic whose gradient at these weights is that of the quartic.

        What T adds to H is cut to the share of H that it can be.
        """
        flat = self.quadratic
        scales, axes = flat.floored_curvature()
        root = axes * np.sqrt(scales)
        inverse = axes / np.sqrt(scales)
        shares, turned = np.linalg.eigh(inverse.T @ (4.0 * self._along(weights)) @ inverse)
        half = root @ turned
        added = (half * np.clip(shares, self.lowest, 0.0)) @ half.T
        # an entry T_ijkl with k != l is met twice: at most twice the sum of squares
        noise = 32.0 * (self._spread_out(self.variances) @ weights**2 @ weights**2)
        return replace(flat, hessian=flat.hessian + added, hessian_variance=flat.hessian_variance + noise)

    def minimise(self, radius: float) -> Estimate:
        """Estimate the minimiser over the ball of this radius: that of the bent quadratic, until it stays."""
        estimate = self.quadratic.minimise(radius)
        for _ in range(_ROUNDS):
            before, estimate = estimate.weights, self.local_quadratic(estimate.weights).minimise(radius)
            if float(np.abs(estimate.weights - before).max()) <= _SETTLED * radius:
                break
        unshrunk, covariance, reason = self._unshrunk(estimate.unshrunk, radius)
        return replace(estimate, unshrunk=unshrunk, covariance=covariance, reason=reason)

    def _unshrunk(self, start: FloatArray, radius: float) -> tuple[FloatArray, FloatArray | None, str | None]:
        """Solve for a gradient of zero by Newton's method, from the bent quadratic's minimiser."""
        flat, weights = self.quadratic, start
        for _ in range(_ROUNDS):
            along = self._along(weights)
            gradient = (flat.hessian + 4.0 * along) @ weights - flat.slope
            step = np.linalg.lstsq(flat.hessian + 12.0 * along, gradient, rcond=None)[0]
            weights = weights - step
            length = float(np.linalg.norm(weights))
            if not math.isfinite(length) or length > 1e3 * radius:
                return start, None, "the estimated objective has no minimiser near the ball: more people are needed"
            if float(np.abs(step).max()) <= _SETTLED * radius:
                curvature = flat.hessian + 12.0 * self._along(weights)
                bent_noise = 9.0 * 32.0 * (self._spread_out(self.variances) @ weights**2 @ weights**2)
                noise = flat.hessian_variance + bent_noise
                return weights, *interval(weights, curvature, noise, self.gradient_covariance(weights), radius)
        return start, None, "the estimated objective has no clear minimiser: more people are needed"
