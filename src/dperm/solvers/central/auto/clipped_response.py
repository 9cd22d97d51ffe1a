"""How clipped slopes respond to the weights at the best constant, which follows from the released values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dperm.objective import Logistic, Loss, Squared
from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.scales import LossScale
from dperm.solvers.central.auto.starting_point import BestConstant
from dperm.types import FloatArray

__all__ = ["ClippedResponse"]


@dataclass(frozen=True)
class ClippedResponse:
    """Curvature and sampling variation of clipped slopes at the best constant, under the null hypothesis.

    The null hypothesis is that no column is informative. A slope at its clipping threshold does not respond to the
    weights, so clipping reduces the curvature.

    Attributes
    ----------
    cautious, curvature : array of shape (outputs,)
        Derivative of the mean clipped slope. ``curvature`` is its value at the best constant; ``cautious`` is limited
        to what is typical where columns are informative.
    square : array of shape (outputs,)
        Mean square of a clipped slope at the best constant.
    """

    cautious: FloatArray
    curvature: FloatArray
    square: FloatArray

    @classmethod
    def of(
        cls, loss: Loss, scale: LossScale, best: BestConstant, clip: float, label_independence: float
    ) -> ClippedResponse:
        """Build it for a clipping threshold in typical slopes.

        >>> from dperm.solvers.central.auto.scales import scale_of
        >>> regression, logistic = scale_of(Squared()), scale_of(Logistic())
        >>> best = BestConstant(0.0, 1.0)
        >>> responses = [ClippedResponse.of(Squared(), regression, best, clip, 0.0) for clip in (0.8, 1.25, 9)]
        >>> [response.curvature.round(2).item() for response in responses]
        [0.48, 0.68, 1.0]
        >>> best = BestConstant(0.0, 0.5)
        >>> responses = [ClippedResponse.of(Logistic(), logistic, best, 0.5, share) for share in (0.0, 0.5, 1)]
        >>> [response.curvature.round(3).item() for response in responses]
        [0.008, 0.061, 0.098]
        """
        residual_bound = math.inf
        if isinstance(loss, Squared):
            residual_bound = loss.slope_bound  # half the range: affects the few targets far from all others, or none
        else:
            clip = min(clip, loss.slope_bound / best.slope)
        if loss.task == "regression":
            return cls._of_regression(scale, best, clip, residual_bound)
        passed = min(1.0, clip)
        typical = passed * min(scale.curvature, best.curvature)
        variance: FloatArray
        if type(loss) is Logistic:
            derivative, square = _two_class_response(best, clip * best.slope, label_independence)
            at_constant = np.array([max(derivative, RULE.least_kept * typical)])
            return cls(np.minimum(typical, at_constant), at_constant, np.array([square]))
        if best.constant is None or loss.n_outputs == 1:
            flat = np.full(loss.n_outputs, typical)
            square_of_each = np.full(loss.n_outputs, (passed * best.slope) ** 2 / loss.n_outputs)
            return cls(flat, flat, square_of_each)
        odds = np.exp(best.constant - best.constant.max())
        variance = odds / odds.sum() * (1.0 - odds / odds.sum())
        cautious = passed * np.minimum(scale.curvature, variance)
        return cls(cautious, passed * variance, passed**2 * variance)

    @classmethod
    def _of_regression(
        cls, scale: LossScale, best: BestConstant, clip: float, residual_bound: float
    ) -> ClippedResponse:
        """Residuals are assumed normal, except that those on the crowded side of a skewed target are small."""
        unclipped = math.erf(clip / math.sqrt(math.pi))
        # residuals may be larger than the noisy slope size says, and then fewer of them are below the threshold
        surely_unclipped = math.erf(clip / (1.0 + min(best.slope_error, RULE.much_noise)) / math.sqrt(math.pi))
        far_share = 0.5 / best.skew  # share of targets on the other side, a typical slope away
        cautious, responding = (1.0 - 1.0 / best.skew + share / best.skew for share in (surely_unclipped, unclipped))
        if residual_bound < best.slope:
            cautious, responding = min(cautious, 1.0 - far_share), min(responding, 1.0 - far_share)
        cut = clip * math.sqrt(2.0 / math.pi)  # in standard deviations
        passed = unclipped - cut * math.sqrt(2.0 / math.pi) * math.exp(-0.5 * cut * cut) + cut * cut * (1.0 - unclipped)
        # half of the deviation lies on either side: the mean square of two groups is that half times far plus near
        square = 0.5 * (best.slope / best.skew) ** 2 * (best.skew + 1.0)
        square -= far_share * max(best.slope**2 - residual_bound**2, 0.0)
        normal = 1.0 + (0.5 * math.pi - 1.0) / best.skew**2
        curvature = scale.curvature
        return cls(
            np.array([curvature * cautious]),
            np.array([curvature * responding]),
            np.array([square * normal * passed]),
        )


def _two_class_response(best: BestConstant, limit: float, label_independence: float) -> tuple[float, float]:
    """Derivative of the mean clipped logistic slope at the best constant (central difference), and its mean square."""
    start, distance = (0.0 if best.constant is None else float(best.constant)), 0.5

    def probability(score: float) -> float:
        return 1.0 / (1.0 + math.exp(-score))

    def clipped_slopes(score: float) -> tuple[float, float]:
        """Sizes of the clipped slope for label 0 and for label 1."""
        one = probability(score)
        sizes = [
            label_independence * max(one, 1.0 - one) + (1.0 - label_independence) * slope for slope in (one, 1.0 - one)
        ]
        return one * min(1.0, limit / sizes[0]), (1.0 - one) * min(1.0, limit / sizes[1])

    share = probability(start)
    (zero_above, one_above), (zero_below, one_below), (zero_at, one_at) = (
        clipped_slopes(start + by) for by in (distance, -distance, 0.0)
    )
    derivative = ((1.0 - share) * (zero_above - zero_below) - share * (one_above - one_below)) / (2.0 * distance)
    return derivative, (1.0 - share) * zero_at**2 + share * one_at**2
