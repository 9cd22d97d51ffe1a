"""Local linear models: accuracy, intervals, planner, reports, bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import optimize, special, stats

from dperm import Bounds
from dperm.errors import DpermError, InvalidBounds, InvalidBudget, InvalidData, InvalidInput, Unsupported
from dperm.estimators.local import LocalLinearRegression, LocalLogisticRegression
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import LinearTask
from dperm.solvers.local.linear_models import logistic_curvature

UNIT = Bounds(features=(-1, 1), row_norm=1.0)
BOX = Bounds(features=(-1, 1), target=(-2, 2))


def people(p, n, seed):
    """Rows of length .5 to 1 in random directions; weights of length about 1.5."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    x *= rng.uniform(0.5, 1.0, (n, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    w = np.array([1.3, -0.9, 0.6])[:p] if p <= 3 else rng.normal(size=p)
    if p > 3:
        w *= 1.5 / np.linalg.norm(w)
    return x, rng.random(n) < special.expit(x @ w)


def excess(x, y, w, p):
    """Mean logistic loss above its minimum, over the largest loss for few columns."""
    a = np.where(y, 1.0, -1.0)[:, None] * x

    def mean(v):
        return np.logaddexp(0.0, -a @ v).mean(), -(a.T @ special.expit(-a @ v)) / len(a)

    best = optimize.minimize(mean, np.zeros(p), jac=True, method="L-BFGS-B").fun
    return (mean(w)[0] - best) / (np.log1p(np.exp(2.0 * np.sqrt(p))) if p <= 3 else 1.0)


@pytest.mark.parametrize(
    ("p", "n", "reps", "limit"),
    [(1, 10_000, 20, 5e-4), (2, 100_000, 8, 5e-4), (3, 1_000_000, 2, 2e-4), (5, 1_000_000, 2, 20e-4)],
)
def test_excess_risk_at_epsilon_one(p, n, reps, limit):
    found, null = [], []
    for seed in range(reps):
        x, y = people(p, n, seed)
        model = LocalLogisticRegression(1.0, bounds=UNIT, fit_intercept=False, insecure_seed=seed).fit(x, y)
        found.append(excess(x, y, model.coef_[0], p))
        null.append(excess(x, y, np.zeros(p), p))
    assert np.mean(found) <= limit
    assert np.mean(found) < 0.1 * np.mean(null)


@pytest.mark.parametrize(("p", "n"), [(2, 2000), (5, 60_000), (10, 200_000)])
def test_never_worse_than_weights_zero_on_average(p, n):
    found, null = [], []
    for seed in range(6):
        x, y = people(p, n, seed)
        options = {"bounds": UNIT, "fit_intercept": False, "refuse_hopeless": False, "insecure_seed": seed}
        found.append(excess(x, y, LocalLogisticRegression(1.0, **options).fit(x, y).coef_[0], p))
        null.append(excess(x, y, np.zeros(p), p))
    assert np.mean(found) <= np.mean(null)


def test_intervals_cover_the_surrogates_minimiser():
    """500 collections, logistic loss, one column and an intercept; halved intervals must fail the same test."""
    rng, n = np.random.default_rng(0), 15_000
    model = LocalLogisticRegression(1.0, bounds=Bounds(features=(-1, 1)))
    linear = model._linear_task(model._scaling(1, None))
    grid = np.linspace(-1, 1, 20_001)
    a = np.column_stack([grid, np.ones_like(grid)]) / np.sqrt(2.0)
    p = special.expit(grid + 0.3)
    truth = np.linalg.solve(linear.curvature * a.T @ a, 0.5 * a.T @ (2.0 * p - 1.0))
    hits, halved, given = 0, 0, 0
    source = RandomSource(1)
    for _ in range(500):
        x = rng.uniform(-1, 1, n)
        y = np.where(rng.random(n) < special.expit(x + 0.3), 1.0, -1.0)
        records = y[:, None] * np.column_stack([x, np.ones(n)]) / np.sqrt(2.0)
        estimate = linear.estimate(linear.task.collect(records, source))
        if estimate.covariance is not None:
            off = np.abs(estimate.unshrunk - truth) / np.sqrt(np.diag(estimate.covariance))
            hits += (off <= stats.norm.isf(0.025)).sum()
            halved += (off <= stats.norm.isf(0.025) / 2).sum()
            given += 2
    assert given >= 990
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


def test_counts_and_a_simulated_population_give_the_same_model():
    x, y = people(2, 50_000, 5)
    bounds = Bounds(features=(-1, 1), row_norm=1.0, classes=[False, True])
    first = LocalLogisticRegression(1.0, bounds=bounds, insecure_seed=0).fit(x, y)
    second = LocalLogisticRegression(1.0, bounds=bounds).fit_counts(first.counts_, 2)
    assert np.array_equal(first.coef_, second.coef_)
    assert np.array_equal(first.intervals_, second.intervals_)
    assert np.array_equal(first.predict(x[:50]), second.predict(x[:50]))
    regression = LocalLinearRegression(1.0, bounds=BOX, insecure_seed=0).fit(x, 1.0 * y)
    assert np.array_equal(
        LocalLinearRegression(1.0, bounds=BOX).fit_counts(regression.counts_, 2).coef_, regression.coef_
    )


def test_the_planner():
    model = LocalLogisticRegression(1.0, bounds=UNIT, fit_intercept=False)
    forecast = model.forecast(100_000, 2)
    assert forecast.people_needed < 100_000
    assert not forecast.hopeless
    assert forecast.people_for(forecast.excess / 10) == pytest.approx(1_000_000, rel=0.01)
    assert forecast.people_for(forecast.null_excess) == forecast.people_needed
    assert model.forecast(100_000, 20).hopeless
    assert model.set_params(epsilon=2.0).forecast(100_000, 2).excess < forecast.excess
    with pytest.raises(InvalidInput, match="above 0"):
        forecast.people_for(0.0)
    with pytest.raises(InvalidInput, match="number of people"):
        model.forecast(0, 2)


def test_too_few_people_are_refused_with_how_many_it_takes():
    x, y = people(5, 2000, 6)
    model = LocalLogisticRegression(1.0, bounds=UNIT)
    with pytest.raises(Unsupported, match=str(model.forecast(2000, 5).people_needed)):
        model.fit(x, y)
    assert not hasattr(model, "coef_")
    model = LocalLogisticRegression(1.0, bounds=UNIT, insecure_seed=0).fit(*people(1, 9000, 6))
    with pytest.raises(Unsupported):
        model.fit(x, y)
    assert model.predict(x[:5, :1]).shape == (5,)  # an earlier model stays as it was
    with pytest.raises(InvalidData, match="1 columns"):
        model.predict(x)


def test_the_forecast_is_near_what_happens():
    """The surrogate's own excess, on data that are as assumed."""
    linear, errors = LinearTask("squared", 1.0, (1.0, 1.0), 1.0, 1.0), []
    rng, source = np.random.default_rng(7), RandomSource(7)
    for _ in range(40):
        x = rng.normal(size=(20_000, 2))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        w = rng.normal(size=2)
        w *= 0.75 / np.linalg.norm(w)
        estimate = linear.estimate(linear.task.collect(np.column_stack([x, x @ w]), source))
        errors.append(((estimate.unshrunk - w) ** 2).sum() / 4.0)
    assert np.mean(errors) == pytest.approx(linear.forecast(20_000, 1.0).excess, rel=0.4)


def test_the_report():
    x, y = people(1, 5000, 8)
    report = LocalLogisticRegression(1.0, bounds=UNIT).fit(x, y).privacy_report_
    assert (report.guarantee.epsilon, report.guarantee.delta, report.guarantee.view) == (1.0, 0.0, "transcript")
    assert any("once" in text for text in report.guarantee.assumptions)
    assert "label" in " ".join(report.guarantee.assumptions)
    assert type(report).from_json(report.to_json()) == report
    seeded = LocalLogisticRegression(1.0, bounds=UNIT, insecure_seed=1).fit(x, y).privacy_report_
    assert seeded.guarantee is None
    assert "insecure_seed" in seeded.reason


def test_the_surrogate_fits_the_logistic_loss():
    s = np.linspace(-2, 2, 401)
    even = np.logaddexp(s / 2, -s / 2)
    quadratic = logistic_curvature(2.0) * s**2 / 2
    assert np.ptp(even - quadratic) < 0.02


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"bounds": None}, InvalidBounds),
        ({"bounds": Bounds(classes=[0, 1])}, InvalidBounds),
        ({"bounds": Bounds(features=(0, 0))}, InvalidBounds),
        ({"epsilon": 20.0}, InvalidBudget),
        ({"epsilon": "1"}, InvalidBudget),
        ({"radius": 0.0}, InvalidInput),
        ({"radius": np.inf}, InvalidInput),
        ({"confidence": 1.0}, InvalidInput),
        ({"fit_intercept": "no"}, InvalidInput),
        ({"insecure_seed": 1.5}, InvalidInput),
    ],
)
def test_bad_parameters(options, error):
    x, y = people(1, 5000, 9)
    with pytest.raises(error):
        LocalLogisticRegression(**{"bounds": UNIT, **options}).fit(x, y)


def test_bad_data():
    x, y = people(1, 5000, 10)
    model = LocalLogisticRegression(bounds=UNIT)
    with pytest.raises(InvalidData, match="two classes"):
        model.fit(x, np.arange(5000) % 3)
    with pytest.raises(InvalidData, match="two classes"):
        model.fit(x, np.zeros(5000))
    with pytest.raises(InvalidData, match="not among"):
        LocalLogisticRegression(bounds=Bounds(features=(-1, 1), classes=[5, 6])).fit(x, y)
    with pytest.raises(InvalidData):
        model.fit(np.where(x > 0.9, np.nan, x), y)
    with pytest.raises(InvalidBounds, match="two labels"):
        model.fit_counts(model.task(1).no_counts(), 1)
    with pytest.raises(InvalidBounds, match="target"):
        LocalLinearRegression(bounds=UNIT).fit(x, y)
    counts = LocalLogisticRegression(bounds=UNIT, insecure_seed=0).fit(x, y).counts_
    with pytest.raises(DpermError, match="another task"):
        LocalLogisticRegression(2.0, bounds=Bounds(features=(-1, 1), classes=[0, 1])).fit_counts(counts, 1)
