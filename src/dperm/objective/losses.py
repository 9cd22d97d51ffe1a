r"""Losses: functions :math:`\ell(z, y)` of one prediction and one target.

A loss holds no data and adds no noise.  Privacy depends on its *slope* :math:`\partial\ell/\partial z`: the
gradient of one row is slope times row, so a bound on the slope bounds what one person can change.

The sensitivity proofs rely on two properties of ``slope`` and ``curvature``, which hold bit for bit:

* each element is one scalar function of ``(z[i], y[i])`` alone.  It does not depend on the position in the
  array, its length, strides or alignment, so replacing one row changes one element.  The vectorised ``exp``,
  ``log1p`` and ``tanh`` of numpy may round differently in the body and in the tail of an array and are not
  used.  The special functions of scipy run a scalar loop; ``+ - * /``, comparisons and clipping are correctly
  rounded, and the compiled logistic function uses nothing else;
* the floating-point result never exceeds ``slope_bound`` (``curvature_bound``) for any finite input.

Predictions and targets are never refused for their values, because an error would reveal something about a person.
Targets outside the range of a loss are mapped into it; each class documents how.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, expm1, log_expit

from dperm.errors import InvalidInput
from dperm.objective.loss_base import Loss, ResidualLoss, Task, pair, quiet, vector
from dperm.types import FloatArray
from dperm.validation import positive, whole


@dataclass(frozen=True)
class Logistic(Loss):
    r"""Logistic loss for labels 0 and 1.

    .. math:: \ell(z, y) = \log(1 + e^{z}) - y z, \qquad \ell'(z, y) = \sigma(z) - y,
       \qquad \sigma(z) = 1 / (1 + e^{-z})

    Targets are clipped to [0, 1]; with labels in {0, 1} that changes nothing.  The slope bound is 1 and the
    curvature bound 1/4.

    Examples
    --------
    >>> Logistic().slope([0.0, 0.0], [0, 1])
    array([ 0.5, -0.5])
    """

    name: ClassVar[str] = "logistic"
    task: ClassVar[Task] = "classification"

    @property
    def slope_bound(self) -> float:
        return 1.0

    @property
    def curvature_bound(self) -> float:
        return 0.25

    @quiet
    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        z, y = pair(z, y)
        y = np.clip(y, 0.0, 1.0)
        # log(1 + e^z) - y z, without the cancellation it has for y = 1 and large z.
        result: FloatArray = -(y * log_expit(z) + (1.0 - y) * log_expit(-z))
        return result

    @quiet
    def slope(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        from dperm.kernels.sigmoid import logistic_slopes  # compiled: only when needed

        return logistic_slopes(*pair(z, y))

    @quiet
    def curvature(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        z, _ = pair(z, y)
        # Near z = 0 the rounded product can pass 1/4 by one unit in the last place.
        result: FloatArray = np.minimum(expit(z) * expit(-z), 0.25)
        return result

    def largest_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        probability = slope + np.clip(y, 0.0, 1.0)
        return np.maximum(probability, 1.0 - probability)

    @quiet
    def inverse_link(self, z: ArrayLike) -> FloatArray:
        """Probability of the label 1."""
        result: FloatArray = expit(vector(z))
        return result


@dataclass(frozen=True)
class Multinomial(Loss):
    r"""Multinomial logistic (softmax) loss for class indices 0, ..., K-1.

    .. math:: \ell(z, y) = \log \sum_k e^{z_k} - z_y, \qquad \nabla \ell(z, y) = p - e_y,
       \qquad p_k = e^{z_k} / \sum_j e^{z_j}

    The slope of a row has L2 norm at most :math:`\sqrt 2`.  The Hessian
    :math:`\operatorname{diag}(p) - p p^\top` has spectral norm at most 1/2; ``curvature`` returns for each row
    the Gershgorin bound on that norm, :math:`\max_k 2 p_k (1 - p_k) \le 1/2`.

    A target that is not a class index matches no class: its slope is :math:`p`, of norm at most 1.

    Parameters
    ----------
    n_classes : int
        Number of classes K, at least 2.

    Examples
    --------
    >>> Multinomial(2).slope([[0.0, 0.0]], [1])
    array([[ 0.5, -0.5]])
    """

    n_classes: int

    name: ClassVar[str] = "multinomial"
    task: ClassVar[Task] = "classification"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_classes", whole("n_classes", self.n_classes, least=2))

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    @property
    def slope_bound(self) -> float:
        # The double nearest to the square root of 2 lies above it by 1e-16, more than the rounding of a slope
        # can add to its norm.
        return math.sqrt(2.0)

    @property
    def curvature_bound(self) -> float:
        return 0.5

    def _matrix(self, z: ArrayLike) -> FloatArray:
        array = np.asarray(z, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != self.n_classes:
            raise InvalidInput(f"the predictions must have shape (n, {self.n_classes}), got shape {array.shape}.")
        return array

    def _pair(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
        predictions, targets = self._matrix(z), np.asarray(y, dtype=np.float64)
        if targets.shape != predictions.shape[:1]:
            raise InvalidInput(f"the class indices must have shape ({len(predictions)},), got shape {targets.shape}.")
        return predictions, targets

    def _exponentials(self, z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Row maximum m, exp(z - m) and its row sums, each row by the same sequence of scalar operations."""
        top = z[:, 0].copy()
        for k in range(1, self.n_classes):
            top = np.maximum(top, z[:, k])
        powers: FloatArray = expm1(z - top[:, None]) + 1.0
        # np.sum chooses its order of addition from lengths and strides; column by column it never changes.
        total = powers[:, 0].copy()
        for k in range(1, self.n_classes):
            total += powers[:, k]
        return top, powers, total

    def _softmax(self, z: FloatArray) -> FloatArray:
        _, powers, total = self._exponentials(z)
        result: FloatArray = powers / total[:, None]
        return result

    def _one_hot(self, y: FloatArray) -> FloatArray:
        result: FloatArray = (y[:, None] == np.arange(self.n_classes)).astype(np.float64)
        return result

    @quiet
    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        z, y = self._pair(z, y)
        top, _, total = self._exponentials(z)
        chosen = self._one_hot(y) == 1.0
        gap = np.where(chosen, top[:, None] - z, 0.0).sum(axis=1)
        return np.where(chosen.any(axis=1), gap, top) + np.log(total)

    @quiet
    def slope(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        z, y = self._pair(z, y)
        return self._softmax(z) - self._one_hot(y)

    def largest_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        p = slope + self._one_hot(np.asarray(y, np.float64))
        smallest, squares = p[:, 0].copy(), np.zeros(len(p))
        for k in range(self.n_classes):  # fixed order, as in the softmax
            smallest = np.minimum(smallest, p[:, k])
            squares += p[:, k] * p[:, k]
        result: FloatArray = np.sqrt(np.maximum(squares + (1.0 - 2.0 * smallest), 0.0))
        return result

    @quiet
    def curvature(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Gershgorin bound on the spectral norm of each row's Hessian, shape (n,)."""
        z, _ = self._pair(z, y)
        p = self._softmax(z)
        result: FloatArray = np.minimum(2.0 * (p * (1.0 - p)), 0.5).max(axis=1)
        return result

    @quiet
    def inverse_link(self, z: ArrayLike) -> FloatArray:
        """Probability of each class, shape (n, K)."""
        return self._softmax(self._matrix(z))


@dataclass(frozen=True)
class Squared(ResidualLoss):
    r"""Squared loss, with an optional clip of the residual.

    .. math:: \ell(z, y) = \tfrac12 (z - y)^2, \qquad \ell'(z, y) = z - y

    With ``residual_clip`` :math:`\tau` the slope is :math:`\operatorname{clip}(z - y, -\tau, \tau)`.  That
    slope is the derivative of the Huber loss with threshold :math:`\tau` and not of the squared loss, so the
    clip changes what is minimised, and ``value`` is then the Huber loss too.  Nothing changes as long as
    :math:`|z - y| \le \tau` for every row.

    Parameters
    ----------
    residual_clip : float, optional
        Bound on the slope.  Without it ``slope_bound`` is infinite, so no query can have a finite sensitivity
        unless it clips by itself.

    Examples
    --------
    >>> Squared(residual_clip=2.0).slope([5.0, 1.0], [0.0, 0.0])
    array([2., 1.])
    """

    residual_clip: float | None = None

    name: ClassVar[str] = "squared"

    def __post_init__(self) -> None:
        if self.residual_clip is not None:
            object.__setattr__(self, "residual_clip", positive("residual_clip", self.residual_clip))

    @property
    def slope_bound(self) -> float:
        return math.inf if self.residual_clip is None else self.residual_clip


@dataclass(frozen=True)
class Huber(ResidualLoss):
    r"""Huber loss: quadratic near zero, linear beyond a threshold :math:`\tau`.

    .. math:: \ell(z, y) = \begin{cases} r^2/2 & |r| \le \tau \\ \tau |r| - \tau^2/2 & |r| > \tau \end{cases}
       \qquad r = z - y, \qquad \ell'(z, y) = \operatorname{clip}(r, -\tau, \tau)

    scikit-learn's ``HuberRegressor(epsilon, alpha)`` also estimates a scale :math:`s`.  Given its ``scale_``,
    it minimises this loss with ``threshold = epsilon * s`` and an ``L2`` penalty of
    ``strength = alpha * s / n``.

    Parameters
    ----------
    threshold : float
        Residual beyond which the loss is linear; also the slope bound.

    Examples
    --------
    >>> Huber(1.0).value([0.5, 3.0], [0.0, 0.0])
    array([0.125, 2.5  ])
    """

    threshold: float

    name: ClassVar[str] = "huber"

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", positive("threshold", self.threshold))

    @property
    def slope_bound(self) -> float:
        return self.threshold


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    r"""Hinge loss with its corner replaced by a parabola, for labels 0 and 1.

    With :math:`s = 2y - 1`, margin :math:`m = s z` and smoothing :math:`h`:

    .. math:: \ell(z, y) = \begin{cases} 0 & m \ge 1 \\ (1 - m)^2 / (2h) & 1 - h < m < 1 \\
       1 - m - h/2 & m \le 1 - h \end{cases}
       \qquad \ell'(z, y) = -s \operatorname{clip}\bigl((1 - m)/h,\, 0,\, 1\bigr)

    It lies within :math:`h/2` below the hinge loss, its slope is at most 1 and is Lipschitz with constant
    :math:`1/h`.  Targets are clipped to [0, 1]; with labels in {0, 1} that changes nothing.

    Parameters
    ----------
    smoothing : float
        Width :math:`h` of the parabola.

    Examples
    --------
    >>> SmoothedHinge(0.5).value([2.0, 0.75, 0.0], [1, 1, 1])
    array([0.    , 0.0625, 0.75  ])
    """

    smoothing: float = 0.5

    name: ClassVar[str] = "smoothed_hinge"
    task: ClassVar[Task] = "classification"

    def __post_init__(self) -> None:
        object.__setattr__(self, "smoothing", positive("smoothing", self.smoothing))
        if not math.isfinite(1.0 / self.smoothing):
            raise InvalidInput(f"smoothing is too small for a finite curvature bound, got {self.smoothing!r}.")

    @property
    def slope_bound(self) -> float:
        return 1.0

    @property
    def curvature_bound(self) -> float:
        return 1.0 / self.smoothing

    def _parts(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sign s, distance 1 - m to the margin, and that distance in units of the smoothing."""
        z, y = pair(z, y)
        sign = 2.0 * np.clip(y, 0.0, 1.0) - 1.0
        distance = 1.0 - sign * z
        return sign, distance, distance / self.smoothing

    @quiet
    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        _, distance, ratio = self._parts(z, y)
        share = np.clip(ratio, 0.0, 1.0)
        return share * (np.maximum(distance, 0.0) - 0.5 * self.smoothing * share)

    @quiet
    def slope(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        sign, _, ratio = self._parts(z, y)
        # Subtracting from +0 leaves one zero only: which zero clip returns may depend on the position.
        return 0.0 - sign * np.clip(ratio, 0.0, 1.0)

    @quiet
    def curvature(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        sign, _, ratio = self._parts(z, y)
        return np.where((ratio >= 0.0) & (ratio <= 1.0), sign * sign * self.curvature_bound, 0.0)

    @quiet
    def inverse_link(self, z: ArrayLike) -> FloatArray:
        r"""Probability of the label 1 for which ``z`` minimises the expected loss.

        With :math:`c(t) = \operatorname{clip}(t/h, 0, 1)` it is :math:`c(1 + z) / (c(1 + z) + c(1 - z))`.  It
        is 0 or 1 beyond the margins and, for :math:`h < 1`, exactly 1/2 where :math:`|z| \le 1 - h`: decide a
        class by the sign of ``z`` and do not read this as a calibrated probability.
        """
        z = vector(z)
        up = np.clip((1.0 + z) / self.smoothing, 0.0, 1.0)
        down = np.clip((1.0 - z) / self.smoothing, 0.0, 1.0)
        return up / (up + down)


#: losses whose slope is the clipped residual, which the compiled kernels assume
RESIDUAL_LOSSES: tuple[type[Loss], ...] = (Squared, Huber)
