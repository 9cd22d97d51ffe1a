"""Typical sizes of each kind of loss: they turn public numbers into predicted costs, clips and step lengths.

Lengths are in units of a typical row and slopes in units of their typical size, so the same constants serve every data
set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dperm.objective import Loss, SmoothedHinge
from dperm.solvers.central.auto.constants import RULE, TINY

__all__ = ["LossScale", "scale_of"]


@dataclass(frozen=True)
class LossScale:
    """Typical sizes of one kind of loss.

    Attributes
    ----------
    slope : float or None
        Size of a slope; None where it is released (the mean deviation of a regression target).
    curvature : float
        Second derivative of the loss.
    step_curvature : float
        Second derivative that steps are safe for: the largest value, or the largest population mean where the loss is
        curved in few places only.
    clip : float
        Clipping threshold of one person's gradient where noise dominates, in typical gradients.
    """

    slope: float | None
    curvature: float
    step_curvature: float
    clip: float

    def clip_at(self, noise_fraction: float) -> float:
        """Return the clipping threshold in typical gradients.

        Noise costs in proportion to the squared threshold and clipping costs bias. Where the noise falls, the threshold
        grows such that its cost still falls with the root of the noise.
        """
        return self.clip / math.sqrt(math.sqrt(max(noise_fraction, TINY)))


def scale_of(loss: Loss) -> LossScale:
    """Return the typical sizes of a loss.

    The hinge has slope 1 wherever the margin is missed and is curved only near the margin, for every smoothing width.
    The largest second derivative of the logistic loss is a quarter, and its slope at even odds a half.
    """
    if loss.task == "regression":
        return LossScale(None, 1.0, 1.0, RULE.regression_clip)
    if isinstance(loss, SmoothedHinge):  # slopes are twice as large: with four times the curvature noise costs the same
        curvature = 4.0 * RULE.logistic_curvature
        return LossScale(1.0, curvature, curvature, RULE.class_clip)
    return LossScale(0.5, RULE.logistic_curvature, 0.25, RULE.class_clip)
