"""Buying the range of columns and target: two private quantiles each, by selection on a public grid.

Utility argument: last section of ``statistics.proof.md``.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from dperm.data.design.bounds import Bounds, QuantilePurchase, range_scaling
from dperm.data.design.matrix import Scaling
from dperm.data.holding.holder import DataHolder
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms.standard import NoisyMax
from dperm.queries.statistics import QuantileScores, TargetQuantileScores
from dperm.types import BoolArray, FloatArray

__all__ = [
    "INNERMOST_LEVEL",
    "buy_range",
    "buy_scaling",
    "is_one_grid_step_wide",
    "rank_error",
    "reachable_levels",
    "with_purchase",
]


#: innermost level of a bought quantile; one nearer to the median would determine the ends too poorly
INNERMOST_LEVEL = 0.35
#: a quantile misses by more than :func:`rank_error` with probability at most e^-7, below 1/1000
_TAIL_NATS = 7.0
#: with enough rows, levels stay this many rank errors inside (a far too wide range then has probability 1e-5)
_RANK_ERRORS_INSIDE = 1.5
#: ... but only up to this level: further inside, the ends are determined less and less well
_LEVEL_AT_LITTLE_COST = 0.25


def with_purchase(plan: Plan, purchase: QuantilePurchase, n_columns: int, buys_target: bool = False) -> Plan:
    """Return a plan that first buys ranges, with their share of the budget, and then continues with ``plan``."""
    counts = [(QuantileScores, n_columns), (TargetQuantileScores, int(buys_target))]
    wanted = [(query, count) for query, count in counts if count]
    bought = tuple(
        PlannedRelease(
            query.name,
            NoisyMax.kind,
            count=2 * count,
            share=purchase.budget_share / len(wanted),
            replacement_ratio=query.replacement_ratio,
        )
        for query, count in wanted
    )
    total = sum(release.share for release in plan.releases)
    return Plan(bought) + plan.scaled((1.0 - purchase.budget_share) / total)


def rank_error(
    purchase: QuantilePurchase, calibrated: CalibratedPlan, query: type[QuantileScores] = QuantileScores
) -> float:
    """Return the error in ranks that a bought quantile exceeds with probability below 1/1000; public."""
    points = float(np.exp(-purchase.prior_penalties()).sum())
    return calibrated.noise_multiplier(query.name) * (float(np.log(points)) + _TAIL_NATS)


def buy_range(
    holder: DataHolder,
    purchase: QuantilePurchase,
    calibrated: CalibratedPlan,
    column: int,
    query: type[QuantileScores] = QuantileScores,
) -> FloatArray:
    """Release two quantiles of a column and return them in order."""
    grid = purchase.grid_points()
    mechanism = NoisyMax(calibrated.noise_multiplier(query.name))
    # public numbers: a point that is less likely a priori needs so many more records
    score_penalties = mechanism.noise_multiplier * purchase.prior_penalties()
    low, high = reachable_levels(purchase, calibrated, holder.facts.n, query)
    queries = (query(column, low, grid, "low", score_penalties), query(column, high, grid, "high", score_penalties))
    ends: FloatArray = np.sort([grid[holder.release(one, mechanism)] for one in queries])
    extrapolated: FloatArray = ends.mean() + (ends - ends.mean()) * _extrapolation_factor(purchase, low, high)
    return extrapolated


def _extrapolation_factor(purchase: QuantilePurchase, low: float, high: float) -> float:
    """Return the factor that extrapolates inner quantiles to the wanted ones, as for a normal distribution."""
    normal = NormalDist().inv_cdf
    return max(1.0, (normal(purchase.high) - normal(purchase.low)) / (normal(high) - normal(low)))


def is_one_grid_step_wide(
    ends: FloatArray,
    purchase: QuantilePurchase,
    calibrated: CalibratedPlan,
    n: int,
    query: type[QuantileScores] = QuantileScores,
) -> bool:
    """Whether a bought range does not include zero and is one grid step wide.

    Values such as years may fill only a small part of such a range, and this grid cannot resolve it any further.
    """
    factor = _extrapolation_factor(purchase, *reachable_levels(purchase, calibrated, n, query))
    low, high = float(np.mean(ends)) + (np.asarray(ends) - np.mean(ends)) / factor
    first, last = (int(np.abs(purchase.grid_points() - end).argmin()) for end in (low, high))
    return last - first <= 1 and low * high > 0.0


def reachable_levels(
    purchase: QuantilePurchase, calibrated: CalibratedPlan, n: int, query: type[QuantileScores] = QuantileScores
) -> tuple[float, float]:
    """Return the levels of the quantiles to buy, from public numbers.

    A quantile closer to the end than its own error in ranks may be released far outside the data, so the levels stay
    that far inside, up to :data:`INNERMOST_LEVEL`, and half as far again where that costs little.
    """
    error = rank_error(purchase, calibrated, query) / n
    inside = min(max(error, min(_RANK_ERRORS_INSIDE * error, _LEVEL_AT_LITTLE_COST)), INNERMOST_LEVEL)
    return min(max(purchase.low, inside), INNERMOST_LEVEL), max(min(purchase.high, 1.0 - inside), 1.0 - INNERMOST_LEVEL)


def buy_scaling(
    holder: DataHolder,
    bounds: Bounds,
    calibrated: CalibratedPlan,
    centred: bool,
    boolean: BoolArray | None = None,
) -> Scaling:
    """Buy the range of every column except those of type bool, and return the resulting scaling."""
    assert bounds.purchase is not None
    n_features = holder.facts.n_features
    ends = np.tile([[0.0], [1.0]], n_features)
    for column in np.flatnonzero(bounds.bought_columns(n_features, boolean)):
        ends[:, column] = buy_range(holder, bounds.purchase, calibrated, int(column))
    return range_scaling(ends[0], ends[1], row_norm=bounds.row_norm, centred=centred)
