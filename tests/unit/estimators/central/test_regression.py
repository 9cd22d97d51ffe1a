"""The private regressions: least squares, ridge, lasso, elastic net, Huber."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV

from dperm import (
    Bounds,
    DPElasticNet,
    DPHuberRegressor,
    DPLasso,
    DPLinearRegression,
    DPRidge,
    Ledger,
)
from dperm.data.design.target_range import TargetRange
from dperm.errors import InvalidBounds, InvalidData, InvalidInput
from dperm.solvers import GradientDescent

ALL = [DPLinearRegression, DPRidge, DPLasso, DPElasticNet, DPHuberRegressor]
BOUNDS = Bounds(features=([0, -2, 5], [10, 2, 6]), target=(-20, 40))
EXACT = GradientDescent(n_steps=500, clip=1e9, step=0.6, momentum=0.9, averaging=0.0)


def people(n=400, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform([0, -2, 5], [10, 2, 6], (n, 3))
    return X, 3.0 * X[:, 0] + 2.0 * X[:, 1] - 4.0 * X[:, 2] + 20.0 + noise * rng.normal(size=n)


def scaled(X, y):
    """Columns and target as the fit sees them."""
    return (X - [5, 0, 5.5]) / [5, 2, 0.5], (y - 10) / 30


@pytest.mark.parametrize("maker", ALL)
@pytest.mark.parametrize("bounds", [BOUNDS, None, Bounds(target=(-20, 40)), Bounds(features=BOUNDS.features)])
def test_little_noise_gives_a_good_model(maker, bounds):
    X, y = people()
    fitted = maker(epsilon=1e5, bounds=bounds, insecure_seed=0, strength=1e-3).fit(X, y)
    assert fitted.score(X, y) > 0.9
    assert fitted.coef_.shape == (3,)
    assert isinstance(fitted.intercept_, float)
    assert fitted.predict(X).shape == (400,)


@pytest.mark.parametrize(
    ("private", "trusted"),
    [
        (DPLinearRegression(), LinearRegression()),
        (DPLinearRegression(penalty="l2", strength=0.02), Ridge(alpha=400 * 0.02)),
        (DPRidge(strength=0.02), Ridge(alpha=400 * 0.02)),
        (DPLasso(strength=0.02), Lasso(alpha=0.02)),
        (DPElasticNet(strength=0.02, l1_ratio=0.3), ElasticNet(alpha=0.02, l1_ratio=0.3)),
        (DPHuberRegressor(strength=0.02, threshold=2.0), Ridge(alpha=400 * 0.02)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_without_noise_it_is_scikit_learns_model_in_the_users_units(private, trusted):
    X, y = people()
    options = {"epsilon": 1e8, "bounds": BOUNDS, "solver": EXACT, "insecure_seed": 0}
    if "residual_clip" in private.get_params():
        options["residual_clip"] = 2.0
    fitted = clone(private).set_params(**options).fit(X, y)
    X1, y1 = scaled(X, y)
    wanted = 10 + 30 * trusted.fit(X1, y1).predict(X1)
    np.testing.assert_allclose(fitted.predict(X), wanted, atol=0.02)
    np.testing.assert_allclose(fitted.coef_ * [5, 2, 0.5] / 30, trusted.coef_, atol=1e-3)
    np.testing.assert_allclose(fitted.predict(X), X @ fitted.coef_ + fitted.intercept_)


def test_the_residual_clip_is_a_huber_loss():
    X, y = people()
    y[:20] = 1e6  # clipped to 40, and still far off
    options = {"epsilon": 1e8, "bounds": BOUNDS, "solver": EXACT, "insecure_seed": 0, "strength": 0.0}
    clipped = DPRidge(residual_clip=0.05, **options).fit(X, y)
    huber = DPHuberRegressor(threshold=0.05, **options).fit(X, y)
    np.testing.assert_array_equal(clipped.coef_, huber.coef_)
    assert np.abs(clipped.coef_ - [3, 2, -4]).max() < np.abs(DPRidge(**options).fit(X, y).coef_ - [3, 2, -4]).max()


# ------------------------------------------------------------------------------------------ the target's range
@pytest.mark.parametrize("value", [1e308, -1e308])
def test_targets_outside_are_clipped_and_so_are_predictions(value):
    X, y = people()
    far, near = y.copy(), y.copy()
    far[0], near[0] = value, np.clip(value, -20, 40)
    options = {"epsilon": 5.0, "bounds": BOUNDS, "insecure_seed": 0}
    fitted = DPRidge(**options).fit(X, far)
    assert np.array_equal(fitted.coef_, DPRidge(**options).fit(X, near).coef_)
    narrow = DPRidge(epsilon=1e5, bounds=Bounds(features=BOUNDS.features, target=(0, 5)), insecure_seed=0).fit(X, y)
    predicted = narrow.predict(X)
    assert predicted.max() == 5.0 < (X @ narrow.coef_ + narrow.intercept_).max()
    assert predicted.min() >= 0.0
    assert (narrow.target_range_.low, narrow.target_range_.high) == (0.0, 5.0)


def test_rows_outside_the_bounds_are_clipped_in_prediction_as_in_training():
    X, y = people()
    fitted = DPRidge(epsilon=1e5, bounds=BOUNDS, insecure_seed=0).fit(X, y)
    outside = np.array([[99.0, 0.0, 5.5], [-1e300, 0.0, 5.5], [5.0, 1e9, -1e9]])
    inside = np.array([[10.0, 0.0, 5.5], [0.0, 0.0, 5.5], [5.0, 2.0, 5.0]])
    np.testing.assert_array_equal(fitted.predict(outside), fitted.predict(inside))
    np.testing.assert_allclose(fitted.predict(sp.csr_array(outside)), fitted.predict(inside))


def test_a_declared_row_norm_holds_in_prediction_too():
    X, y = people()
    centred, half = X - [5, 0, 5.5], np.array([5, 2, 0.5])
    bounds = Bounds(centre=0, scale=half, clip=1.0, row_norm=0.8, target=(-20, 40))
    fitted = DPRidge(epsilon=1e5, bounds=bounds, insecure_seed=0).fit(centred, y)
    lengths = np.linalg.norm(centred / half, axis=1)
    shrunk = centred * np.minimum(1.0, 0.8 / lengths)[:, None]
    assert (lengths > 0.8).any()
    np.testing.assert_allclose(fitted.predict(centred), fitted.predict(shrunk))
    np.testing.assert_allclose(fitted.predict(shrunk), shrunk @ fitted.coef_ + fitted.intercept_)
    np.testing.assert_allclose(fitted.predict(sp.csr_array(centred)), fitted.predict(centred))


def test_what_is_bought_and_what_is_declared():
    X, y = people()
    for bounds, features, target, n_bought in [
        (None, "bought", "bought", (6, 2)),
        (Bounds(target=(-20, 40)), "bought", "declared", (6, 0)),
        (Bounds(features=BOUNDS.features), "declared", "bought", (0, 2)),
        (BOUNDS, "declared", "declared", (0, 0)),
    ]:
        report = DPRidge(bounds=bounds, epsilon=3.0).fit(X, y).privacy_report_
        assert (report.public["bounds"], report.public["target_bounds"]) == (features, target)
        counts = {line.query: line.count for line in report.releases}
        assert (counts.get("quantile", 0), counts.get("target quantile", 0)) == n_bought
        assert all(line.forfeited == 0 for line in report.releases)
        assert report.guarantee.epsilon <= 3.0
        said = "the declared bounds do not come from these data" in report.guarantee.assumptions
        assert said == ("declared" in (features, target))
        rho = {line.query: line.count / (2 * line.noise_multiplier**2) for line in report.releases}
        spent = [rho.get(name, 0.0) / sum(rho.values()) for name in ("quantile", "target quantile")]
        assert spent == pytest.approx([0.1 * (count > 0) / max(1, np.count_nonzero(n_bought)) for count in n_bought])


def test_a_bought_range_encloses_most_of_the_target():
    X, y = people(n=20_000)
    fitted = DPRidge(epsilon=2.0, insecure_seed=0).fit(X, y)
    low, high = fitted.target_range_.low, fitted.target_range_.high
    assert 0.85 < ((y >= low) & (y <= high)).mean() <= 1.0
    assert high - low < 3 * (y.max() - y.min())
    assert fitted.score(X, y) > 0.8


@pytest.mark.parametrize("value", [0.0, 5.0, 1e9])
def test_a_constant_target_is_no_error(value):
    """An error after the purchase would tell about the data, and the budget is spent by then."""
    X, _ = people(n=50)
    fitted = DPRidge(epsilon=1e5, insecure_seed=0).fit(X, np.full(50, value))
    assert np.isfinite(fitted.predict(X)).all()
    assert not fitted.coef_.any() or fitted.target_range_.half_width > 0


def test_target_range():
    span = TargetRange(-1.7e308, 1.7e308)
    assert span.centre == 0.0
    assert span.scaled(np.array([1.7e308, -1.7e308, 0.0])).tolist() == [1.0, -1.0, 0.0]
    assert TargetRange(3.0, 3.0).scaled(np.array([1.0, 3.0, 9.0])).tolist() == [0.0, 0.0, 0.0]
    assert TargetRange(3.0, 3.0).clip(np.array([1.0, 9.0])).tolist() == [3.0, 3.0]


def test_no_intercept_means_a_line_through_zero():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (3000, 3))
    bounds = Bounds(features=(0, 1), target=(0, 6))
    fitted = DPLinearRegression(epsilon=1e6, bounds=bounds, fit_intercept=False, insecure_seed=0).fit(X, X @ [2, 2, 1])
    assert fitted.intercept_ == 0.0
    assert fitted.coef_ == pytest.approx([2.0, 2.0, 1.0], abs=0.01)


@pytest.mark.parametrize("skewed", [lambda r: r.random(5000) < 0.27, lambda r: r.exponential(1.0, 5000)])
def test_a_skewed_target_is_not_pulled_to_its_median(skewed):
    """With little noise the clip is wide, so that clipped residuals do not move the intercept off the mean."""
    rng = np.random.default_rng(1)
    y = np.asarray(skewed(rng), float)
    bounds = Bounds(centre=0, scale=1, clip=4, target=(0, 10))
    fitted = DPRidge(epsilon=4.0, bounds=bounds, insecure_seed=0).fit(rng.normal(size=(5000, 3)), y)
    assert fitted.intercept_ == pytest.approx(y.mean(), abs=0.1 * y.std())


def test_bought_bounds_are_of_use_with_few_rows():
    """Levels of quantiles nearer to the end than their own error once came out anywhere on the grid."""
    scores = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(2000, 5))
        y = X @ [1.0, -1.0, 0.5, 0.0, 0.0] + rng.normal(size=2000)
        scores.append(DPRidge(epsilon=1.0, insecure_seed=seed).fit(X, y).score(X, y))
    assert min(scores) > 0.4


# ------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (DPRidge(residual_clip=None), "residual_clip must be a positive number"),
        (DPRidge(residual_clip=-1), "residual_clip must be"),
        (DPLasso(strength=-1), "strength must be 0 or more"),
        (DPElasticNet(l1_ratio=3), "l1_ratio must"),
        (DPLinearRegression(penalty="l3"), "penalty must be one of"),
        (DPHuberRegressor(threshold=0), "threshold must be"),
        (DPHuberRegressor(verbose="yes"), "verbose must be True or False"),
    ],
)
def test_bad_parameters_cost_nothing(model, words):
    ledger = Ledger()
    before = ledger.entries()
    with pytest.raises(InvalidInput, match=words):
        model.set_params(ledger=ledger, bounds=BOUNDS).fit(*people())
    assert ledger.entries() == before


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.array(["Smith"] * 400), "y must hold one number per row"),
        (np.array(["Smith"] * 400, object), "X and y must hold numbers only"),
        (np.full(400, 1j), "Complex data not supported"),
        (np.full(400, np.nan), "y contains NaN"),
        (np.zeros((400, 2)), "y should be a 1d array"),
        (None, "requires y to be passed"),
    ],
)
def test_bad_targets(y, words):
    with pytest.raises(InvalidData, match=words) as raised:
        DPRidge(bounds=BOUNDS).fit(people()[0], y)
    assert "Smith" not in str(raised.value)


def test_bounds_that_do_not_fit():
    with pytest.raises(InvalidBounds, match="target bounds contradict"):
        Bounds(features=(0, 1), target=(2, 1))
    with pytest.raises(InvalidBounds, match="hi has 2 entries for 3 columns"):
        DPRidge(bounds=Bounds(features=(0, [1, 2]), target=(0, 1))).fit(*people())


# ------------------------------------------------------------------------------------------ the rest of the contract
@pytest.mark.parametrize("solver", ["gradient", "newton", "blocks", "peel"])
def test_other_solvers_take_the_squared_loss(solver):
    X, y = people()
    fitted = DPRidge(epsilon=1e4, bounds=BOUNDS, solver=solver, insecure_seed=0).fit(X, y)
    assert fitted.score(X, y) > 0.5


def test_sparse_input_gives_the_same_model():
    X, y = people()
    X[np.random.default_rng(1).random(X.shape) < 0.5] = 0.0
    fits = [
        DPRidge(epsilon=3.0, bounds=BOUNDS, insecure_seed=0).fit(form(X), y).coef_
        for form in (np.asarray, sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, sp.lil_array)
    ]
    for other in fits[1:]:
        assert np.array_equal(other, fits[0])


def test_a_search_charges_every_inner_fit():
    X, y = people()
    ledger = Ledger()
    GridSearchCV(DPRidge(bounds=BOUNDS, ledger=ledger), {"strength": [1e-3, 1e-1]}, cv=2).fit(X, y)
    assert ledger.spent().n_fits == 2 * 2 + 1


def test_progress_shows_steps_only(capsys):
    DPRidge(bounds=BOUNDS, verbose=True, solver=GradientDescent(n_steps=20)).fit(*people())
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"step {k} of 20" for k in range(2, 21, 2)]
