"""The mean prediction of a regression, from the released mean and the descent: post-processing."""

from __future__ import annotations

from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.starting_point import BestConstant

__all__ = ["mean_shift"]


def mean_shift(
    descent_shift: float, variance: float, by_columns: float, best: BestConstant, loss_targets_mean: bool
) -> float:
    """Return the shift of the mean prediction from the released mean, given the shift of the descent.

    The prior variance of the true shift is that of the released mean's noise plus that of the columns' contribution:
    the mean row is known only roughly (long rows count less in it), so half of it may be wrong. The descent's shift has
    the noise ``variance`` and, for a skewed target, a clipping bias that is a share of the mean deviation. It is
    weighted by its precision, and the prior limits how far it can move the mean. A loss that does not target the mean
    (Huber) should follow the clipped residuals: for it the bias counts as signal and there is no limit.
    """
    row_error = 0.5 * abs(by_columns)
    prior = best.noise**2 + row_error**2
    bias = (RULE.clipping_bias * best.slope) ** 2
    if not loss_targets_mean:
        return descent_shift * (prior + bias) / (prior + bias + variance)
    weight = prior / (prior + variance + bias)
    limit = best.noise * (1.0 + weight) + row_error
    return min(max(weight * descent_shift, -limit), limit)
