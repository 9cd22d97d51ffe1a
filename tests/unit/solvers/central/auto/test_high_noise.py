"""High noise: the automatic rule is about as good as the best constant, warns, and keeps clear signals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from dperm import Bounds, DPHuberRegressor, DPLasso, DPLogisticRegression, DPRidge
from dperm.objective import Huber, Logistic

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


def weights_of(model):
    return np.append(np.ravel(model.coef_), np.ravel(model.intercept_)[0])


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("n", "p"), [(500, 5), (1000, 20)])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_labels_of_pure_noise_cost_almost_nothing(neighbours, n, p, epsilon):
    """Objective and accuracy are those of the best constant, up to two standard errors and the constant's noise."""
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
def test_targets_of_pure_noise_cost_almost_nothing(neighbours, make):
    excess = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(1000, 10)), np.clip(rng.normal(size=1000), -4.0, 4.0)
        model = make(
            epsilon=1.0, bounds=replace(WITH_TARGET, target=(-4.0, 4.0)), neighbours=neighbours, insecure_seed=seed
        ).fit(X, y)
        excess.append(np.mean((model.predict(X) - y) ** 2) / np.var(y) - 1.0)
    assert np.mean(excess) <= 2.0 * np.std(excess, ddof=1) / np.sqrt(12) + 0.005


def uninformative_columns(seed, n=1500, p=10):
    rng = np.random.default_rng([seed, n, 23])
    return np.clip(rng.normal(size=(n + 5000, p)), -3.0, 3.0), rng


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0])
@pytest.mark.parametrize("p", [10, 50])
def test_uninformative_columns_add_no_error_to_the_constant(neighbours, epsilon, p):
    """The only error is the noise of the constant, which every private model has, and every fit warns."""
    by_columns, notes = [], 0
    for seed in range(16):
        X, rng = uninformative_columns(seed, p=p)
        y = np.clip(rng.normal(size=len(X)), -4.0, 4.0)
        bounds = replace(WITH_TARGET, target=(-4.0, 4.0))
        model = DPRidge(epsilon=epsilon, bounds=bounds, neighbours=neighbours, insecure_seed=seed)
        predicted, test = model.fit(X[:1500], y[:1500]).predict(X[1500:]), y[1500:]
        by_columns.append(np.mean((predicted - test) ** 2) - np.mean((predicted.mean() - test) ** 2))
        notes += bool(model.privacy_report_.public["warnings"])
    assert np.mean(by_columns) <= 2.0 * np.std(by_columns, ddof=1) / 4.0 + 0.0015
    assert notes >= 15


@pytest.mark.parametrize(("n", "neighbours", "epsilon"), [(1500, "replace-one", 1.0), (5000, "zero-out", 0.1)])
def test_an_intercept_drift_to_the_larger_class_is_not_evidence_for_columns(n, neighbours, epsilon):
    """Clipped slopes of unequal classes move the intercept; as signal this would keep the noise of all columns."""
    excess, notes = [], 0
    for seed in range(16):
        X, rng = uninformative_columns(seed, n, 20)
        y = (rng.random(len(X)) < 0.7).astype(float)
        model = DPLogisticRegression(epsilon=epsilon, bounds=BOUNDS, neighbours=neighbours, insecure_seed=seed)
        w = weights_of(model.fit(X[:n], y[:n]))
        share = y[:n].mean()
        null = np.append(np.zeros(20), np.log(share / (1.0 - share)))
        excess.append(value(Logistic(), X[n:], y[n:], w, 0.0) - value(Logistic(), X[n:], y[n:], null, 0.0))
        texts = model.privacy_report_.public["warnings"]
        notes += any("Noise is a large part" in text or "distinguished from noise" in text for text in texts)
    assert np.mean(excess) <= 0.006
    assert notes >= 15


@pytest.mark.parametrize(("n", "neighbours", "epsilon", "most"), [
    (5000, "zero-out", 0.5, 0.003), (1000, "replace-one", 1.0, 0.02)])  # fmt: skip
def test_the_constant_of_a_robust_loss_is_not_the_mean_of_a_skewed_target(n, neighbours, epsilon, most):
    """Removing uninformative columns keeps the descent's move from the mean to the centre that the loss targets."""
    loss, excess = Huber(3.0), []
    for seed in range(16):
        X, rng = uninformative_columns(seed, n, 8)
        y = np.minimum(np.exp(rng.normal(size=len(X))), 20.0)
        bounds = replace(WITH_TARGET, target=(0.0, 20.0))  # the threshold is 0.3 of half of it
        model = DPHuberRegressor(epsilon=epsilon, bounds=bounds, neighbours=neighbours, insecure_seed=seed)
        predicted, test = model.fit(X[:n], y[:n]).predict(X[n:]), y[n:]
        centre = minimize(lambda c, y=y: loss.value(np.full(n, c[0]), y[:n]).mean(), [1.0]).x[0]
        null = loss.value(np.full(len(test), centre), test).mean()
        excess.append(loss.value(predicted, test).mean() / null - 1.0)
    assert np.mean(excess) <= most


def test_early_stopping_is_not_shrunk_twice():
    """The descent covers half of the way; full shrinkage on top lost a third of what ten columns explain."""
    explained = []
    for seed in range(16):
        X, rng = uninformative_columns(seed, 1000, 50)
        y = np.clip(0.3 * X[:, :10].sum(axis=1) + rng.normal(size=len(X)), -5.0, 5.0)
        model = DPRidge(epsilon=1.0, bounds=replace(WITH_TARGET, target=(-5.0, 5.0)), insecure_seed=seed)
        explained.append(model.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]))
    assert np.mean(explained) >= 0.17


def test_columns_far_from_zero_do_not_bias_the_intercept():
    """The intercept entry of the mean row is public and is not taken from its noisy second moment."""
    explained = []
    for seed in range(16):
        X, rng = uninformative_columns(seed, 1000, 8)
        y = np.clip(5.0 + X @ np.append([1.0, 0.7, 0.5], np.zeros(5)) + rng.normal(size=len(X)), -3.0, 13.0)
        model = DPRidge(epsilon=1.0, bounds=Bounds(features=(0.0, 10.0), target=(-3.0, 13.0)), insecure_seed=seed)
        explained.append(model.fit(X[:1000] + 7.0, y[:1000]).score(X[1000:] + 7.0, y[1000:]))
    assert np.mean(explained) >= 0.45


def insurance_claims(n, seed):
    """Most targets are zero, few are large, and one column explains a little of how large."""
    rng = np.random.default_rng([seed, n])
    X = np.clip(rng.normal(size=(n, 8)), -3.0, 3.0)
    return X, np.where(rng.random(n) < 0.97, 0.0, 50.0 + 10.0 * X[:, 0])


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [1.0, 10.0, 1000.0])
def test_mostly_zero_targets_keep_their_mean(neighbours, epsilon):
    """Clipping at the mean deviation would move the constant from the mean to the median."""
    excess = []
    for seed in range(6):
        X, y = insurance_claims(20_000, seed)
        bounds = replace(WITH_TARGET, target=(0.0, 100.0))
        model = DPRidge(epsilon=epsilon, bounds=bounds, neighbours=neighbours, insecure_seed=seed).fit(X, y)
        excess.append(np.mean((model.predict(X) - y) ** 2) / np.var(y) - 1.0)
    assert np.mean(excess) <= 2.0 * np.std(excess, ddof=1) / np.sqrt(6) + 0.003


def excess_for_a_two_valued_target(shares, n, neighbours, epsilon, draws=20):
    """Test error over the variance, minus that of the training mean; targets are 0 or 1, one column of ten is weak."""
    low, more = shares
    excess, notes = [], 0
    for seed in range(draws):
        rng = np.random.default_rng([seed, n, 11])
        X = np.clip(rng.normal(size=(n + 5000, 10)), -3.0, 3.0)
        y = (rng.random(n + 5000) < low + more * (X[:, 0] > 0.0)).astype(float)
        bounds = replace(WITH_TARGET, target=(0.0, 1.0))
        model = DPRidge(epsilon=epsilon, bounds=bounds, neighbours=neighbours, insecure_seed=seed).fit(X[:n], y[:n])
        null = np.mean((y[:n].mean() - y[n:]) ** 2)
        excess.append((np.mean((model.predict(X[n:]) - y[n:]) ** 2) - null) / np.var(y[n:]))
        notes += bool(model.privacy_report_.public["warnings"])
    return np.array(excess), notes


@pytest.mark.parametrize(
    ("n", "neighbours", "epsilon", "most"),
    [
        (5000, "zero-out", 0.5, 0.0015),
        (5000, "replace-one", 0.5, 0.0025),
        (1500, "zero-out", 1.0, 0.002),
        (1500, "replace-one", 1.0, 0.004),
        (5000, "zero-out", 4.0, -0.0003),
    ],
)
def test_two_valued_targets_cost_little(n, neighbours, epsilon, most):
    """One in eight: clipped residuals drift towards the median, which is not evidence for columns."""
    excess, _ = excess_for_a_two_valued_target((0.1, 0.05), n, neighbours, epsilon)
    assert excess.mean() <= most


def test_a_regression_dominated_by_noise_warns():
    """Fits whose test error is significantly above that of the mean warn; fits with relevant columns do not."""
    excess, notes = excess_for_a_two_valued_target((0.125, 0.0), 1500, "replace-one", 0.5)
    assert excess.mean() <= 0.008
    assert notes >= 18
    for seed in range(5):
        X, z, rng = table(1500)
        y = np.clip(z + rng.normal(size=1500), -HALF, HALF)
        model = DPRidge(epsilon=0.5, bounds=WITH_TARGET, neighbours="replace-one", insecure_seed=seed).fit(X, y)
        assert model.privacy_report_.public["warnings"] == []


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_rare_positives_cost_almost_nothing_or_are_warned_of(neighbours):
    """One in a hundred: the loss has little curvature there, so noise has a larger effect."""
    for n, slack in ((3000, 0.006), (20_000, 0.002)):
        excess, notes = [], []
        for seed in range(8):
            rng = np.random.default_rng([seed, n])
            X = np.clip(rng.normal(size=(n, 20)), -3.0, 3.0)
            y = rng.random(n) < 1.0 / (1.0 + np.exp(4.5 - 0.5 * X[:, 0]))
            model = DPLogisticRegression(epsilon=1.0, bounds=BOUNDS, neighbours=neighbours, insecure_seed=seed)
            w = weights_of(model.fit(X, y))
            null = np.append(np.zeros(20), np.log(y.mean() / (1.0 - y.mean())))
            excess.append(value(Logistic(), X, y, w, 0.0) - value(Logistic(), X, y, null, 0.0))
            notes.append(any("so rare that noise hides" in text for text in model.privacy_report_.public["warnings"]))
        assert np.mean(excess) <= slack
        assert all(notes) or np.mean(excess) <= 2.0 * np.std(excess, ddof=1) / np.sqrt(8) + 0.001


@pytest.mark.parametrize(
    ("n", "rate", "growth", "neighbours", "epsilon", "least"),
    [(20_000, 0.01, 1.2, "zero-out", 2.0, 0.0075), (5000, 0.1, 1.0, "replace-one", 1.0, 0.085)],
)
def test_signals_in_rare_large_targets_are_learnt(n, rate, growth, neighbours, epsilon, least):
    """The slope size and the caution follow the skew of the target: otherwise clipping removes the few large ones."""
    gains = []
    for seed in range(10):
        rng = np.random.default_rng([seed, n, 5])
        X = np.clip(rng.normal(size=(n + 5000, 8)), -3.0, 3.0)
        probability = np.minimum(rate * np.exp(growth * X[:, 0] - growth**2 / 2.0), 1.0)
        y = (rng.random(n + 5000) < probability).astype(float)
        bounds = replace(WITH_TARGET, target=(0.0, 1.0))
        model = DPRidge(epsilon=epsilon, bounds=bounds, neighbours=neighbours, insecure_seed=seed).fit(X[:n], y[:n])
        null = np.mean((y[:n].mean() - y[n:]) ** 2)
        gains.append((null - np.mean((model.predict(X[n:]) - y[n:]) ** 2)) / np.var(y[n:]))
    assert np.mean(gains) >= least


def test_shrinkage_accounts_for_rare_classes():
    """Two in a hundred, fifty uninformative columns: the descent corrects noise more slowly than with equal classes."""
    excess = []
    for seed in range(8):
        rng = np.random.default_rng([seed, 5000])
        X = np.clip(rng.normal(size=(15_000, 50)), -3.0, 3.0)
        y = rng.random(15_000) < 1.0 / (1.0 + np.exp(4.0))
        model = DPLogisticRegression(epsilon=1.0, bounds=BOUNDS, neighbours="zero-out", insecure_seed=seed)
        w = weights_of(model.fit(X[:5000], y[:5000]))
        null = np.append(np.zeros(50), np.log(y[:5000].mean() / (1.0 - y[:5000].mean())))
        test = X[5000:], y[5000:]
        excess.append(value(Logistic(), *test, w, 0.0) - value(Logistic(), *test, null, 0.0))
    assert np.mean(excess) <= 0.003


def test_penalised_columns_change_the_intercept_with_them():
    """Removing a column's weight also moves the intercept, as far as their noise is correlated."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(22_000, 8)) + 1.5
    y = X[:, 0] + rng.exponential(size=22_000)
    bounds = replace(WITH_TARGET, target=(-10.0, 20.0))
    scores = []
    for seed in range(6):
        model = DPRidge(epsilon=0.1, bounds=bounds, neighbours="zero-out", insecure_seed=seed)
        scores.append(model.fit(X[:20_000], y[:20_000]).score(X[20_000:], y[20_000:]))
    assert np.mean(scores) >= 0.42


def test_the_mean_row_of_long_tailed_columns_is_trusted_only_roughly():
    """Long rows count less in the mean row, so the mean prediction is not corrected by its full amount."""
    gains = []
    for seed in range(10):
        rng = np.random.default_rng([seed, 1500, 865])
        X = np.minimum(np.exp(rng.normal(size=(6500, 6))), 20.0)
        y = np.clip(X @ np.array([1.0, 0.5, 0.3, 0.0, 0.0, -0.4]) + rng.normal(size=6500), -10.0, 40.0)
        bounds = Bounds(features=([0.0] * 6, [20.0] * 6), target=(-10.0, 40.0))
        model = DPRidge(epsilon=1.0, bounds=bounds, neighbours="zero-out", insecure_seed=seed)
        gains.append(model.fit(X[:1500], y[:1500]).score(X[1500:], y[1500:]))
    assert np.mean(gains) >= 0.70


def test_a_mean_near_the_end_of_its_range_is_not_shrunk_away():
    missed = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(1000, 8)), 95.0 + rng.normal(size=1000)
        bounds = replace(WITH_TARGET, target=(0.0, 100.0))
        model = DPRidge(epsilon=0.1, bounds=bounds, neighbours="zero-out", insecure_seed=seed).fit(X, y)
        missed.append(abs(model.predict(X).mean() - 95.0))
        assert model.privacy_report_.public["warnings"]
    assert np.median(missed) <= 6.0


def test_the_plan_warns_where_noise_hides_the_best_constant():
    few = DPLogisticRegression(epsilon=0.1, bounds=BOUNDS).plan(300, 5)
    assert any("class frequencies are known to about" in text for text in few.warnings)
    assert "class frequencies are known to about" in str(few)
    sparse = DPLasso(epsilon=0.1, bounds=WITH_TARGET).plan(300, 3000)
    assert sparse.forecast.excess > sparse.forecast.null_excess
    assert any("of its range only: all predictions" in text for text in sparse.warnings)
    for many in (
        DPLogisticRegression(epsilon=1.0, bounds=BOUNDS).plan(10_000, 5),
        DPRidge(epsilon=1.0, bounds=WITH_TARGET).plan(10_000, 5),
        DPLogisticRegression(epsilon=0.1, bounds=BOUNDS, fit_intercept=False).plan(100_000, 5),
    ):
        assert many.warnings == ()
