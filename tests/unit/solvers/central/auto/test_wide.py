"""Descent without a metric and its refit: what it learns of wide data, what it leaves alone, and odd data."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from dperm import Bounds, DPLasso, DPLogisticRegression, DPRidge
from dperm.data.design.facts import Facts
from dperm.errors import InvalidInput, Unsupported
from dperm.estimators.progress import watching
from dperm.objective import L1, L2, Logistic, Objective, Squared
from dperm.objective.constraints import L1Ball
from dperm.solvers import WideDescent
from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.learnt import Learnt

TEXT = Bounds(centre=0, scale=1, clip=1, row_norm=8.0, classes=[0, 1])


def texts(n, d=4000, seed=0):
    """0/1 rows of about forty words of two overlapping vocabularies with common and rare words."""
    rng = np.random.default_rng(seed)
    common = 1.0 / np.arange(1, d + 1)
    words = [common * np.exp(1.5 * rng.normal(size=d)) for _ in range(2)]
    words = [one / one.sum() for one in words]
    y = rng.integers(0, 2, n)
    X = sp.lil_array((n, d))
    for i in range(n):
        X[i, np.unique(rng.choice(d, 40, p=words[y[i]]))] = 1.0
    return X.tocsr(), y


def auc(score, y):
    below = score[y == 0][:, None] < score[y == 1][None, :]
    return below.mean()


def fitted(X, y, epsilon=1.0, seed=0, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"bounds": TEXT, "neighbours": "zero-out", "insecure_seed": seed, **options}
        return DPLogisticRegression(epsilon, **options).fit(X, y)


# ------------------------------------------------------------------------------------------------ utility
def test_the_automatic_rule_learns_texts():
    X, y = texts(1800)
    model = fitted(X[:1000], y[:1000])
    assert "feature gradient" in {release.query for release in model.privacy_report_.releases}
    assert model.score(X[1000:], y[1000:]) > 0.85
    assert auc(model.decision_function(X[1000:]), y[1000:]) > 0.93


def test_the_intercept_fits_the_scores():
    """Scores without the refit are not centred: the classes are equal, and one would be predicted almost always."""
    X, y = texts(1800, seed=1)
    shares = [fitted(X[:1000], y[:1000], seed=seed).predict(X[1000:]).mean() for seed in range(3)]
    assert 0.35 < np.mean(shares) < 0.65


def test_pure_noise_is_not_learnt():
    """At epsilon 4 each person's own part in the scores would look like signal."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 2000)), rng.integers(0, 2, 1500)
    bounds = Bounds(centre=0, scale=1, clip=3, classes=[0, 1])
    for epsilon in (1.0, 4.0):
        p = fitted(X[:1000], y[:1000], epsilon, bounds=bounds).predict_proba(X[1000:])[:, 1]
        assert -np.log(np.where(y[1000:] == 1, p, 1.0 - p)).mean() < np.log(2.0) + 0.01


def test_an_l1_penalty_returns_few_weights():
    X, y = texts(1000)
    model = fitted(X, y, epsilon=4.0, penalty="l1", strength=1e-4)
    assert 5 < np.count_nonzero(model.coef_) < 400
    assert fitted(X, y, epsilon=4.0, penalty="l2").coef_.all()


def test_regression_on_more_columns_than_rows():
    rng = np.random.default_rng(3)
    factors = rng.normal(size=(1600, 5))
    X = factors @ rng.normal(size=(5, 2000)) / np.sqrt(5) + 0.5 * rng.normal(size=(1600, 2000))
    y = factors[:, 0] + 0.3 * rng.normal(size=1600)
    bounds = Bounds(centre=0, scale=1, clip=3, target=(-5, 5))
    model = DPRidge(2.0, bounds=bounds, neighbours="zero-out", insecure_seed=0).fit(X[:1000], y[:1000])
    assert model.score(X[1000:], y[1000:]) > 0.5


def test_the_plan_of_texts_promises_a_gain_and_that_of_hopeless_data_does_not():
    model = DPLogisticRegression(1.0, bounds=TEXT, neighbours="zero-out")
    plan = model.plan(2000, 20_000)
    assert not any("what columns usually explain" in text for text in plan.warnings)
    assert any("what columns usually explain" in text for text in model.plan(20, 20_000).warnings)


def test_the_forecast_knows_that_steps_are_limited():
    """With many rows the wanted duration needs more steps than there are."""
    objective = Objective(Logistic(), L2(0.1))
    few, many = (WideDescent(n_steps=steps).duration(objective.loss, 1e9) for steps in (100, 200))
    assert 2.0 * few == pytest.approx(many)
    assert few < WideDescent(n_steps=100).duration(objective.loss, 1e9, clip=1.0)
    narrow = [
        DPLogisticRegression(1.0, bounds=Bounds(features=(0, 1))).plan(n, 1600).forecast.min_column_deviation
        for n in (10**6, 10**7)
    ]
    assert narrow[0] == pytest.approx(narrow[1], rel=0.01)


def test_progress_ends_when_the_refit_ends():
    X, y = texts(200)
    seen = []
    with watching(lambda done, in_all: seen.append((done, in_all))):
        fitted(X, y, solver="wide")
    assert seen[-1][0] == seen[-1][1] == len(seen)


def test_a_ranking_survives_where_noise_dominates():
    """The factor never becomes zero for classes."""
    X, y = texts(1300, seed=5)
    areas = [auc(fitted(X[:500], y[:500], 0.3, seed=seed).decision_function(X[500:]), y[500:]) for seed in range(4)]
    assert np.mean(areas) > 0.6


# ------------------------------------------------------------------------------------------------ odd data
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("penalty", ["l1", "l2", "none"])
def test_rows_of_zeros_give_a_constant(penalty, intercept):
    X, y = sp.csr_array((60, 2000)), np.arange(60) % 2
    model = fitted(X, y, penalty=penalty, solver="wide", fit_intercept=intercept)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_penalty_that_removes_all_weights_still_makes_every_release():
    X, y = texts(200)
    for intercept in (True, False):
        model = fitted(X, y, penalty="l1", strength=1e3, solver="wide", fit_intercept=intercept)
        assert not model.coef_.any()
        assert sum(release.count for release in model.privacy_report_.releases) > 2 * RULE.n_steps


def test_a_strong_l2_penalty_does_not_make_the_refit_diverge():
    X, y = texts(300)
    coefficients = [np.abs(fitted(X, y, penalty="l2", strength=s, solver="wide").coef_).max() for s in (1e-4, 1, 1e6)]
    assert coefficients[0] > coefficients[1] > coefficients[2]
    assert coefficients[2] < 1e-3


def test_noise_in_the_weights_does_not_count_in_an_l2_penalty():
    """Short rows need large weights; the length of the noise in thousands of weights used to keep them small."""
    X, y = texts(3000, seed=1)
    bounds = Bounds(centre=0, scale=1, clip=1, row_norm=1.0, classes=[0, 1])
    losses = []
    for penalty in ("l2", "none"):
        p = fitted(X[:2000], y[:2000], bounds=bounds, penalty=penalty).predict_proba(X[2000:])
        losses.append(-np.log(p[np.arange(1000), y[2000:]]).mean())
    assert losses[0] < losses[1] + 0.05 < np.log(2.0)


@pytest.mark.parametrize("strength", [1e60, 1e95, 1e300])
def test_no_penalty_is_so_strong_that_a_release_is_left_out(strength):
    X, y = texts(100, 300)
    model = fitted(X, y, solver="wide", strength=strength)
    assert np.isfinite(model.coef_).all()
    assert sum(release.count for release in model.privacy_report_.releases) > 2 * RULE.n_steps


def test_sparse_rows_are_never_made_dense():
    """3,000 rows of 60,000 columns would take 1.4 GB as doubles."""
    X, y = texts(3000, 60_000)
    tracemalloc.start()
    fitted(X, y, solver=WideDescent(n_steps=4))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6


@pytest.mark.parametrize("n", [1, 2, 5])
def test_hardly_any_rows(n):
    rng = np.random.default_rng(n)
    for X in (rng.normal(size=(n, 3)), rng.normal(size=(n, 1600))):
        model = DPLasso(1.0, bounds=Bounds(features=(-1, 1), target=(0, 1)), solver="wide", insecure_seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert np.isfinite(model.fit(X, rng.uniform(size=n)).coef_).all()


# ------------------------------------------------------------------------------------------------ options and refusals
@pytest.mark.parametrize(
    "options",
    [{"n_steps": 0}, {"n_steps": 2.5}, {"refit_share": 0.0}, {"target_share": 0.5, "refit_share": 0.5}, {"clip": -1.0}],
)
def test_bad_options_are_refused(options):
    with pytest.raises(InvalidInput):
        WideDescent(**options)


def test_what_it_cannot_do_is_refused_before_anything_is_planned():
    facts = Facts(n=10, n_features=2, d=3, value_bound=1.0, row_bound=1.0, intercept_height=1.0)
    with pytest.raises(Unsupported):
        WideDescent().plan(Objective(Logistic(), constraint=L1Ball(1.0)), facts)
    with pytest.raises(InvalidInput, match="unbounded slopes"):
        WideDescent().plan(Objective(Squared()), facts)


def test_the_plan_states_every_release():
    facts = Facts(n=1000, n_features=2000, d=2001, value_bound=1.0, row_bound=8.0, intercept_height=1.0)
    for penalty in (L1(0.1), L2(0.1)):
        plan = WideDescent(n_steps=90).plan(Objective(Logistic(), penalty), facts)
        counts = {release.query: release.count for release in plan.releases}
        assert counts["feature gradient"] == 90
        assert counts["row lengths"] == 2
        assert sum(release.share for release in plan.releases) == pytest.approx(1.0)


def test_the_forecast_is_between_those_of_related_and_unrelated_columns():
    plan = DPRidge(0.5, bounds=Bounds(centre=0, scale=1, clip=3, target=(-20, 20))).plan(1500, 100)
    assert plan.solver == "wide"
    assert 0.4 < plan.share_left < 0.8  # of unrelated columns 0.16 was left, of a few factors nearly all
    assert "left after the noise: part of what the columns can explain (estimate)" in str(plan)


# ------------------------------------------------------------------------------------------- few rows times mu
def test_few_rows_are_classified_although_nothing_else_can_be_paid_for():
    """Rows times mu of about 13: the scale of the scores follows from the weights, since the refit sees noise only."""
    rng = np.random.default_rng(0)
    y = rng.random(2400) < 0.37
    X = rng.normal(size=(2400, 30)) + np.outer(y - 0.37, np.full(30, 0.9))
    bounds = Bounds(centre=0, scale=1, clip=3, classes=[False, True])
    scores = []
    for seed in range(24):
        model = fitted(X[:400], y[:400], 0.1, seed, bounds=bounds, delta=1.0 / 400**2)
        scores.append(model.score(X[400:], y[400:]))
    assert np.mean(scores) > 0.76  # the larger class is 0.63; the rule that shrank every score had 0.72


def test_the_factor_of_learnt_weights_is_that_of_a_newton_step():
    """Weights that are time times gradient, without noise: the factor is slope over second derivative."""
    gradient = np.array([3.0, 4.0, 0.0])
    learnt = Learnt(2.0 * gradient, 0.0, 0.0, 0.0, time=2.0)
    assert learnt.best_factor(square=10.0, curvature=0.2) == pytest.approx(25.0 * 2.0 / (0.2 * 10.0))
    noisy = Learnt(2.0 * gradient, 10.0, 10.0, 0.0, time=2.0)
    assert noisy.best_factor(square=10.0, curvature=0.2) == 0.0
    assert Learnt(2.0 * gradient, 0.0, 0.0, 0.0).best_factor(10.0, 0.2) == 0.0


def test_the_note_of_constant_predictions_is_said_of_constant_predictions_only():
    """The refit may keep the factor that it starts from although its own gradients are all noise."""
    rng = np.random.default_rng(1)
    y = rng.random(400) < 0.37
    X = rng.normal(size=(400, 30)) + np.outer(y - 0.37, np.full(30, 1.5))
    bounds = Bounds(centre=0, scale=1, clip=3, classes=[False, True])
    for seed in range(8):
        model = fitted(X, y, 0.5, seed, bounds=bounds)
        notes = model.privacy_report_.public.get("warnings", ())
        if any("No column could be distinguished" in note for note in notes):
            assert np.ptp(model.predict_proba(X)[:, 1]) < 0.2
        else:
            assert np.ptp(model.predict_proba(X)[:, 1]) > 0.05
