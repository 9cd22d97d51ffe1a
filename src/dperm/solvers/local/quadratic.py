"""A quadratic objective with noise of known size: its minimiser, shrunk by that noise, and confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from dperm.types import FloatArray

__all__ = [
    "FLAT",
    "OUTSIDE",
    "Estimate",
    "NoisyQuadratic",
    "interval",
    "kept_fraction",
    "shrinkage_factors",
    "significance_threshold",
]

#: intervals need every curvature to exceed its noise by this factor, because the delta method is linear in the noise
_CURVATURE_TO_NOISE = 4.0
#: probability that weights are kept although there is only noise
_FALSE_ALARM = 0.01
#: reasons against intervals
FLAT = "the smallest curvature is not clearly above its noise: ask more people"
OUTSIDE = "the minimiser lies outside the ball of weights: use a larger radius"


@dataclass(frozen=True)
class Estimate:
    """Weights estimated from counts.

    Attributes
    ----------
    weights : ndarray
        The minimiser in the ball, shrunk by the known noise.
    unshrunk : ndarray
        The minimiser of the plain estimates.
    covariance : ndarray or None
        Covariance of ``unshrunk``; None where there is none.
    reason : str or None
        Why there is no covariance.
    kept : float
        Fraction of the minimiser that the shrinkage kept, from 0 to 1.
    """

    weights: FloatArray
    unshrunk: FloatArray
    covariance: FloatArray | None
    reason: str | None
    kept: float


@dataclass(frozen=True)
class NoisyQuadratic:
    """w.H w / 2 - g.w with unbiased, independent estimates of the entries of H (on and above the diagonal) and g.

    ``hessian_variance`` and ``slope_variance`` hold their variances, 0 for public entries. See ``quadratic.proof.md``.
    """

    hessian: FloatArray
    slope: FloatArray
    hessian_variance: FloatArray
    slope_variance: FloatArray

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return len(self.slope)

    def gradient_covariance(self, weights: FloatArray) -> FloatArray:
        """Covariance of the gradient H w - g at fixed weights."""
        # an error in H_ij changes entry i of the gradient by w_j times it and entry j by w_i times it
        covariance = self.hessian_variance * np.outer(weights, weights)
        np.fill_diagonal(covariance, self.hessian_variance @ weights**2 + self.slope_variance)
        return covariance

    def shrunk_hessian(self) -> NoisyQuadratic:
        """Return the quadratic with a shrunk H, whose mean squared error is smaller.

        The entries off the diagonal are shrunk towards 0 and those on it towards their mean, each by the share of their
        variation that noise explains (Ledoit and Wolf 2004, with known noise); public entries do not change.
        """
        hessian, variance = self.hessian.copy(), self.hessian_variance.copy()
        off = ~np.eye(self.dimension, dtype=bool)
        kept = _signal_share(float((hessian[off] ** 2).sum()), float(variance[off].sum()))
        known = variance == 0.0
        hessian[off & ~known] *= kept
        variance[off] *= kept**2
        diagonal = np.diag(hessian).copy()
        private = ~np.diag(known)
        n_private = int(private.sum())
        if n_private > 1:
            values, noise = diagonal[private], np.diag(variance)[private]
            centre = float(values.mean())
            kept = _signal_share(float(((values - centre) ** 2).sum()), float(noise.sum()) * (1.0 - 1.0 / n_private))
            diagonal[private] = centre + kept * (values - centre)
            np.fill_diagonal(hessian, diagonal)
            spread = np.diag(variance).copy()
            spread[private] = kept**2 * noise + (1.0 - kept) ** 2 * noise.mean() / n_private
            np.fill_diagonal(variance, spread)
        return NoisyQuadratic(hessian, self.slope, variance, self.slope_variance)

    def floored_curvature(self) -> tuple[FloatArray, FloatArray]:
        """Return the eigenvalues and axes of H, eigenvalues below the noise level raised to that level.

        A curvature below its noise cannot be distinguished from 0.
        """
        values, axes = np.linalg.eigh(self.hessian)
        return np.maximum(values, max(math.sqrt(float(self.hessian_variance.mean())), 1e-12)), axes

    def minimise(self, radius: float) -> Estimate:
        """Estimate the minimiser over the ball of this radius."""
        shrunk = self.shrunk_hessian()
        values, axes = shrunk.floored_curvature()
        along = axes.T @ self.slope
        plain = axes @ (along / values)
        # the noise at the estimated weights, and at weights 0, where the noise of H does not matter
        noise, null = (
            np.diag(axes.T @ shrunk.gradient_covariance(at) @ axes) / values
            for at in (_into_ball(plain, radius), np.zeros_like(plain))
        )
        kept = kept_fraction(float((along**2 / values).sum()), float(noise.sum()), null)
        unshrunk, covariance, reason = self._unshrunk(radius)
        return Estimate(
            _into_ball(kept * _in_ball(values, axes, along, radius), radius), unshrunk, covariance, reason, kept
        )

    def _unshrunk(self, radius: float) -> tuple[FloatArray, FloatArray | None, str | None]:
        values, axes = np.linalg.eigh(self.hessian)
        weights = axes @ (axes.T @ self.slope / np.where(values == 0.0, np.inf, values))
        covariance = self.gradient_covariance(weights)
        return weights, *interval(weights, self.hessian, self.hessian_variance, covariance, radius)


def interval(
    weights: FloatArray,
    curvature: FloatArray,
    curvature_variance: FloatArray,
    gradient_covariance: FloatArray,
    radius: float,
) -> tuple[FloatArray | None, str | None]:
    """Return the covariance of a minimiser by the delta method, or None with the reason."""
    noise = math.sqrt(float(curvature_variance.sum(axis=1).max()))
    values, axes = np.linalg.eigh(curvature)
    if values[0] <= _CURVATURE_TO_NOISE * noise:
        return None, FLAT
    if np.linalg.norm(weights) >= radius:
        return None, OUTSIDE
    inverse = (axes / values) @ axes.T
    return inverse @ gradient_covariance @ inverse, None


def _signal_share(total: float, noise: float) -> float:
    """Estimated share of a sum of squares that is signal."""
    return max(0.0, 1.0 - noise / total) if total > 0.0 else 0.0


def kept_fraction(total: float, noise: float, null: FloatArray) -> float:
    """Fraction of the weights to keep, 0 unless their sum of squares is significant.

    ``noise`` is what noise adds to the sum, and ``null`` holds the expected squares of its terms without a signal. Just
    above the threshold only the part of the length beyond it is kept, because noise has enlarged such weights.
    """
    if not total > 0.0 or float(null.sum()) <= 0.0:
        return _signal_share(total, noise)
    return float(shrinkage_factors(np.array([total]), noise, significance_threshold(null))[0])


def shrinkage_factors(total: FloatArray, noise: float, threshold: float) -> FloatArray:
    """Fractions to keep of weights with these sums of squares, given the noise in the sums and the threshold."""
    ratio = np.sqrt(threshold / np.maximum(total, threshold))
    # the second factor acts like soft thresholding near the threshold and tends to 1 for clearly significant weights
    return np.clip(np.minimum(1.0 - noise / np.maximum(total, threshold), 1.0 - ratio ** (1.0 / ratio)), 0.0, 1.0)


def significance_threshold(null: FloatArray) -> float:
    """Value that a sum of squares of pure noise, with these expected terms, exceeds with probability 0.01."""
    # a sum of unequal squares is approximately a multiple of a chi-square (Satterthwaite 1946)
    alone = float(null.sum())
    freedom = alone**2 / float((null**2).sum())
    return alone * float(stats.chi2.isf(_FALSE_ALARM, freedom)) / freedom


def _into_ball(weights: FloatArray, radius: float) -> FloatArray:
    return weights * min(1.0, radius / max(float(np.linalg.norm(weights)), 1e-300))


def _in_ball(values: FloatArray, axes: FloatArray, along: FloatArray, radius: float) -> FloatArray:
    """Minimise over the ball, with H given by its eigenvalues (above 0) and axes; bisection finds the multiplier."""

    def at(multiplier: float) -> FloatArray:
        return along / (values + multiplier)

    low, high = 0.0, float(np.linalg.norm(along)) / radius
    if np.linalg.norm(at(0.0)) > radius:
        for _ in range(100):
            middle = (low + high) / 2.0
            low, high = (middle, high) if np.linalg.norm(at(middle)) > radius else (low, middle)
        return axes @ at(high)
    return axes @ at(0.0)
