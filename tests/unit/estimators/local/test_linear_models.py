"""Local linear models: accuracy, intervals, units, several classes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy import special, stats

from dperm import Bounds, LocalLinearRegression, LocalLogisticRegression
from dperm.errors import InvalidData
from dperm.solvers.local import Counts, LinearTask

UNIT = Bounds(features=(-1, 1), row_norm=1.0)
BOX = Bounds(features=(-1, 1), target=(-2, 2))


def logistic(**options):
    return LocalLogisticRegression(**{"bounds": UNIT, "fit_intercept": False, **options})


@pytest.mark.parametrize(
    ("p", "n", "reps", "limit"),
    [(1, 10_000, 40, 5e-4), (2, 100_000, 10, 5e-4), (3, 1_000_000, 3, 2e-4), (5, 1_000_000, 2, 20e-4)],
)
def test_excess_risk_at_epsilon_one(people, excess, p, n, reps, limit):
    found, null = [], []
    for seed in range(reps):
        x, y, w = people(p, n, seed)
        found.append(excess(logistic(insecure_seed=seed).fit(x, y).coef_[0], w))
        null.append(excess(np.zeros(p), w))
    assert np.mean(found) <= limit
    assert np.mean(found) < 0.1 * np.mean(null)


@pytest.mark.parametrize(
    ("p", "n", "reps"),
    [(1, 60, 40), (2, 800, 20), (2, 4000, 20), (5, 20_000, 8), (5, 80_000, 6), (10, 200_000, 3)],
)
def test_never_worse_than_weights_zero_on_average(people, excess, p, n, reps):
    """Below, at and above the number of people from which a fit is not refused."""
    found, null = [], []
    for seed in range(reps):
        x, y, w = people(p, n, seed)
        found.append(excess(logistic(refuse_hopeless=False, insecure_seed=seed).fit(x, y).coef_[0], w))
        null.append(excess(np.zeros(p), w))
    assert np.mean(found) <= np.mean(null)


@pytest.mark.parametrize(("degree", "n"), [(2, 15_000), (4, 40_000)])
def test_intervals_cover_the_surrogates_minimiser(degree, n):
    """500 collections, logistic loss, one column and an intercept; halved intervals must fail the same test.

    People are drawn at random, so given a statistic their bits are independent with the population's chance of a 1.
    """
    rng = np.random.default_rng(0)
    linear = LinearTask("logistic", 1.0, (0.7072, 0.5**0.5), 4.0, 2.0, intercept=True, degree=degree)
    grid = np.linspace(-1, 1, 4001)
    a = np.column_stack([grid, np.ones_like(grid)]) / np.sqrt(2.0)
    chance, truth = special.expit(grid + 0.3), np.zeros(2)
    for _ in range(50):
        s = a @ truth
        slope = sum(2 * k * c * s ** (2 * k - 1) for k, c in enumerate(linear.coefficients, start=1))
        bend = sum(2 * k * (2 * k - 1) * c * s ** (2 * k - 2) for k, c in enumerate(linear.coefficients, start=1))
        truth = truth - np.linalg.solve((a * bend[:, None]).T @ a, a.T @ slope - 0.5 * a.T @ (2.0 * chance - 1.0))
    task, bit = linear.task, linear.task.bit
    ones = np.empty(task.sketch.size)
    for j in range(task.sketch.size):
        low, high = task.sketch.low[j], task.sketch.high[j]
        both = [bit.thresholds(task.sketch.values(y * a, np.full(len(a), j)), low, high) for y in (1.0, -1.0)]
        ones[j] = (chance * both[0] + (1.0 - chance) * both[1]).mean() / 2**32
    hits, halved, given = 0, 0, 0
    for _ in range(500):
        asked = rng.multinomial(n, task.probabilities)
        estimate = linear.estimates(Counts(task.digest, asked, rng.binomial(asked, ones)))[0]
        if estimate.covariance is not None:
            off = np.abs(estimate.unshrunk - truth) / np.sqrt(np.diag(estimate.covariance))
            hits += (off <= stats.norm.isf(0.025)).sum()
            halved += (off <= stats.norm.isf(0.025) / 2).sum()
            given += 2
    assert given >= 980
    assert 0.92 <= hits / given <= 0.98
    assert not 0.92 <= halved / given <= 0.98


def test_regression_in_the_users_units():
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"age": rng.uniform(20, 60, 400_000), "dose": rng.uniform(0, 2, 400_000)})
    y = 10.0 + 0.25 * X["age"] - 3.0 * X["dose"] + rng.normal(size=400_000)
    bounds = Bounds(features=({"age": 20, "dose": 0}, {"age": 60, "dose": 2}), target=(0, 30))
    model = LocalLinearRegression(4.0, bounds=bounds, insecure_seed=0).fit(X, y)
    truth = np.array([0.25, -3.0, 10.0])
    assert np.append(model.coef_, model.intercept_) == pytest.approx(truth, rel=0.15)
    width = np.diff(model.intervals_, axis=1).ravel()
    assert (np.abs(model.intervals_.mean(axis=1) - truth) < 2.0 * width).all()
    assert model.score(X, y) > 0.8
    assert list(model.feature_names_in_) == ["age", "dose"]
    assert np.array_equal(model.predict(pl.from_pandas(X.head(5))), model.predict(X.head(5)))
    with pytest.raises(InvalidData, match="same order"):
        model.predict(X[["dose", "age"]])


def test_without_noise_to_speak_of_it_is_least_squares():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (400_000, 2))
    y = X @ [0.5, -0.3] + 0.2
    model = LocalLinearRegression(16.0, bounds=BOX, insecure_seed=0).fit(X, y)
    assert np.append(model.coef_, model.intercept_) == pytest.approx([0.5, -0.3, 0.2], abs=0.02)


def test_a_penalty_is_that_of_ridge():
    """Mean loss + strength / 2 |w|^2 on scaled features, the intercept left alone; targets in [-1, 1]."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (400_000, 2))
    y = 2.0 * (X @ [0.5, -0.3] + 0.2)
    model = LocalLinearRegression(16.0, bounds=BOX, strength=0.4, insecure_seed=0).fit(X, y)
    ridge = np.linalg.solve(X.T @ X / len(X) + 0.4 * np.eye(2), X.T @ y / len(X))
    assert np.append(model.coef_, model.intercept_) == pytest.approx([*ridge, 0.4], abs=0.03)


def test_without_an_intercept_lines_go_through_zero():
    rng = np.random.default_rng(6)
    X = rng.uniform(0, 1, (200_000, 1))
    bounds = Bounds(features=(0, 1), target=(0, 4))
    model = LocalLinearRegression(8.0, bounds=bounds, fit_intercept=False, insecure_seed=0).fit(X, 1.5 * X[:, 0])
    assert model.intercept_ == 0.0
    assert model.predict([[0.0]]).tolist() == [0.0]
    assert model.coef_ == pytest.approx([1.5], rel=0.1)


def test_several_classes_from_one_bit_per_person():
    """Three classes: labels, probabilities and intervals, and better than always the most frequent one."""
    rng, n = np.random.default_rng(7), 300_000
    y = rng.integers(0, 3, n)
    X = np.clip(np.array([[0.5, 0.0], [-0.5, 0.4], [0.0, -0.6]])[y] + 0.3 * rng.normal(size=(n, 2)), -1, 1)
    labels = np.array(["a", "b", "c"])[y]
    bounds = Bounds(features=(-1, 1), classes=["a", "b", "c"])
    model = LocalLogisticRegression(1.0, bounds=bounds, radius=5.0, insecure_seed=0).fit(X, labels)
    assert model.coef_.shape == (3, 2)
    assert model.intercept_.shape == model.kept_.shape == (3,)
    assert model.intervals_.shape == (3, 3, 2), model.intervals_reason_
    assert model.counts_.n_people == n
    assert model.score(X, labels) > 0.75
    assert model.predict_proba(X[:9]).sum(axis=1) == pytest.approx(np.ones(9))
    assert np.array_equal(model.predict_log_proba(X[:9]), np.log(model.predict_proba(X[:9])))
    again = LocalLogisticRegression(1.0, bounds=bounds, radius=5.0).fit_counts(model.counts_, 2)
    assert np.array_equal(again.coef_, model.coef_)


def test_of_two_classes_of_three_columns_the_same_weights():
    """One class against the rest is the two-class problem: same minimiser where noise is small."""
    rng, n = np.random.default_rng(8), 400_000
    X = rng.uniform(-1, 1, (n, 2))
    first = rng.random(n) < special.expit(X @ [1.0, -0.5])
    three = np.where(first, 0, 1 + (rng.random(n) < 0.5))
    bounds = Bounds(features=(-1, 1))
    pair = LocalLogisticRegression(12.0, bounds=bounds, insecure_seed=0, degree=2).fit(X, first)
    triple = LocalLogisticRegression(12.0, bounds=bounds, insecure_seed=0, degree=2).fit(X, three)
    assert triple.coef_[0] == pytest.approx(pair.coef_[0], abs=0.08)


def test_levels_lower_the_noise_of_a_large_epsilon(people, excess):
    found = {2: [], 16: []}
    for seed in range(12):
        x, y, w = people(2, 10_000, seed)
        for n_levels, values in found.items():
            model = logistic(epsilon=4.0, n_levels=n_levels, insecure_seed=seed).fit(x, y)
            values.append(excess(model.coef_[0], w))
    assert np.mean(found[16]) < 0.8 * np.mean(found[2])
    counted = LocalLogisticRegression(4.0, bounds=Bounds(features=(-1, 1), classes=[False, True]), n_levels=16)
    simulated = counted.set_params(insecure_seed=0).fit(x, y)
    again = LocalLogisticRegression(**simulated.get_params()).fit_counts(simulated.counts_, 2)
    assert np.array_equal(simulated.coef_, again.coef_)
    assert counted.plan(10_000, 2).noise < logistic(epsilon=4.0, fit_intercept=True, bounds=BOX).plan(10_000, 2).noise


def test_counts_and_a_simulated_population_give_the_same_model(people):
    x, y, _ = people(2, 50_000, 5)
    bounds = Bounds(features=(-1, 1), row_norm=1.0, classes=[False, True])
    for degree in (2, 4):
        first = LocalLogisticRegression(1.0, bounds=bounds, degree=degree, insecure_seed=0).fit(x, y)
        second = LocalLogisticRegression(1.0, bounds=bounds).fit_counts(first.counts_, 2)
        assert second.degree_ == degree
        assert np.array_equal(first.coef_, second.coef_)
        assert np.array_equal(first.intervals_, second.intervals_)
        assert np.array_equal(first.predict(x[:50]), second.predict(x[:50]))
    regression = LocalLinearRegression(1.0, bounds=BOX, insecure_seed=0).fit(x, 1.0 * y)
    assert np.array_equal(
        LocalLinearRegression(1.0, bounds=BOX).fit_counts(regression.counts_, 2).coef_, regression.coef_
    )


def test_sparse_rows_are_the_same_people(people):
    x, y, _ = people(2, 20_000, 6)
    x[x < 0.2] = 0.0
    dense = logistic(insecure_seed=0).fit(x, y)
    sparse = logistic(insecure_seed=0).fit(sp.csc_array(x), y)
    assert np.array_equal(dense.coef_, sparse.coef_)
    assert sparse.predict(sp.csr_array(x[:9])).tolist() == dense.predict(x[:9]).tolist()


def test_names_go_through_counts():
    rng = np.random.default_rng(9)
    X = pd.DataFrame({"u": rng.uniform(-1, 1, 50_000), "v": rng.uniform(-1, 1, 50_000)})
    bounds = Bounds(features=(-1, 1), classes=[0, 1])
    fitted = LocalLogisticRegression(2.0, bounds=bounds, insecure_seed=0).fit(X, (X["u"] > 0).astype(int))
    model = LocalLogisticRegression(2.0, bounds=bounds).fit_counts(fitted.counts_, 2, names=["u", "v"])
    assert model.predict(X.head(9)).tolist() == fitted.predict(X.head(9)).tolist()
    with pytest.raises(InvalidData, match="same order"):
        model.predict(X[["v", "u"]])


@pytest.mark.parametrize(("n", "epsilon", "n_levels"), [(1000, 4.0, 16), (1000, 8.0, 2), (5000, 1.0, 2)])
def test_intervals_of_regressions_cover(n, epsilon, n_levels):
    """Few people: an interval is right or is not given."""
    rng, inside, given = np.random.default_rng(8), 0, 0
    for seed in range(250):
        X = rng.uniform(-1, 1, (n, 1))
        y = 0.3 * X[:, 0] + 0.1 + rng.uniform(-0.3, 0.3, n)
        options = {"refuse_hopeless": False, "n_levels": n_levels, "insecure_seed": seed}
        model = LocalLinearRegression(epsilon, bounds=BOX, **options).fit(X, y)
        if model.intervals_ is not None:
            inside += int(((model.intervals_[:, 0] <= [0.3, 0.1]) & (model.intervals_[:, 1] >= [0.3, 0.1])).sum())
            given += 2
    assert given > 300
    assert inside / given > 0.92


def test_no_interval_from_a_handful_of_answers():
    """With hardly any noise of the bits and few people, a normal law of the means is far off."""
    rng = np.random.default_rng(9)
    X = rng.uniform(-1, 1, (450, 1))
    options = {"refuse_hopeless": False, "n_levels": 16, "insecure_seed": 0}
    model = LocalLinearRegression(16.0, bounds=BOX, **options).fit(X, 0.3 * X[:, 0] + 0.1)
    assert model.counts_.n.min() < 100
    assert model.intervals_ is None
    assert "fewer than 100 answers" in model.intervals_reason_
