"""The objective: its parts, and agreement with scikit-learn at the optimum."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn import linear_model

from dperm.errors import InvalidInput, Unsupported
from dperm.objective import (
    L1,
    L2,
    Box,
    BoxPenalty,
    ElasticNet,
    GroupL2,
    Huber,
    L1Ball,
    Logistic,
    Multinomial,
    NoPenalty,
    Objective,
    Simplex,
    SmoothedHinge,
    Squared,
)

N, D = 120, 5


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    X[:, -1] = 1.0  # the intercept
    return X, X @ np.array([1.0, -2.0, 0.0, 0.5, 0.7]) + rng.standard_t(3, size=N)


def minimise_smooth(objective: Objective, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    outputs = objective.loss.n_outputs
    shape = (X.shape[1],) if outputs == 1 else (X.shape[1], outputs)

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape)
        gradient = objective.gradient(X, y, w) + objective.penalty_gradient(w)
        return objective.value(X, y, w), gradient.ravel()

    start = np.zeros(int(np.prod(shape)))
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10})
    return found.x.reshape(shape)


def minimise_proximal(objective: Objective, X: np.ndarray, y: np.ndarray, n_steps: int = 2000) -> np.ndarray:
    step = 1.0 / (objective.loss.curvature_bound * np.linalg.norm(X, 2) ** 2 / len(X))
    w = np.zeros(X.shape[1])
    for _ in range(n_steps):
        w = objective.prox(w - step * objective.gradient(X, y, w), step)
    return w


@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(0.5), Squared(), Squared(0.5), Huber(1.0)], ids=repr)
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_gradient_is_the_derivative_of_the_mean_loss(loss, convert, data) -> None:
    X, y = data
    y = (y > 0).astype(float) if loss.task == "classification" else y
    objective, w = Objective(loss), np.linspace(-1, 1, D)
    gradient = objective.gradient(convert(X), y, w)
    for j, unit in enumerate(1e-6 * np.eye(D)):
        numeric = (objective.value(convert(X), y, w + unit) - objective.value(convert(X), y, w - unit)) / 2e-6
        assert gradient[j] == pytest.approx(numeric, abs=1e-6)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array, sparse.csr_matrix])
def test_gradient_with_several_outputs(convert, data) -> None:
    X, y = data
    labels = np.digitize(y, [-1.0, 1.0])
    objective, w = Objective(Multinomial(3), L2(0.3)), np.random.default_rng(1).normal(size=(D, 3))
    gradient = objective.gradient(convert(X), labels, w) + objective.penalty_gradient(w)
    for index in np.ndindex(D, 3):
        unit = np.zeros((D, 3))
        unit[index] = 1e-6
        up, down = (objective.value(convert(X), labels, w + sign * unit) for sign in (1, -1))
        assert gradient[index] == pytest.approx((up - down) / 2e-6, abs=1e-7)


def test_unpenalised_rows_are_left_out() -> None:
    w = np.array([[3.0, -3.0], [1.0, 2.0], [0.1, 5.0]])
    objective = Objective(Multinomial(2), L1(1.0), unpenalised=(0, 2))
    assert objective.value(np.zeros((1, 3)), [0], w) == pytest.approx(np.log(2) + 3.0)
    np.testing.assert_array_equal(objective.prox(w, 1.5), [[3.0, -3.0], [0.0, 0.5], [0.1, 5.0]])
    ridge = Objective(Logistic(), L2(2.0), unpenalised=(1,))
    np.testing.assert_array_equal(ridge.penalty_gradient([1.0, 1.0, -1.0]), [2.0, 0.0, -2.0])
    ball = Objective(Logistic(), constraint=L1Ball(1.0), unpenalised=(0,))
    np.testing.assert_array_equal(ball.prox([9.0, 2.0, 0.0], 1.0), [9.0, 1.0, 0.0])
    # Groups and bounds per row count the rows that are left.
    group = Objective(Squared(), GroupL2(1.0, ((0, 1),)), unpenalised=(0,))
    np.testing.assert_array_equal(group.prox([9.0, 0.1, 0.1], 5.0), [9.0, 0.0, 0.0])
    box = Objective(Squared(), BoxPenalty((0.0, 1.0), 2.0), unpenalised=(1,))
    np.testing.assert_array_equal(box.prox([-1.0, -1.0, -1.0], np.ones(3)), [0.0, -1.0, 1.0])


def test_everything_may_be_unpenalised() -> None:
    objective = Objective(Squared(), L1(1.0), unpenalised=(0,))
    assert objective.value([[2.0]], [0.0], [1.0]) == 2.0
    np.testing.assert_array_equal(objective.prox([1.0], 1.0), [1.0])


@pytest.mark.parametrize(
    "objective",
    [
        Objective(Squared(), L2(0.8), L1Ball(1.0)),
        Objective(Squared(), L2(0.8), Simplex(1.0)),
        Objective(Squared(), NoPenalty(), Simplex(1.0)),
        Objective(Squared(), L1(0.4), Box(-0.3, 0.9)),
        Objective(Squared(), ElasticNet(0.4, 0.5), Box((0.1, -1.0, 0.0), (0.5, 1.0, 1.0))),
    ],
    ids=repr,
)
def test_prox_with_a_penalty_and_a_constraint(objective: Objective) -> None:
    rng = np.random.default_rng(2)
    for _ in range(10):
        w, step = rng.normal(size=3), 0.7
        u = objective.prox(w, step)
        assert objective.constraint.contains(u)
        best = 0.5 * np.square(u - w).sum() + step * objective.penalty.value(u)
        for _ in range(100):
            v = objective.constraint.project(u + rng.normal(size=3) * rng.choice([0.01, 0.1, 1.0]))
            other = 0.5 * np.square(v - w).sum() + step * objective.penalty.value(v)
            assert other >= best + 0.5 * np.square(v - u).sum() - 1e-12


def test_pairs_without_an_exact_prox_are_refused() -> None:
    for penalty, constraint in ((L1(1.0), L1Ball(1.0)), (GroupL2(1.0, ((0,),)), Box(0.0, 1.0))):
        with pytest.raises(Unsupported, match=r"no exact prox"):
            Objective(Squared(), penalty, constraint).prox([1.0, 2.0], 1.0)
    with pytest.raises(InvalidInput, match="couples"):
        Objective(Squared(), constraint=L1Ball(1.0)).prox([1.0, 2.0], np.ones(2))
    with pytest.raises(Unsupported, match="no gradient"):
        Objective(Squared(), L1(1.0)).penalty_gradient([1.0])


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="loss must be"):
        Objective("logistic")
    with pytest.raises(InvalidInput, match="penalty must be"):
        Objective(Logistic(), None)
    with pytest.raises(InvalidInput, match="constraint must be"):
        Objective(Logistic(), constraint=L1(1.0))
    for bad, message in (((-1,), "0 or more"), ((1, 1), "twice"), ((0.5,), "integer"), (3, "integer")):
        with pytest.raises(InvalidInput, match=message):
            Objective(Logistic(), unpenalised=bad)
    with pytest.raises(InvalidInput, match="only 2"):
        Objective(Logistic(), unpenalised=(2,)).prox([1.0, 2.0], 1.0)
    objective = Objective(Logistic())
    with pytest.raises(InvalidInput, match=r"w must have shape \(2,\)"):
        objective.value(np.zeros((3, 2)), np.zeros(3), np.zeros(3))
    with pytest.raises(InvalidInput, match=r"w must have shape \(2, 3\)"):
        Objective(Multinomial(3)).gradient(np.zeros((3, 2)), np.zeros(3), np.zeros(2))
    with pytest.raises(InvalidInput, match="X must have shape"):
        objective.value(np.zeros(3), np.zeros(3), np.zeros(3))
    with pytest.raises(InvalidInput, match="X must have shape"):
        objective.value(np.zeros((0, 2)), np.zeros(0), np.zeros(2))
    with pytest.raises(InvalidInput, match="one shape"):
        objective.value(np.zeros((3, 2)), np.zeros(2), np.zeros(2))


def test_logistic_regression_agrees(data) -> None:
    X, y = data
    labels = (y > 0).astype(int)
    model = linear_model.LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X[:, :-1], labels)
    w = minimise_smooth(Objective(Logistic(), L2(1 / (0.5 * N)), unpenalised=(D - 1,)), X, labels)
    np.testing.assert_allclose(w, np.append(model.coef_[0], model.intercept_), atol=1e-5)
    probabilities = model.predict_proba(X[:, :-1])[:, 1]
    np.testing.assert_allclose(Logistic().inverse_link(X @ w), probabilities, atol=1e-5)


def test_multinomial_regression_agrees(data) -> None:
    X, y = data
    labels = np.digitize(y, [-1.0, 1.0])
    model = linear_model.LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X[:, :-1], labels)
    w = minimise_smooth(Objective(Multinomial(3), L2(1 / (0.5 * N)), unpenalised=(D - 1,)), X, labels)
    np.testing.assert_allclose(w[:-1], model.coef_.T, atol=1e-5)
    # Intercepts are free up to a constant.
    np.testing.assert_allclose(w[-1] - w[-1].mean(), model.intercept_ - model.intercept_.mean(), atol=1e-5)


def test_ridge_agrees(data) -> None:
    X, y = data
    model = linear_model.Ridge(alpha=3.0).fit(X[:, :-1], y)
    objective = Objective(Squared(), L2(3.0 / N), unpenalised=(D - 1,))
    expected = np.append(model.coef_, model.intercept_)
    np.testing.assert_allclose(minimise_smooth(objective, X, y), expected, atol=1e-6)
    np.testing.assert_allclose(minimise_proximal(objective, X, y), expected, atol=1e-6)


@pytest.mark.parametrize("ratio", [0.3, 1.0])
def test_lasso_and_elastic_net_agree(ratio: float, data) -> None:
    X, y = data
    model = linear_model.ElasticNet(alpha=0.3, l1_ratio=ratio, tol=1e-12, max_iter=100_000).fit(X[:, :-1], y)
    expected = np.append(model.coef_, model.intercept_)
    penalties = [ElasticNet(0.3, ratio)] + ([L1(0.3)] if ratio == 1.0 else [])
    for penalty in penalties:
        w = minimise_proximal(Objective(Squared(), penalty, unpenalised=(D - 1,)), X, y)
        np.testing.assert_allclose(w, expected, atol=1e-7)
        np.testing.assert_array_equal(w == 0, expected == 0)
    if ratio == 1.0:
        assert (expected == 0).any()


def test_non_negative_least_squares_agrees(data) -> None:
    X, y = data
    model = linear_model.LinearRegression(positive=True).fit(X[:, :-1], y)
    w = minimise_proximal(Objective(Squared(), BoxPenalty(0.0, np.inf), unpenalised=(D - 1,)), X, y)
    np.testing.assert_allclose(w, np.append(model.coef_, model.intercept_), atol=1e-6)


def test_l1_ball_is_the_lasso_at_its_norm(data) -> None:
    X, y = data
    lasso = minimise_proximal(Objective(Squared(), L1(0.3), unpenalised=(D - 1,)), X, y)
    ball = Objective(Squared(), constraint=L1Ball(np.abs(lasso[:-1]).sum()), unpenalised=(D - 1,))
    np.testing.assert_allclose(minimise_proximal(ball, X, y), lasso, atol=1e-7)


def test_huber_regression_agrees(data) -> None:
    X, y = data
    with warnings.catch_warnings():
        # The reference stops at its precision limit and says so.
        warnings.simplefilter("ignore")
        model = linear_model.HuberRegressor(epsilon=1.35, alpha=2.0, tol=1e-9, max_iter=10_000).fit(X[:, :-1], y)
    threshold, strength = 1.35 * model.scale_, 2.0 * model.scale_ / N
    expected = np.append(model.coef_, model.intercept_)
    for loss in (Huber(threshold), Squared(residual_clip=threshold)):
        w = minimise_smooth(Objective(loss, L2(strength), unpenalised=(D - 1,)), X, y)
        np.testing.assert_allclose(w, expected, atol=1e-5)
