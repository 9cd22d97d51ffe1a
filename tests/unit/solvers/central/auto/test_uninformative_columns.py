"""Fits on uninformative columns predict a constant, and weak or joint signals are still detected."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm import Bounds, DPLasso, DPLogisticRegression, DPRidge
from dperm.solvers.central.auto.shrinkage import NO_INFORMATIVE_COLUMN

BOUNDS = {"centre": 0.0, "scale": 1.0, "clip": 3.0}


def uninformative_columns(seed, n, p):
    rng = np.random.default_rng([seed, n, 41])
    return np.clip(rng.normal(size=(n + 4000, p)), -3.0, 3.0), rng


@pytest.mark.parametrize(("n", "neighbours", "epsilon"), [(1500, "zero-out", 4.0), (5000, "replace-one", 1.0)])
@pytest.mark.parametrize(("make", "p"), [(DPRidge, 10), (DPRidge, 50), (DPLasso, 300)])
def test_a_regression_on_uninformative_columns_predicts_a_constant(make, p, n, neighbours, epsilon):
    """Exactly constant: a small contribution in every fit would be significant in the mean over many fits."""
    constant, by_columns = 0, []
    for seed in range(12):
        X, rng = uninformative_columns(seed, n, p)
        y = np.clip(rng.normal(size=len(X)), -4.0, 4.0)
        bounds = Bounds(**BOUNDS, target=(-4.0, 4.0))
        model = make(epsilon=epsilon, bounds=bounds, neighbours=neighbours, insecure_seed=seed).fit(X[:n], y[:n])
        predicted, test = model.predict(X[n:]), y[n:]
        by_columns.append(np.mean((predicted - test) ** 2) - np.mean((predicted.mean() - test) ** 2))
        if not np.any(model.coef_):
            constant += 1
            assert NO_INFORMATIVE_COLUMN in model.privacy_report_.public["warnings"]
    assert constant >= 10
    assert np.mean(by_columns) <= 2.0 * np.std(by_columns, ddof=1) / math.sqrt(12)


@pytest.mark.parametrize(("make", "p"), [(DPRidge, 10), (DPLasso, 300)])
def test_a_note_on_the_target_does_not_replace_the_note_on_columns(make, p):
    X, rng = uninformative_columns(0, 1500, p)
    y = np.abs(rng.normal(size=1500))
    bounds = Bounds(**BOUNDS, target=(0.0, 100.0))
    model = make(epsilon=1.0, bounds=bounds, neighbours="zero-out", insecure_seed=0).fit(X[:1500], y)
    notes = model.privacy_report_.public["warnings"]
    assert not np.any(model.coef_)
    assert any("mean of the target" in text for text in notes)
    assert NO_INFORMATIVE_COLUMN in notes


@pytest.mark.parametrize(("n", "neighbours", "epsilon"), [(1500, "zero-out", 4.0), (5000, "replace-one", 1.0)])
def test_a_classifier_on_uninformative_columns_predicts_class_frequencies(n, neighbours, epsilon):
    by_columns, notes = [], 0
    for seed in range(12):
        X, rng = uninformative_columns(seed, n, 20)
        y = (rng.random(len(X)) < 0.7).astype(int)
        model = DPLogisticRegression(
            epsilon=epsilon, bounds=Bounds(**BOUNDS, classes=(0, 1)), neighbours=neighbours, insecure_seed=seed
        ).fit(X[:n], y[:n])
        notes += bool(model.privacy_report_.public["warnings"])
        probabilities = model.predict_proba(X[n:])
        frequencies = probabilities.mean(axis=0)
        by_columns.append(np.mean(np.log(frequencies[y[n:]]) - np.log(probabilities[np.arange(4000), y[n:]])))
    assert notes >= 11
    assert np.mean(by_columns) <= 2.0 * np.std(by_columns, ddof=1) / math.sqrt(12) + 1e-4
    assert np.mean(by_columns) <= 0.001


def test_weak_columns_are_still_detected():
    """One column of ten explains 2% of the target variance; the fit finds most of it."""
    gains = []
    for seed in range(8):
        X, rng = uninformative_columns(seed, 1500, 10)
        y = np.clip(0.15 * X[:, 0] + rng.normal(size=len(X)), -4.0, 4.0)
        model = DPRidge(
            epsilon=4.0, bounds=Bounds(**BOUNDS, target=(-4.0, 4.0)), neighbours="zero-out", insecure_seed=seed
        ).fit(X[:1500], y[:1500])
        gains.append(model.score(X[1500:], y[1500:]))
    assert np.mean(gains) >= 0.01


@pytest.mark.parametrize(("n", "p", "epsilon"), [(100, 50, 100.0), (200, 300, 1e4)])
def test_columns_that_share_a_few_factors_are_detected(n, p, epsilon):
    """About as many columns as rows: sampling variation has as much energy as a signal, but not in one direction."""
    for seed in range(3):
        rng = np.random.default_rng([seed, n, p])
        factors = rng.normal(size=(n + 2000, 3))
        X = 0.52 * factors @ rng.normal(size=(3, p)) + 0.45 * rng.normal(size=(n + 2000, p))
        X, y = np.clip(X, -3.0, 3.0), np.clip(factors[:, 0] + 0.3 * rng.normal(size=n + 2000), -4.0, 4.0)
        model = DPRidge(
            epsilon=epsilon, bounds=Bounds(**BOUNDS, target=(-4.0, 4.0)), neighbours="zero-out", insecure_seed=seed
        ).fit(X[:n], y[:n])
        assert model.score(X[n:], y[n:]) >= 0.6


def test_weights_removed_by_a_penalty_are_not_blamed_on_noise():
    X, rng = uninformative_columns(0, 3000, 5)
    y = np.clip(X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]) + rng.normal(size=len(X)), -6.0, 6.0)
    bounds = Bounds(**BOUNDS, target=(-6.0, 6.0))
    model = DPLasso(epsilon=1e4, strength=10.0, bounds=bounds, insecure_seed=0).fit(X, y)
    assert np.abs(model.coef_).max() < 1e-12
    assert not any("noise" in text.lower() for text in model.privacy_report_.public["warnings"])


def test_where_a_penalty_removes_all_columns_class_frequencies_are_predicted():
    """The descent would only add noise and the drift of clipped slopes to the best constant."""
    excess = []
    for seed in range(6):
        X, rng = uninformative_columns(seed, 1500, 10)
        y = (rng.random(1500) < 0.3).astype(int)
        model = DPLogisticRegression(
            epsilon=0.5,
            penalty="l1",
            strength=10.0,
            neighbours="zero-out",
            bounds=Bounds(**BOUNDS, classes=(0, 1)),
            insecure_seed=seed,
        ).fit(X[:1500], y)
        assert np.abs(model.coef_).max() < 1e-12
        true, predicted = np.bincount(y) / 1500, model.predict_proba(X[:1])[0]
        excess.append(float(true @ np.log(true / predicted)))
    assert np.mean(excess) < 5e-4


def test_with_as_many_columns_as_rows_and_little_noise_the_fit_is_kept():
    """Sampling variation explains every target there, so a full null test would never reject."""
    scores = []
    for seed in range(3):
        rng = np.random.default_rng([seed, 7])
        X = np.clip(rng.normal(size=(2200, 300)), -3.0, 3.0)
        y = X @ rng.normal(size=300) / math.sqrt(300.0)
        bounds = Bounds(**BOUNDS, target=(-4.0, 4.0))
        model = DPRidge(epsilon=1e4, bounds=bounds, neighbours="zero-out", insecure_seed=seed)
        scores.append(model.fit(X[:200], np.clip(y[:200], -4.0, 4.0)).score(X[200:], y[200:]))
    assert np.mean(scores) >= 0.3
