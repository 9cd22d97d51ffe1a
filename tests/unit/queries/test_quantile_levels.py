"""Levels of bought quantiles follow public numbers alone and stay inside by their own error in ranks."""

import pytest

from dperm.data.design.bounds import QuantilePurchase
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.queries.quantiles import INNERMOST_LEVEL, rank_error, reachable_levels, with_purchase


def calibrated(epsilon):
    plan = with_purchase(Plan((PlannedRelease("gradient", "gaussian", 8),)), QuantilePurchase(), 5)
    return calibrate(plan, Budget(epsilon, 1e-6))


@pytest.mark.parametrize(("n", "epsilon"), [(500, 1.0), (3000, 1.0), (1_000_000, 1.0), (3000, 8.0)])
def test_levels_stay_inside_by_their_error(n, epsilon):
    purchase, made = QuantilePurchase(), calibrated(epsilon)
    low, high = reachable_levels(purchase, made, n)
    missed = rank_error(purchase, made) / n
    assert low == pytest.approx(min(max(0.05, missed, min(1.5 * missed, 0.25)), INNERMOST_LEVEL))
    assert high == pytest.approx(1.0 - low)


def test_many_rows_get_the_requested_levels():
    assert reachable_levels(QuantilePurchase(), calibrated(1.0), 10_000_000) == (0.05, 0.95)
    assert reachable_levels(QuantilePurchase(), calibrated(1.0), 10) == (INNERMOST_LEVEL, 1.0 - INNERMOST_LEVEL)
