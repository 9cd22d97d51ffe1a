"""Buying the range of columns and target: two private quantiles each, every one a selection on a public grid."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dperm.data.bounds import Bounds, QuantilePurchase, range_scaling
from dperm.data.design import Scaling
from dperm.data.holder import DataHolder
from dperm.privacy.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms import NoisyMax
from dperm.queries.statistics import QuantileScores

__all__ = ["INNERMOST", "buy_range", "buy_scaling", "expected_rank_error", "reachable_levels", "with_purchase"]

FloatArray = NDArray[np.float64]

#: bought quantiles lie no further inside than this; nearer to the median they would say too little of the ends
INNERMOST = 0.35


def with_purchase(plan: Plan, purchase: QuantilePurchase, n_ranges: int) -> Plan:
    """Put the purchase of ``n_ranges`` ranges in front of a plan, with its share of the budget."""
    bought = PlannedRelease(
        QuantileScores.name,
        NoisyMax.kind,
        count=2 * n_ranges,
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


def buy_range(holder: DataHolder, purchase: QuantilePurchase, calibrated: CalibratedPlan, column: int) -> FloatArray:
    """Release two quantiles of a column and return them in order."""
    grid = purchase.grid_points()
    mechanism = NoisyMax(calibrated.noise_multiplier(QuantileScores.name))
    low, high = reachable_levels(purchase, calibrated, holder.facts.n)
    queries = (QuantileScores(column, low, grid, "low"), QuantileScores(column, high, grid, "high"))
    ends: FloatArray = np.sort([grid[holder.release(query, mechanism)] for query in queries])
    # inner quantiles are carried out to the wanted ones as those of a normal distribution lie
    normal = NormalDist().inv_cdf
    wider = (normal(purchase.high) - normal(purchase.low)) / (normal(high) - normal(low))
    return ends.mean() + (ends - ends.mean()) * wider if wider > 1.0 else ends


def reachable_levels(purchase: QuantilePurchase, calibrated: CalibratedPlan, n: int) -> tuple[float, float]:
    """Levels of the quantiles to buy, from public numbers.

    A quantile nearer to the end than its own error in ranks may come out anywhere beyond the data, so the levels stay
    that far inside, as far as :data:`INNERMOST`.
    """
    inside = min(expected_rank_error(calibrated, len(purchase.grid_points())) / n, INNERMOST)
    return min(max(purchase.low, inside), INNERMOST), max(min(purchase.high, 1.0 - inside), 1.0 - INNERMOST)


def buy_scaling(
    holder: DataHolder,
    bounds: Bounds,
    calibrated: CalibratedPlan,
    centred: bool,
    boolean: NDArray[np.bool_] | None = None,
) -> Scaling:
    """Buy the range of every column, but those of type bool, and return the scaling they give."""
    assert bounds.purchase is not None
    n_features = holder.facts.n_features
    ends = np.tile([[0.0], [1.0]], n_features)
    for column in np.flatnonzero(bounds.bought_columns(n_features, boolean)):
        ends[:, column] = buy_range(holder, bounds.purchase, calibrated, int(column))
    return range_scaling(ends[0], ends[1], row_norm=bounds.row_norm, centred=centred)
