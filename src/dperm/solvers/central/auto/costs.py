"""Predicted costs of the two descents, in units of the mean loss, from public numbers: the rule takes the cheaper one.

Both add up what noise costs and what the method leaves unlearnt. ``docs/automatic.md`` derives the formulas.
"""

from __future__ import annotations

import math

from dperm.data.design.facts import Facts
from dperm.objective import Loss
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.solvers.central.auto.recipes import expected_noise, recipe_for

__all__ = ["cost_in_metric", "cost_without_metric", "explainable"]

#: part of the cost of sampling variation that is left after shrinkage. A fit without privacy has d / (2 n) on average;
#: chosen on paper, not scanned: at epsilon 4 `wide` was better on MNIST, the metric on 1,500 x 100 normal columns, and
#: 0.5 puts the border between the two
_SAMPLING_LEFT = 0.5
#: share of what the columns explain that is taken to lie in about sqrt(d) directions; the rest lies equally in all d
_IN_FEW_DIRECTIONS = 0.5
#: cost of noise for many classes against that for two: slopes and so clips are sqrt(2) times as long, and the curvature
#: of the loss along the scores is 1 in place of a quarter (see `class_refit.py`)
_NOISE_OF_CLASSES = 8.0


def explainable(loss: Loss) -> float:
    """Typical part of the null model's loss that columns can explain."""
    recipe = recipe_for(loss)
    # the entropy of equal classes grows like its logarithm
    return recipe.explainable * (1.0 if recipe.slope is None else recipe.slope**2) * math.log2(max(2, loss.n_outputs))


def cost_in_metric(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Cost of a descent in which all directions are learnt equally well: noise, and sampling variation."""
    sampling = _SAMPLING_LEFT * facts.d * loss.n_outputs / (2.0 * facts.n)
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
    recipe = recipe_for(loss)
    slope = 1.0 if recipe.slope is None else recipe.slope
    noise = (slope * duration / rows_times_mu) ** 2 / (2.0 * recipe.curvature)
    if loss.n_outputs > 1:
        noise *= _NOISE_OF_CLASSES * (1.0 - 1.0 / loss.n_outputs)
    few, all_of_them = (math.exp(-2.0 * duration / directions) for directions in (math.sqrt(d), d))
    missed = _IN_FEW_DIRECTIONS * few + (1.0 - _IN_FEW_DIRECTIONS) * all_of_them
    return min(noise + explainable(loss) * missed, explainable(loss))
