"""Base class of the losses, and the arithmetic that several of them share.

Predictions and targets are private, so only their shapes are checked.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import ClassVar, Literal, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput
from dperm.types import FloatArray

Task: TypeAlias = Literal["classification", "regression"]

P = ParamSpec("P")
R = TypeVar("R")


def quiet(method: Callable[P, R]) -> Callable[P, R]:
    """Run a method without floating-point warnings.

    Overflow to infinity is the right limit in every loss: it is clipped, or it is the value of the loss.  A
    warning (or, under ``np.seterr``, an error) would depend on private values.
    """

    @wraps(method)
    def silent(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            return method(*args, **kwargs)

    return silent


class Loss(ABC):
    """Base class of the losses.

    Attributes
    ----------
    name : str
        Key in the registry.
    task : {"classification", "regression"}
        What the target is.
    """

    name: ClassVar[str]
    task: ClassVar[Task]

    @property
    def n_outputs(self) -> int:
        """Number of predictions per row: 1 (``z`` has shape (n,)) or K (shape (n, K))."""
        return 1

    @property
    @abstractmethod
    def slope_bound(self) -> float:
        """Bound on ``abs(slope)``; with several outputs, on the L2 norm of a row of it."""

    @property
    @abstractmethod
    def curvature_bound(self) -> float:
        """Bound on the second derivative in the prediction; with several outputs, on its spectral norm."""

    @abstractmethod
    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Loss of each row, shape (n,)."""

    @abstractmethod
    def slope(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Derivative of ``value`` in the prediction, shape of ``z``."""

    @abstractmethod
    def curvature(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Second derivative in the prediction, shape (n,)."""

    def largest_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        """Largest magnitude of the slope over all possible targets, at the predictions where ``y`` gave ``slope``.

        Shape (n,), correct up to rounding. A loss that does not override this returns its slope bound.
        """
        return np.full(len(slope), self.slope_bound)

    @abstractmethod
    def inverse_link(self, z: ArrayLike) -> FloatArray:
        """Mean of the target (a probability in classification) that corresponds to the predictions ``z``."""


def vector(z: ArrayLike) -> FloatArray:
    """Return one prediction per row, shape (n,)."""
    array = np.asarray(z, dtype=np.float64)
    if array.ndim != 1:
        raise InvalidInput(f"the predictions must have shape (n,), got shape {array.shape}.")
    return array


def pair(z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return predictions and targets, both of shape (n,)."""
    predictions, targets = vector(z), np.asarray(y, dtype=np.float64)
    if targets.shape != predictions.shape:
        raise InvalidInput(f"predictions and targets must have one shape, got {predictions.shape} and {targets.shape}.")
    return predictions, targets


class ResidualLoss(Loss):
    r"""A loss of the residual :math:`r = z - y` with slope :math:`\operatorname{clip}(r, -\tau, \tau)`.

    :math:`\tau` is the slope bound of the class; infinity gives the squared loss.
    """

    task: ClassVar[Task] = "regression"

    @property
    def curvature_bound(self) -> float:
        return 1.0

    @quiet
    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        predictions, targets = pair(z, y)
        size = np.abs(predictions - targets)
        # One formula for both branches: with c = min(|r|, tau) it is r^2/2 inside and tau |r| - tau^2/2
        # outside. A finite c keeps infinity - infinity out where the residual overflows.
        inner = np.minimum(size, min(self.slope_bound, sys.float_info.max))
        return inner * (size - 0.5 * inner)

    @quiet
    def slope(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        predictions, targets = pair(z, y)
        return np.clip(predictions - targets, -self.slope_bound, self.slope_bound)

    @quiet
    def curvature(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        """Second derivative; at the two kinks, where none exists, the larger one-sided value 1."""
        predictions, targets = pair(z, y)
        return (np.abs(predictions - targets) <= self.slope_bound).astype(np.float64)

    def inverse_link(self, z: ArrayLike) -> FloatArray:
        """The predictions themselves."""
        return vector(z).copy()
