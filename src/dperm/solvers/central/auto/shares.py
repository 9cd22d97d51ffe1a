"""Budget shares and numbers of steps, from public numbers alone."""

from __future__ import annotations

import math

from dperm.data.design.facts import Facts
from dperm.objective import Loss
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.solvers.central.auto.constants import RULE

__all__ = ["n_detectable", "rows_times_mu", "share_for_test", "target_share"]


def rows_times_mu(facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Return rows times mu over records apart: the inverse of the noise of a mean of numbers of size 1."""
    return facts.n * mu / neighbours.records_apart


def target_share(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Budget share of the target mean; it grows where few rows make the mean noisy, and where columns are few.

    The noise of the mean costs in proportion to 1 / share, that of the columns to d^2 / (1 - share), for any number of
    rows and any budget: ``balanced`` is where the sum is smallest.
    """
    weight = RULE.intercept_weight * math.sqrt(max(2, loss.n_outputs) / 2.0)
    balanced = min(weight / (weight + facts.d), RULE.most_target_share)
    regression = loss.task == "regression"
    rows = RULE.rows_for_mean if regression else RULE.rows_for_frequencies
    wanted, most = (rows / rows_times_mu(facts, mu, neighbours)) ** 2, RULE.most_target_share
    if wanted > 1.0 and regression and facts.d > facts.n_features:
        most *= 2.0  # so few rows that no column stands out from the noise: the mean is all that can be estimated
    return min(max(wanted, balanced, RULE.small_share), most)


def share_for_test(facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Budget share with which the test whether few columns matter is clear enough."""
    return RULE.rows_for_test / rows_times_mu(facts, mu, neighbours)


def n_detectable(facts: Facts, mu: float, neighbours: Neighbours) -> int:
    """Number of columns that can stand out from the largest of d Gumbel noises, which grows like log d."""
    found = RULE.detectable * rows_times_mu(facts, mu, neighbours) / math.log(max(2, facts.d))
    return min(max(round(found), 1), RULE.most_steps // 4)
