"""Predicted costs, in units of the mean loss, from public numbers: the rule takes the cheaper of two descents.

``docs/automatic.md`` derives the formulas.
"""

from __future__ import annotations

import math

from dperm.data.design.facts import Facts
from dperm.objective import Loss
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.solvers.central.auto.constants import RULE, TINY
from dperm.solvers.central.auto.scales import scale_of

__all__ = [
    "cost_in_metric",
    "cost_without_metric",
    "expected_noise",
    "explainable",
    "fraction_of",
    "noise_fraction",
    "skewed",
]


def explainable(loss: Loss) -> float:
    """Typical part of the null model's loss that columns can explain; in regression in squared mean deviations."""
    # the entropy of equal classes grows like its logarithm
    return RULE.explainable * (scale_of(loss).slope or 1.0) ** 2 * math.log2(max(2, loss.n_outputs))


def expected_noise(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Expected excess objective caused by noise alone if the budget ``mu`` is spent on gradients.

    In a metric in which the data are isotropic, each of d coordinates of curvature k has the noise variance
    (records apart * typical slope * sqrt(d) / (n mu k))^2 and costs k / 2 per unit of variance. In regression the unit
    is the target's squared mean deviation.
    """
    scale = scale_of(loss)
    coordinates = facts.d * facts.d * loss.n_outputs
    return (
        coordinates * (neighbours.records_apart * (scale.slope or 1.0) / (facts.n * mu)) ** 2 / (2.0 * scale.curvature)
    )


def fraction_of(excess: float) -> float:
    """Noise over itself plus the tolerated excess: 0 without noise, near 1 where noise dominates."""
    return excess / (excess + RULE.tolerated_excess)


def noise_fraction(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """How far noise dominates if all is spent on gradients; all cautious choices interpolate with this number."""
    return fraction_of(expected_noise(loss, facts, mu, neighbours))


def skewed(fraction: float, skew: float) -> float:
    """Noise fraction when a typical slope, and hence the noise, is ``skew`` times the mean slope."""
    odds = skew * skew * fraction / max(1.0 - fraction, TINY)
    return odds / (1.0 + odds)


def cost_in_metric(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Cost of a descent in which all directions are learnt equally well: noise, and sampling variation."""
    sampling = facts.d * loss.n_outputs / (2.0 * facts.n)
    noise = expected_noise(loss, facts, mu, neighbours)
    if loss.task == "regression":  # a posterior mean never pays more for noise than all that columns explain
        noise *= explainable(loss) / (explainable(loss) + noise)
    return noise + sampling


def cost_without_metric(loss: Loss, d: int, duration: float, rows_times_mu: float) -> float:
    """Cost of a descent of this duration (total step length times curvature times squared row length).

    The noise of a score has the variance (duration * typical slope / (curvature * rows times mu))^2, which costs
    curvature / 2 per unit. A direction in which rows have the share h of their squared length is learnt up to
    exp(-h * duration), and what is left costs the square of that.
    """
    scale = scale_of(loss)
    noise = ((scale.slope or 1.0) * duration / rows_times_mu) ** 2 / (2.0 * scale.curvature)
    if loss.n_outputs > 1:
        # slopes, and so clips, are sqrt(2) times as long, and the loss is four times as curved along scores
        # (`class_refit.py`): noise costs 2 * 4 times as much
        noise *= 2.0 * 2.0 * 2.0 * (1.0 - 1.0 / loss.n_outputs)
    few, all_of_them = (math.exp(-2.0 * duration / directions) for directions in (math.sqrt(d), d))
    missed = RULE.in_few_directions * few + (1.0 - RULE.in_few_directions) * all_of_them
    return min(noise + explainable(loss) * missed, explainable(loss))
