r"""The proximal point of a loss in one prediction, for many predictions at once.

For a point v and a target y it is the z that minimises :math:`\ell(z, y) + \tfrac{\rho}{2} (z - v)^2`. The slope there,
t = l'(z, y) = rho (v - z), is what methods of multipliers need, and never exceeds the loss's slope bound. Each result
is one scalar function of (v, y): elementwise operations in a fixed number of steps.
"""

from __future__ import annotations

import math

import numpy as np

from dperm.errors import Unsupported
from dperm.objective.loss_base import Loss, ResidualLoss, pair, quiet
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = ["proximal_slopes"]

_STEPS = 30  # Newton needs fewer than ten; a step that leaves the bracket is replaced by bisection


@quiet
def proximal_slopes(loss: Loss, points: FloatArray, target: FloatArray, rho: float) -> FloatArray:
    """Return the slope of the loss at its proximal points.

    A loss that is not convex needs ``rho`` above its curvature bound, so that the point is unique.

    >>> from dperm.objective import Squared
    >>> proximal_slopes(Squared(), [2.0], [0.0], 1.0)
    array([1.])
    """
    rho = positive("rho", rho)
    v, y = pair(points, target)
    bound = loss.slope_bound
    if isinstance(loss, ResidualLoss):
        # inside the clip z - y + rho (z - v) = 0, so the slope is rho (v - y) / (1 + rho)
        return np.clip(rho * (v - y) / (1.0 + rho), -bound, bound)
    if not math.isfinite(bound) or not math.isfinite(loss.curvature_bound):
        raise Unsupported(f"the {loss.name} loss has no proximal step here: its slopes or curvature are not bounded.")
    low, high = v - bound / rho, v + bound / rho
    z = v
    for _ in range(_STEPS):
        excess = loss.slope(z, y) + rho * (z - v)
        high, low = np.where(excess > 0.0, z, high), np.where(excess > 0.0, low, z)
        newton = z - excess / (loss.curvature(z, y) + rho)
        # a step onto an end of the bracket is rejected too: a corner of the slope would make Newton oscillate
        z = np.where(((low < newton) & (newton < high)) | (newton == z), newton, 0.5 * (low + high))
    return np.clip(rho * (v - z), -bound, bound)
