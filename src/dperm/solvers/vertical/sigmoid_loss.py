"""The sigmoid loss, which is smooth but not convex, for ADMM sharing without noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from dperm.objective.loss_base import Loss, Task, pair, quiet, vector
from dperm.types import FloatArray

__all__ = ["SigmoidLoss"]


@dataclass(frozen=True)
class SigmoidLoss(Loss):
    r"""A smooth count of errors for labels 0 and 1: :math:`\ell(z, y) = \sigma(-s z)` with s = 2y - 1.

    The loss is bounded, so a few badly misclassified people have little influence. Its curvature lies between plus and
    minus 1 / (6 sqrt 3); a proximal step needs a larger rho.

    >>> SigmoidLoss().value([0.0], [1])
    array([0.5])
    """

    name: ClassVar[str] = "sigmoid"
    task: ClassVar[Task] = "classification"

    @property
    def slope_bound(self) -> float:
        return 0.25

    @property
    def curvature_bound(self) -> float:
        return 1.0 / (6.0 * math.sqrt(3.0))

    def _parts(self, z: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
        predictions, targets = pair(z, y)
        sign = 2.0 * np.clip(targets, 0.0, 1.0) - 1.0
        return sign, expit(-sign * predictions)

    @quiet
    def value(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        return self._parts(z, y)[1]

    @quiet
    def slope(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        sign, p = self._parts(z, y)
        return np.clip(-sign * p * (1.0 - p), -0.25, 0.25)

    @quiet
    def curvature(self, z: ArrayLike, y: ArrayLike) -> FloatArray:
        sign, p = self._parts(z, y)
        bound = self.curvature_bound
        return np.clip(sign * sign * p * (1.0 - p) * (1.0 - 2.0 * p), -bound, bound)

    def inverse_link(self, z: ArrayLike) -> FloatArray:
        """The logistic function of the prediction; not a calibrated probability."""
        out: FloatArray = expit(vector(z))
        return out
