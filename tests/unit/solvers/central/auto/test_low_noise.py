"""Low noise: the automatic rule reaches the penalised optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from dperm import Bounds, DPHuberRegressor, DPLinearSVC, DPLogisticRegression, DPRidge
from dperm.objective import Huber, Logistic, SmoothedHinge, Squared
from dperm.solvers import WhitenedDescent

STRENGTHS = [1e-4, 1e-2, 1e-1, 1.0]
BOUNDS = Bounds(centre=0.0, scale=1.0, clip=3.0)
HALF = 8.0
WITH_TARGET = Bounds(centre=0.0, scale=1.0, clip=3.0, target=(-HALF, HALF))


def table(n=4000, p=8, seed=0):
    """Return correlated columns within their clip, scores of a linear model and the generator."""
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
def test_the_svc_is_close_to_a_fit_without_privacy(epsilon):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12_000, 30))
    y = rng.random(12_000) < 1.0 / (1.0 + np.exp(-X[:, :8] @ np.linspace(0.8, -0.8, 8)))
    plain = LinearSVC(dual=False).fit(X[:8000], y[:8000]).score(X[8000:], y[8000:])
    for neighbours in ("zero-out", "replace-one"):
        model = DPLinearSVC(epsilon=epsilon, bounds=BOUNDS, neighbours=neighbours, insecure_seed=0)
        assert model.fit(X[:8000], y[:8000]).score(X[8000:], y[8000:]) >= plain - 0.015


def test_pursuit_works_about_as_well_for_the_hinge_as_for_the_logistic_loss():
    scores = {DPLogisticRegression: [], DPLinearSVC: []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(3000, 800))
        y = rng.random(3000) < 1.0 / (1.0 + np.exp(-2.0 * (X[:, 0] - X[:, 1] + X[:, 2])))
        for make, values in scores.items():
            model = make(epsilon=1.0, bounds=BOUNDS, penalty="l1", neighbours="zero-out", insecure_seed=seed)
            values.append(model.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]))
    assert np.mean(scores[DPLinearSVC]) >= np.mean(scores[DPLogisticRegression]) - 0.03 > 0.7


@pytest.mark.parametrize("epsilon", [4.0, 1000.0])
def test_newton_converges_on_the_hinge(epsilon):
    X, z, rng = table()
    y = (z + rng.logistic(size=len(z)) > 0.0).astype(float)
    options = {"bounds": BOUNDS, "strength": 1e-2, "solver": "newton", "insecure_seed": 0}
    model = DPLinearSVC(epsilon=epsilon, **options).fit(X, y)
    loss = SmoothedHinge(model.smoothing)
    assert value(loss, X, y, weights_of(model), 1e-2) <= optimum(loss, X, y, 1e-2) + 0.02


@pytest.mark.parametrize("epsilon", [4.0, 100.0])
@pytest.mark.parametrize("threshold", [0.05, 0.3])
def test_a_robust_fit_stays_robust(epsilon, threshold):
    """Five percent of the targets are far away: the Huber loss does not target the mean."""
    for seed in range(3):
        rng = np.random.default_rng([seed, 3])
        X = np.clip(rng.normal(size=(5000, 6)), -3.0, 3.0)
        near = X[:, 0] + rng.normal(size=5000)
        y = np.where(rng.random(5000) < 0.05, 80.0 + 5.0 * rng.normal(size=5000), near)
        options = {"threshold": threshold, "strength": 1e-6, "neighbours": "zero-out", "insecure_seed": seed}
        model = DPHuberRegressor(epsilon=epsilon, bounds=replace(WITH_TARGET, target=(-10.0, 100.0)), **options)
        reached = value(Huber(55.0 * threshold), X, y, weights_of(model.fit(X, y)), 0.0)
        best = optimum(Huber(55.0 * threshold), X, y, 0.0)
        constant = optimum(Huber(55.0 * threshold), np.zeros((5000, 1)), y, 0.0)
        assert reached <= best + 0.1 * (constant - best)


@pytest.mark.parametrize("epsilon", [100.0, 1000.0])
def test_skewed_targets_reach_the_optimum(epsilon):
    rng = np.random.default_rng(0)
    X = np.clip(rng.normal(size=(20_000, 8)), -3.0, 3.0)
    y = np.minimum(np.exp(1.2 * rng.normal(size=20_000) + 0.8 * X[:, 0]), 100.0)
    bounds = replace(WITH_TARGET, target=(0.0, 100.0))
    model = DPRidge(epsilon=epsilon, bounds=bounds, strength=1e-4, insecure_seed=0).fit(X, y)
    assert model.score(X, y) >= Ridge(alpha=2.0).fit(X, y).score(X, y) - 0.005


def test_a_large_class_does_not_make_rare_classes_impossible():
    excess = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.choice(8, 3000, p=[0.8] + [0.2 / 7] * 7)
        X = 0.3 * rng.normal(size=(8, 10))[y] + rng.normal(size=(3000, 10))
        bounds = replace(BOUNDS, classes=tuple(range(8)))
        model = DPLogisticRegression(epsilon=0.5, bounds=bounds, insecure_seed=seed).fit(X, y)
        probabilities = model.predict_proba(X)[np.arange(3000), y]
        excess.append(np.mean(np.log((np.bincount(y, minlength=8) / 3000)[y])) - np.mean(np.log(probabilities)))
    assert np.mean(excess) <= -0.02


def test_weights_of_irrelevant_columns_are_removed():
    """Eighty of a hundred columns are irrelevant: removing their noise improves accuracy."""
    scores = {True: [], False: []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(14_000, 100))
        y = rng.random(14_000) < 1.0 / (1.0 + np.exp(-X[:, :20] @ (0.5 * rng.normal(size=20))))
        options = {"epsilon": 0.2, "bounds": BOUNDS, "neighbours": "zero-out", "insecure_seed": seed}
        chosen = DPLogisticRegression(**options).plan(12_000, 100)
        assert chosen.solver == "whitened"
        for shrink, values in scores.items():
            facts = {"n_steps": 40, "noise_fraction": 0.7, "target_share": 0.02, "moment_share": 0.07, "shrink": shrink}
            model = DPLogisticRegression(**options, solver=WhitenedDescent(**facts)).fit(X[:12_000], y[:12_000])
            values.append(model.score(X[12_000:], y[12_000:]))
    assert np.mean(scores[True]) >= np.mean(scores[False]) + 0.005
