"""Buying the range of the columns: two private quantiles per column, each one selection on a public grid."""

from __future__ import annotations

import numpy as np

from dperm.data.bounds import Bounds, QuantilePurchase, range_scaling
from dperm.data.design import Scaling
from dperm.data.holder import DataHolder
from dperm.privacy.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms import NoisyMax
from dperm.queries.statistics import QuantileScores

__all__ = ["buy_scaling", "expected_rank_error", "with_purchase"]


def with_purchase(plan: Plan, purchase: QuantilePurchase, n_features: int) -> Plan:
    """Put the purchase of bounds in front of a plan, with its share of the budget."""
    bought = PlannedRelease(
        QuantileScores.name,
        NoisyMax.kind,
        count=2 * n_features,
        share=purchase.budget_share,
        replacement_ratio=QuantileScores.replacement_ratio,
    )
    total = sum(release.share for release in plan.releases)
    return Plan((bought,)) + plan.scaled((1.0 - purchase.budget_share) / total)


def expected_rank_error(calibrated: CalibratedPlan, n_points: int) -> float:
    """How many ranks a bought quantile is off with probability 0.95 at most; public."""
    multiplier = calibrated.noise_multiplier(QuantileScores.name)
    # the winner's score is below the best one by more than b (ln points + 3) with probability at most e^-3
    return multiplier * (float(np.log(n_points)) + 3.0)


def buy_scaling(holder: DataHolder, bounds: Bounds, calibrated: CalibratedPlan, centred: bool) -> Scaling:
    """Release two quantiles per column and return the scaling they give."""
    assert bounds.purchase is not None
    purchase = bounds.purchase
    grid = purchase.grid_points()
    mechanism = NoisyMax(calibrated.noise_multiplier(QuantileScores.name))
    ends = np.empty((2, holder.facts.n_features))
    for column in range(holder.facts.n_features):
        for row, (quantile, side) in enumerate(((purchase.low, "low"), (purchase.high, "high"))):
            ends[row, column] = grid[holder.release(QuantileScores(column, quantile, grid, side), mechanism)]
    ends.sort(axis=0)
    return range_scaling(ends[0], ends[1], row_norm=bounds.row_norm, centred=centred)
