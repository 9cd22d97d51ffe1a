"""What the automatic rule must come to: the true optimum without noise, the best constant where noise rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from dperm import Bounds, DPHuberRegressor, DPLasso, DPLinearSVC, DPLogisticRegression, DPRidge
from dperm.objective import Huber, Logistic, SmoothedHinge, Squared

STRENGTHS = [1e-4, 1e-2, 1e-1, 1.0]
BOUNDS = Bounds(centre=0.0, scale=1.0, clip=3.0)
HALF = 8.0
WITH_TARGET = Bounds(centre=0.0, scale=1.0, clip=3.0, target=(-HALF, HALF))


def table(n=4000, p=8, seed=0):
    """Correlated columns within their clip, and scores of a linear model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = 0.6 * X[:, j - 1] + 0.8 * X[:, j]
    X = np.clip(X, -3.0, 3.0)
    return X, X @ np.linspace(1.0, -0.8, p), rng


def value(loss, X, y, weights, strength):
    z = X @ weights[:-1] + weights[-1]
    return float(loss.value(z, y).mean()) + 0.5 * strength * float(weights[:-1] @ weights[:-1])


def optimum(loss, X, y, strength):
    rows = np.column_stack([X, np.ones(len(y))])

    def cost(w):
        pull = strength * np.append(w[:-1], 0.0)
        return value(loss, X, y, w, strength), rows.T @ loss.slope(rows @ w, y) / len(y) + pull

    return minimize(cost, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", options={"ftol": 1e-14}).fun


def weights_of(model):
    return np.append(np.ravel(model.coef_), np.ravel(model.intercept_)[0])


# ------------------------------------------------------------------------------------- without noise to speak of
@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("epsilon", [100.0, 1000.0])
def test_logistic_regression_reaches_the_penalised_optimum(strength, epsilon):
    X, z, rng = table()
    y = (rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z - 0.5))).astype(int)
    reference = LogisticRegression(C=1.0 / (strength * len(y)), tol=1e-9, max_iter=2000).fit(X, y)
    model = DPLogisticRegression(epsilon=epsilon, bounds=BOUNDS, strength=strength, insecure_seed=0).fit(X, y)
    best = value(Logistic(), X, y, weights_of(reference), strength)
    assert value(Logistic(), X, y, weights_of(model), strength) <= best + 2e-4
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=0.03)


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("epsilon", [100.0, 1000.0])
def test_the_smoothed_hinge_reaches_the_penalised_optimum(strength, epsilon):
    X, z, rng = table()
    y = (z + rng.logistic(size=len(z)) > 0.0).astype(float)
    model = DPLinearSVC(epsilon=epsilon, bounds=BOUNDS, strength=strength, insecure_seed=0).fit(X, y)
    loss = SmoothedHinge(model.smoothing)
    assert value(loss, X, y, weights_of(model), strength) <= optimum(loss, X, y, strength) + 2e-4


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("epsilon", [100.0, 1000.0])
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_ridge_reaches_the_penalised_optimum(strength, epsilon, tails):
    X, z, rng = table()
    y = np.clip(z + (rng.normal(size=len(z)) if tails == "normal" else rng.standard_t(3, len(z))), -HALF, HALF)
    reference = Ridge(alpha=strength * len(y)).fit(X, y)
    model = DPRidge(epsilon=epsilon, bounds=WITH_TARGET, strength=strength, insecure_seed=0).fit(X, y)
    best = value(Squared(), X, y, weights_of(reference), strength)
    assert value(Squared(), X, y, weights_of(model), strength) <= best + 3e-4 * np.var(y)


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("epsilon", [100.0, 1000.0])
def test_huber_reaches_the_penalised_optimum(strength, epsilon):
    X, z, rng = table()
    y = np.clip(z + rng.standard_t(3, len(z)), -HALF, HALF)
    model = DPHuberRegressor(epsilon=epsilon, bounds=WITH_TARGET, strength=strength, insecure_seed=0).fit(X, y)
    loss, scaled = Huber(model.threshold), weights_of(model) / HALF  # the threshold is in half widths of the target
    assert value(loss, X, y / HALF, scaled, strength) <= optimum(loss, X, y / HALF, strength) + 1e-4


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_svc_is_near_one_without_privacy(epsilon):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12_000, 30))
    y = rng.random(12_000) < 1.0 / (1.0 + np.exp(-X[:, :8] @ np.linspace(0.8, -0.8, 8)))
    plain = LinearSVC(dual=False).fit(X[:8000], y[:8000]).score(X[8000:], y[8000:])
    for neighbours in ("zero-out", "replace-one"):
        model = DPLinearSVC(epsilon=epsilon, bounds=BOUNDS, neighbours=neighbours, insecure_seed=0)
        assert model.fit(X[:8000], y[:8000]).score(X[8000:], y[8000:]) >= plain - 0.015


def test_the_hinge_is_pursued_about_as_well_as_the_logistic_loss():
    scores = {DPLogisticRegression: [], DPLinearSVC: []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(3000, 800))
        y = rng.random(3000) < 1.0 / (1.0 + np.exp(-2.0 * (X[:, 0] - X[:, 1] + X[:, 2])))
        for make, found in scores.items():
            model = make(epsilon=1.0, bounds=BOUNDS, penalty="l1", neighbours="zero-out", insecure_seed=seed)
            found.append(model.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]))
    assert np.mean(scores[DPLinearSVC]) >= np.mean(scores[DPLogisticRegression]) - 0.03 > 0.7


@pytest.mark.parametrize("epsilon", [4.0, 1000.0])
def test_newton_converges_on_the_hinge(epsilon):
    X, z, rng = table()
    y = (z + rng.logistic(size=len(z)) > 0.0).astype(float)
    options = {"bounds": BOUNDS, "strength": 1e-2, "solver": "newton", "insecure_seed": 0}
    model = DPLinearSVC(epsilon=epsilon, **options).fit(X, y)
    loss = SmoothedHinge(model.smoothing)
    assert value(loss, X, y, weights_of(model), 1e-2) <= optimum(loss, X, y, 1e-2) + 0.02


# ------------------------------------------------------------------------------------------ where noise rules
@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("n", "p"), [(500, 5), (1000, 20)])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_labels_that_are_pure_noise_cost_next_to_nothing(neighbours, n, p, epsilon):
    """Objective and accuracy of the best constant, but for two standard errors and the constant's own noise."""
    excess, lost = [], []
    for seed in range(12):
        rng = np.random.default_rng([seed, n, p])
        X, y = rng.normal(size=(n, p)), rng.random(n) < 0.7
        model = DPLogisticRegression(epsilon=epsilon, bounds=BOUNDS, neighbours=neighbours, insecure_seed=seed)
        w = weights_of(model.fit(X, y))
        null = np.append(np.zeros(p), np.log(y.mean() / (1.0 - y.mean())))
        excess.append(value(Logistic(), np.clip(X, -3.0, 3.0), y, w, 0.0) - value(Logistic(), X, y, null, 0.0))
        lost.append(0.7 - np.mean(np.where(rng.normal(size=(4000, p)) @ w[:-1] + w[-1] > 0.0, 0.7, 0.3)))
    for worse, slack in ((excess, 0.005), (lost, 0.005)):
        assert np.mean(worse) <= 2.0 * np.std(worse, ddof=1) / np.sqrt(12) + slack


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("make", [DPRidge, DPLasso], ids=lambda c: c.__name__)
def test_targets_that_are_pure_noise_cost_next_to_nothing(neighbours, make):
    excess = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(1000, 10)), np.clip(rng.normal(size=1000), -4.0, 4.0)
        model = make(
            epsilon=1.0, bounds=replace(WITH_TARGET, target=(-4.0, 4.0)), neighbours=neighbours, insecure_seed=seed
        ).fit(X, y)
        excess.append(np.mean((model.predict(X) - y) ** 2) / np.var(y) - 1.0)
    assert np.mean(excess) <= 2.0 * np.std(excess, ddof=1) / np.sqrt(12) + 0.005


def test_where_the_best_constant_drowns_the_plan_says_so():
    few = DPLogisticRegression(epsilon=0.1, bounds=BOUNDS).plan(300, 5)
    assert any("shrunk towards predicting nothing" in text for text in few.warnings)
    assert "shrunk towards predicting nothing" in str(few)
    sparse = DPLasso(epsilon=0.1, bounds=WITH_TARGET).plan(300, 3000)
    assert sparse.forecast.excess > sparse.forecast.null_excess
    assert any("range" in text and "shrunk" in text for text in sparse.warnings)
    for many in (
        DPLogisticRegression(epsilon=1.0, bounds=BOUNDS).plan(10_000, 5),
        DPRidge(epsilon=1.0, bounds=WITH_TARGET).plan(10_000, 5),
        DPLogisticRegression(epsilon=0.1, bounds=BOUNDS, fit_intercept=False).plan(100_000, 5),
    ):
        assert many.warnings == ()
