"""Buying the range of columns and target: two private quantiles each, every one a selection on a public grid."""

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
    "INNERMOST",
    "as_narrow_as_the_grid",
    "buy_range",
    "buy_scaling",
    "rank_error",
    "reachable_levels",
    "with_purchase",
]


#: bought quantiles lie no further inside than this; nearer to the median they would say too little of the ends
INNERMOST = 0.35
#: a quantile is off by more than :func:`rank_error` says with a probability of at most e^-7, below 1/1000
_NATS = 7.0
#: errors in ranks by which levels stay inside where there are rows enough (a wild range then is one in 100,000), and
#: the level up to which that costs little: further inside there is ever less to tell the ends from
_ROOM, _CHEAP = 1.5, 0.25


def with_purchase(plan: Plan, purchase: QuantilePurchase, n_columns: int, buys_target: bool = False) -> Plan:
    """Put the purchase of ranges in front of a plan, with its share of the budget."""
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
    """How many ranks beyond the data's own a bought quantile is off with probability 0.999 at most; public."""
    points = float(np.exp(-purchase.unlikeliness()).sum())
    return calibrated.noise_multiplier(query.name) * (float(np.log(points)) + _NATS)


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
    # public numbers: points that are less expected need as many records more
    handicaps = mechanism.noise_multiplier * purchase.unlikeliness()
    low, high = reachable_levels(purchase, calibrated, holder.facts.n, query)
    queries = (query(column, low, grid, "low", handicaps), query(column, high, grid, "high", handicaps))
    ends: FloatArray = np.sort([grid[holder.release(one, mechanism)] for one in queries])
    carried: FloatArray = ends.mean() + (ends - ends.mean()) * _carried_out(purchase, low, high)
    return carried


def _carried_out(purchase: QuantilePurchase, low: float, high: float) -> float:
    """Factor that carries inner quantiles out to the wanted ones, as those of a normal distribution lie."""
    normal = NormalDist().inv_cdf
    return max(1.0, (normal(purchase.high) - normal(purchase.low)) / (normal(high) - normal(low)))


def as_narrow_as_the_grid(
    ends: FloatArray,
    purchase: QuantilePurchase,
    calibrated: CalibratedPlan,
    n: int,
    query: type[QuantileScores] = QuantileScores,
) -> bool:
    """Whether a bought range lies away from zero and is one step of the grid wide.

    Values such as years may then fill a small part of it, and no purchase on this grid could have told.
    """
    wider = _carried_out(purchase, *reachable_levels(purchase, calibrated, n, query))
    low, high = float(np.mean(ends)) + (np.asarray(ends) - np.mean(ends)) / wider
    first, last = (int(np.abs(purchase.grid_points() - end).argmin()) for end in (low, high))
    return last - first <= 1 and low * high > 0.0


def reachable_levels(
    purchase: QuantilePurchase, calibrated: CalibratedPlan, n: int, query: type[QuantileScores] = QuantileScores
) -> tuple[float, float]:
    """Levels of the quantiles to buy, from public numbers.

    A quantile nearer to the end than its own error in ranks may come out anywhere beyond the data, so the levels stay
    that far inside, as far as :data:`INNERMOST`, and half as far again where that costs little.
    """
    error = rank_error(purchase, calibrated, query) / n
    inside = min(max(error, min(_ROOM * error, _CHEAP)), INNERMOST)
    return min(max(purchase.low, inside), INNERMOST), max(min(purchase.high, 1.0 - inside), 1.0 - INNERMOST)


def buy_scaling(
    holder: DataHolder,
    bounds: Bounds,
    calibrated: CalibratedPlan,
    centred: bool,
    boolean: BoolArray | None = None,
) -> Scaling:
    """Buy the range of every column, but those of type bool, and return the scaling they give."""
    assert bounds.purchase is not None
    n_features = holder.facts.n_features
    ends = np.tile([[0.0], [1.0]], n_features)
    for column in np.flatnonzero(bounds.bought_columns(n_features, boolean)):
        ends[:, column] = buy_range(holder, bounds.purchase, calibrated, int(column))
    return range_scaling(ends[0], ends[1], row_norm=bounds.row_norm, centred=centred)
