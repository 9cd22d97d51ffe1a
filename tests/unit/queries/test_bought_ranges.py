"""A bought range of a target is never far too wide: too few rows are refused, unlikely points are penalised."""

from __future__ import annotations

import numpy as np
import pytest

from dperm import Bounds, DPLasso, DPRidge, Ledger
from dperm.data.design.bounds import QuantilePurchase, default_quantile_grid
from dperm.data.holding.holder import DataHolder
from dperm.data.holding.table_data import TableData
from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.queries import QuantileScores, TargetQuantileScores
from dperm.queries.quantiles import INNERMOST_LEVEL, buy_range, rank_error, with_purchase

REST = Plan((PlannedRelease("gradient", "gaussian", 8),))


def ranges(y, n_columns, epsilon, n_times):
    purchase = QuantilePurchase()
    plan = with_purchase(REST, purchase, n_columns, buys_target=True)
    calibrated = calibrate(plan, Budget(epsilon, 1e-5))
    out = []
    for seed in range(n_times):
        scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test")
        holder = DataHolder(TableData(y[:, None]), scope, RandomSource(seed), Neighbours.REPLACE_ONE)
        with scope:
            out.append(buy_range(holder, purchase, calibrated, 0, TargetQuantileScores))
    return np.array(out), rank_error(purchase, calibrated, TargetQuantileScores)


@pytest.mark.parametrize("scale", [0.002, 1.0, 3e5])
def test_a_range_that_is_not_refused_is_never_far_too_wide(scale):
    y = scale * np.random.default_rng(0).normal(size=2000)
    bought, error = ranges(y, n_columns=8, epsilon=1.0, n_times=300)
    assert error < INNERMOST_LEVEL * len(y)
    assert np.abs(bought).max() < 40.0 * scale
    assert (bought[:, 1] > bought[:, 0]).all()


def test_the_target_gets_half_of_the_purchase_budget():
    both = with_purchase(REST, QuantilePurchase(), 30, buys_target=True)
    assert [(r.query, r.count, r.share) for r in both.releases[:2]] == [
        (QuantileScores.name, 60, 0.05),
        (TargetQuantileScores.name, 2, 0.05),
    ]
    alone = with_purchase(REST, QuantilePurchase(), 0, buys_target=True)
    assert [(r.query, r.count, r.share) for r in alone.releases[:-1]] == [(TargetQuantileScores.name, 2, 0.1)]


@pytest.mark.parametrize("maker", [DPRidge, DPLasso])
@pytest.mark.parametrize(
    ("bounds", "words"), [(None, r"Bounds\(target"), (Bounds(features=(-1, 1)), r"Bounds\(features=\.\.\., target")]
)
def test_too_few_rows_are_refused_before_anything_is_charged(maker, bounds, words):
    rng, ledger = np.random.default_rng(0), Ledger()
    X = rng.uniform(-1, 1, (300, 10))
    with pytest.raises(Unsupported, match="300 rows are too few to buy the target's range.*" + words):
        maker(bounds=bounds, ledger=ledger).fit(X, X[:, 0])
    with pytest.raises(Unsupported, match="too few"):
        maker(bounds=bounds).plan(300, 10)
    assert ledger.spent().n_fits == 0
    assert maker(epsilon=8.0, bounds=bounds).fit(X, X[:, 0]).score(X, X[:, 0]) > -0.1


def test_far_points_have_a_prior_penalty_and_near_ones_do_not():
    purchase, grid = QuantilePurchase(), default_quantile_grid()
    held = purchase.prior_penalties()
    assert held.shape == grid.shape
    assert (held[np.abs(grid) <= 16.0] == 0.0).all()
    order = np.argsort(np.abs(grid), kind="stable")
    assert (np.diff(held[order]) >= 0.0).all()  # never larger towards zero
    assert held[-1] == pytest.approx(9.0)
    assert not QuantilePurchase(grid=(0.0, 1.0)).prior_penalties().any()


def test_score_penalties_are_subtracted_from_the_scores():
    grid, data = np.array([0.0, 1.0, 2.0]), TableData(np.array([[0.5], [1.5], [1.7]]))
    plain = QuantileScores(0, 0.5, grid)
    held = QuantileScores(0, 0.5, grid, "high", np.array([0.0, 1.0, 4.0]))
    assert (plain.evaluate(data) - held.evaluate(data)).tolist() == [0.0, 1.0, 4.0]
    assert held.bound(data.facts) == plain.bound(data.facts) + 4.0
    for bad in (np.zeros(2), np.array([0.0, -1.0, 0.0]), np.array([0.0, np.nan, 0.0])):
        with pytest.raises(InvalidInput, match="one per point"):
            QuantileScores(0, 0.5, grid, "high", bad)
