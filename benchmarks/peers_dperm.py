"""Worker in dperm's own environment: dperm, two published algorithms, and the references without privacy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from peers_data import Problem
from peers_worker import Order, Outcome, main
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LassoCV, LogisticRegression

from dperm import Bounds, DPLasso, DPLogisticRegression
from dperm.privacy.accounting import gdp


def private(problem: Problem, X: Any, y: Any, order: Order) -> Outcome:
    """Fit dperm with public facts only; its noise is fresh in every fit, independent of the order's seed."""
    logistic = problem.task == "logistic"
    bounds = Bounds(
        centre=0.0,
        scale=1.0,
        clip=problem.clip,
        row_norm=problem.row_norm if math.isfinite(problem.row_norm) else None,
        classes=(0, 1) if logistic else None,
        target=None if logistic else problem.target,
    )
    estimator = DPLogisticRegression if logistic else DPLasso
    model = estimator(
        epsilon=order.epsilon,
        delta=order.delta,
        bounds=bounds,
        neighbours=order.options["neighbours"],
        solver=order.options["solver"],
    ).fit(X, y.astype(int) if logistic else y)
    intercept = float(np.ravel(model.intercept_)[0])
    return Outcome.linear(np.ravel(model.coef_), intercept, mu=model.privacy_report_.planned.mu)


def approximate_minima(problem: Problem, X: Any, y: Any, order: Order) -> Outcome:
    """Approximate minima perturbation without hyperparameters (Iyengar et al. 2019, Algorithm 1 and section 5).

    A hundredth of the budget covers that the minimum is approximate (gradient norm at most 1/n^2). The rest is shared
    between noise and curvature by the paper's rule. Rows lie in the unit ball: slopes are at most 1, and so are
    curvatures. They are at most 1/4 in fact, but the weaker penalty that this allows costs 1 to 6 points of accuracy on
    breast_cancer and gains at most 1 on a9a.
    """
    rng = np.random.default_rng(order.seed)
    rows, n = problem.unit_rows(X), len(y)
    finish_epsilon, finish_delta = 0.01 * order.epsilon, 0.01 * order.delta
    main_epsilon, main_delta = order.epsilon - finish_epsilon, order.delta - finish_delta
    share = max(min(0.887 + 0.019 / main_epsilon**0.373, 0.99), 1.0 - 0.99 / main_epsilon)
    noise_epsilon = share * main_epsilon
    penalty = 2.0 / (main_epsilon - noise_epsilon)  # a record's Hessian has rank 1, two records differ
    gradient_norm = 1.0 / n**2
    noise = (2.0 / n) * (1.0 + math.sqrt(2.0 * math.log(1.0 / main_delta))) / noise_epsilon
    finish = (n * gradient_norm / penalty) * (1.0 + math.sqrt(2.0 * math.log(1.0 / finish_delta))) / finish_epsilon
    tilt = noise * rng.standard_normal(rows.shape[1])

    def objective(w: Any) -> tuple[float, Any]:
        z = rows @ w
        value = np.mean(np.logaddexp(0.0, z) - y * z) + penalty / (2.0 * n) * (w @ w) + tilt @ w
        return float(value), rows.T @ (expit(z) - y) / n + penalty / n * w + tilt

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": gradient_norm / 10.0}
    w = minimize(objective, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    return Outcome.linear(*problem.from_unit(w + finish * rng.standard_normal(len(w))))


def adaptive_moments(problem: Problem, X: Any, y: Any, order: Order) -> Outcome:
    """AdaSSP (Wang 2018, Algorithm 2): ridge regression from noisy moments, its penalty from a noisy eigenvalue.

    The paper gives a third of epsilon and delta to each of three releases. Here each has a third of mu squared, which
    is what Gaussian noise composes to exactly: in the paper's formulas sqrt(log(6/delta)) / (epsilon/3) becomes
    ``noise``. Labels are predicted by least squares as -1 and 1.
    """
    rng = np.random.default_rng(order.seed)
    mu = gdp.mu_of(order.epsilon, order.delta)
    rows = problem.unit_rows(problem.clipped(X))
    targets = np.clip((y - problem.middle) / problem.half_range, -1.0, 1.0)
    # Rows have norm at most 1 and targets lie in [-1, 1]. If one record is emptied (zero-out), X'X changes by x x',
    # which moves its upper triangle by at most 1 and its least eigenvalue by at most 1; X'y changes by y x, of norm at
    # most 1. (If it is replaced by another one, the three move by at most sqrt(2), 1 and 2.)
    noise = math.sqrt(3.0) / mu
    d = rows.shape[1]
    moments = rows.T @ rows
    least = float(np.linalg.eigvalsh(moments)[0]) + noise * rng.standard_normal()
    least = max(least - noise * math.sqrt(math.log(6.0 / order.delta)), 0.0)  # below the true one, almost surely
    failure = 0.05  # the paper's rho: chance that the noise of X'X has a larger norm than the penalty allows for
    penalty = max(noise * math.sqrt(d * math.log(2.0 * d**2 / failure)) - least, 0.0)
    upper = np.triu(noise * rng.standard_normal((d, d)))
    released = moments + upper + np.triu(upper, 1).T
    products = rows.T @ targets + noise * rng.standard_normal(d)
    coef, intercept = problem.from_unit(np.linalg.solve(released + penalty * np.eye(d), products))
    if problem.task == "logistic":
        return Outcome.linear(coef, intercept, mu=mu)
    return Outcome.linear(problem.half_range * coef, problem.middle + problem.half_range * intercept, mu=mu)


def without_privacy(problem: Problem, X: Any, y: Any, order: Order) -> Outcome:
    """scikit-learn: logistic regression with its defaults, the lasso with its strength chosen by cross-validation."""
    if problem.task == "logistic":
        model = LogisticRegression(max_iter=5000).fit(X, y)
        return Outcome.linear(model.coef_[0], float(model.intercept_[0]))
    lasso = LassoCV(cv=5, random_state=order.seed).fit(X, y)
    return Outcome.linear(lasso.coef_, float(lasso.intercept_))


def null(problem: Problem, X: Any, y: Any, order: Order) -> Outcome:
    """Predict the same for everybody: the larger class, or the mean."""
    mean = float(np.mean(y))
    intercept = math.log(mean / (1.0 - mean)) if problem.task == "logistic" else mean
    return Outcome.linear(np.zeros(X.shape[1]), intercept)


def fit(problem: Problem, X: Any, y: Any, order: Order) -> Outcome:
    """Run one fit of the method that the order names."""
    methods = {
        "amp": approximate_minima,
        "adassp": adaptive_moments,
        "scikit-learn": without_privacy,
        "null": null,
    }
    return methods.get(order.method, private)(problem, X, y, order)


if __name__ == "__main__":
    main(fit, warm_up=True)
