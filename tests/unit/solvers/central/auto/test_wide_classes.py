"""Descent without a metric for several classes: what it learns, what it leaves alone, and odd data."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from dperm import Bounds, DPLogisticRegression
from dperm.data.holding.holder import DataHolder
from dperm.objective import L2, Multinomial, Objective
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import WideDescent
from dperm.solvers.central.auto.constants import RULE
from dperm.testing.data import Layout, design_data

K = 5


def texts(n, d=4000, seed=0):
    """0/1 rows of about forty words; each class has a vocabulary of its own, with common and rare words."""
    rng = np.random.default_rng(seed)
    words = [np.exp(1.5 * rng.normal(size=d)) / np.arange(1, d + 1) for _ in range(K)]
    y = rng.choice(K, n, p=[0.35, 0.25, 0.2, 0.15, 0.05])
    found = [np.unique(rng.choice(d, 40, p=words[k] / words[k].sum())) for k in y]
    ends = np.concatenate([[0], np.cumsum([len(one) for one in found])])
    X = sp.csr_array((np.ones(ends[-1]), np.concatenate(found), ends), shape=(n, d))
    return X, y


def fitted(X, y, epsilon=1.0, seed=0, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bounds = Bounds(centre=0, scale=1, clip=1, row_norm=8.0, classes=list(range(K)))
        options = {"bounds": bounds, "neighbours": "zero-out", "insecure_seed": seed, **options}
        return DPLogisticRegression(epsilon, **options).fit(X, y)


def log_loss(model, X, y):
    return -np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean()


def null_loss(y):
    shares = np.bincount(y, minlength=K) / len(y)
    return -(shares * np.log(shares)).sum()


def test_the_automatic_rule_learns_texts_of_five_classes():
    X, y = texts(3000)
    model = fitted(X[:2000], y[:2000])
    assert "class score gradient" in {release.query for release in model.privacy_report_.releases}
    assert model.score(X[2000:], y[2000:]) > 0.75
    assert log_loss(model, X[2000:], y[2000:]) < 0.6 * null_loss(y)


def test_noise_in_the_weights_does_not_count_in_an_l2_penalty():
    """Short rows need large weights; the length of the noise in thousands of weights used to keep them small."""
    X, y = texts(3000, seed=1)
    bounds = Bounds(centre=0, scale=1, clip=1, row_norm=1.0, classes=list(range(K)))
    losses = [
        log_loss(fitted(X[:2000], y[:2000], 1.0, bounds=bounds, penalty=penalty), X[2000:], y[2000:])
        for penalty in ("l2", "none")
    ]
    assert losses[0] < losses[1] + 0.1 < null_loss(y)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_pure_noise_of_five_classes_is_not_learnt(epsilon):
    """At epsilon 4 each person's own part in the scores would look like signal."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 2000)), rng.choice(K, 2000, p=[0.4, 0.25, 0.15, 0.15, 0.05])
    bounds = Bounds(centre=0, scale=1, clip=3, classes=list(range(K)))
    model = fitted(X[:1000], y[:1000], epsilon, bounds=bounds)
    assert log_loss(model, X[1000:], y[1000:]) < null_loss(y) + 0.03


def test_an_l1_penalty_returns_few_weights():
    X, y = texts(1500)
    model = fitted(X, y, epsilon=4.0, penalty="l1", strength=1e-4)
    assert 20 < np.count_nonzero(model.coef_) < 0.05 * model.coef_.size
    assert model.score(X, y) > 0.6
    assert fitted(X, y, epsilon=4.0, penalty="l2").coef_.all()


def solved(data, objective, seed, solver=None):
    solver = solver or WideDescent(n_steps=60)
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(1e9, 1e-6))
    scope = Scope(calibrated, Ledger(neighbours=Neighbours.ZERO_OUT), Neighbours.ZERO_OUT, "test", unbounded="seeded")
    with scope:
        holder = DataHolder(data, scope, RandomSource(insecure_seed=seed), Neighbours.ZERO_OUT)
        return solver.solve(objective, holder, calibrated).weights


def three_classes():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 6))
    y = np.argmax(X @ rng.normal(size=(6, 3)) + rng.gumbel(size=(400, 3)) + [0.5, 0.0, -0.5], axis=1)
    return X, y, Layout(n=400, n_features=6, intercept=1.0)


def test_permuting_classes_permutes_the_weights_without_noise():
    X, y, layout = three_classes()
    order = np.array([2, 0, 1])
    objective = Objective(Multinomial(3), L2(0.01), unpenalised=(6,))
    one, other = (solved(design_data(layout, X, labels), objective, seed) for labels, seed in ((y, 0), (order[y], 1)))
    assert np.abs(one).max() > 0.2
    np.testing.assert_allclose(other[:, order], one, atol=1e-3)


@pytest.mark.parametrize("strength", [1e-9, 0.01, 0.1])
def test_without_noise_it_comes_close_to_the_optimum(strength):
    X, y, layout = three_classes()
    data, objective = design_data(layout, X, y), Objective(Multinomial(3), L2(strength), unpenalised=(6,))
    rows = np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])

    def value(weights):
        return objective.value(rows, y, np.reshape(weights, (7, 3)))

    best = minimize(value, np.zeros(21), method="BFGS").fun
    weights = solved(data, objective, 0, WideDescent(n_steps=400, clip=1e9, correct_overfit=False))
    assert value(np.zeros(21)) - best > 0.1
    assert value(weights) - best < 0.005


def test_classes_may_lack_people_columns_or_an_intercept():
    X, y = texts(60)
    for rows in (X, sp.csr_array(X.shape)):
        for options in ({"fit_intercept": False}, {"penalty": "l1"}, {"strength": 1e300}, {}):
            model = fitted(rows, np.minimum(y, 1), solver="wide", **options)
            assert np.isfinite(model.coef_).all()
            assert np.isfinite(model.predict_proba(rows)).all()


def test_a_penalty_that_removes_all_weights_still_makes_every_release():
    X, y = texts(200)
    for intercept in (True, False):
        model = fitted(X, y, penalty="l1", strength=1e3, solver="wide", fit_intercept=intercept)
        assert not model.coef_.any()
        assert sum(release.count for release in model.privacy_report_.releases) > 2 * RULE.n_steps


def test_a_strong_l2_penalty_leaves_little():
    X, y = texts(300)
    coefficients = [np.abs(fitted(X, y, strength=s, solver="wide").coef_).max() for s in (1e-4, 1, 1e6)]
    assert coefficients[0] > coefficients[1] > coefficients[2]
    assert coefficients[2] < 1e-3


def test_the_plan_of_texts_promises_a_gain_and_that_of_hopeless_data_does_not():
    bounds = Bounds(centre=0, scale=1, clip=1, row_norm=8.0, classes=list(range(K)))
    model = DPLogisticRegression(1.0, bounds=bounds, neighbours="zero-out")
    assert model.plan(4000, 10_000).solver == "wide"
    assert not any("what columns usually explain" in text for text in model.plan(4000, 10_000).warnings)
    assert any("what columns usually explain" in text for text in model.plan(20, 20_000).warnings)
