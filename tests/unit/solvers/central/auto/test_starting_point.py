"""The starting point: the best constant, its noise, and the response of clipped slopes at it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm import Ledger
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.objective import Logistic, SmoothedHinge, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers.central.auto.clipped_response import ClippedResponse
from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.scales import scale_of
from dperm.solvers.central.auto.starting_point import BestConstant, StartingPoint, best_constant
from dperm.testing.data import Layout


def regression_data(n, intercept):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    target = np.clip(0.3 * X @ rng.normal(0.0, 2.0, 3) + 0.1 * rng.normal(size=n), -1.0, 1.0)
    design = DesignMatrix.from_array(X, Layout(n=n, n_features=3, intercept=intercept).scaling(), intercept)
    return DesignData(design, target, -1.0, 1.0)


@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(0.5), SmoothedHinge(1.5)], ids=repr)
@pytest.mark.parametrize("mean", [0.02, 0.4, 0.5, 0.9])
def test_best_constant_minimises_the_expected_loss(loss, mean):
    """No constant on a fine grid has a lower expected loss."""
    grid = np.linspace(-6.0, 6.0, 4001)

    def cost(z):
        z = np.atleast_1d(z)
        return (1.0 - mean) * loss.value(z, np.zeros(len(z))) + mean * loss.value(z, np.ones(len(z)))

    constant = best_constant(loss, mean)
    assert cost(constant)[0] <= cost(grid).min() + 1e-6
    if mean != 0.5:
        assert (constant > 0.0) == (mean > 0.5)


@pytest.mark.parametrize("intercept", [1.0, 0.0])
def test_the_slope_error_is_proportional_to_the_noise_of_the_deviation(intercept):
    """Twice the noise gives twice the relative error, in units of the released deviation."""
    data = regression_data(2000, intercept)
    start, errors = StartingPoint(0.2, 0.05), []
    plan = Plan(tuple(start.releases(Squared(), data.facts)))
    for multiplier in (1.0, 2.0):
        calibrated = CalibratedPlan(plan, multiplier, Budget(1.0, 1e-6))
        with Scope(calibrated, Ledger(), Neighbours.ZERO_OUT, "test") as scope:
            best = start.release(Squared(), DataHolder(data, scope, RandomSource(0), Neighbours.ZERO_OUT), calibrated)
        errors.append(best.slope_error * best.slope / best.skew)
    assert errors[0] > 0.0
    assert errors[1] == pytest.approx(2.0 * errors[0], rel=0.05)


@pytest.mark.parametrize("clip", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("p", [0.5, 0.2, 0.03])
@pytest.mark.parametrize("label_independence", [0.0, 0.5, 1.0])
def test_response_and_mean_square_of_clipped_logistic_slopes(clip, p, label_independence):
    """Compare with the clipped slopes of identical rows, computed directly at the constant and next to it."""
    n = 1000
    best = BestConstant(math.log(p / (1.0 - p)), 0.5, curvature=p * (1.0 - p))
    y = (np.arange(n) < p * n).astype(float)

    def slopes(score):
        probability = 1.0 / (1.0 + np.exp(-score))
        slope = probability - y
        size = label_independence * max(probability, 1.0 - probability) + (1.0 - label_independence) * np.abs(slope)
        return slope * np.minimum(1.0, 0.5 * clip / size)

    response = ClippedResponse.of(Logistic(), scale_of(Logistic()), best, clip, label_independence)
    derivative = slopes(best.constant + 0.5).mean() - slopes(best.constant - 0.5).mean()
    typical = min(1.0, clip) * min(RULE.logistic_curvature, p * (1.0 - p))
    assert response.curvature[0] == pytest.approx(max(derivative, RULE.least_kept * typical), rel=1e-9)
    assert response.cautious[0] == pytest.approx(min(response.curvature[0], typical), rel=1e-9)
    assert response.square[0] == pytest.approx((slopes(best.constant) ** 2).mean(), rel=1e-9)


@pytest.mark.parametrize("clip", [0.8, 1.25, 4.0])
def test_response_and_mean_square_of_clipped_normal_residuals(clip):
    residuals = np.random.default_rng(0).normal(size=400_000)
    deviation = np.abs(residuals).mean()
    response = ClippedResponse.of(Squared(), scale_of(Squared()), BestConstant(0.0, deviation), clip, 0.0)
    assert response.curvature[0] == pytest.approx((np.abs(residuals) < clip * deviation).mean(), abs=0.005)
    cut = np.clip(residuals, -clip * deviation, clip * deviation)
    assert response.square[0] == pytest.approx((cut**2).mean(), rel=0.01)


@pytest.mark.parametrize("share", [0.02, 0.125])
def test_response_and_mean_square_for_a_target_with_two_values(share):
    deviation = 2.0 * share * (1.0 - share)
    skew = 0.5 / share  # follows from the share of targets on the nearer side
    response = ClippedResponse.of(Squared(), scale_of(Squared()), BestConstant(share, skew * deviation, skew), 9.0, 0.0)
    assert response.square[0] == pytest.approx(share * (1.0 - share), rel=0.2)
    assert response.curvature[0] == pytest.approx(1.0)
    # with a residual limit between the two groups, the far group neither responds nor varies beyond it
    response = ClippedResponse.of(
        Squared(residual_clip=0.5), scale_of(Squared()), BestConstant(share, skew * deviation, skew), 9.0, 0.0
    )
    assert response.curvature[0] == pytest.approx(1.0 - share)
    cut = share * 0.5**2 + (1.0 - share) * share**2
    assert response.square[0] == pytest.approx(cut, rel=0.3)


@pytest.mark.parametrize("slope_error", [0.0, 0.2, 0.5, 7.0])
def test_an_uncertain_slope_size_lowers_the_cautious_curvature(slope_error):
    best = BestConstant(0.0, 1.0, slope_error=slope_error)
    response = ClippedResponse.of(Squared(), scale_of(Squared()), best, 1.25, 0.0)
    assert response.curvature[0] == pytest.approx(math.erf(1.25 / math.sqrt(math.pi)))
    assert response.cautious[0] == pytest.approx(math.erf(1.25 / (1.0 + min(slope_error, 0.5)) / math.sqrt(math.pi)))
