"""Vertical methods on Adult, 66 and 57 columns: the certified model view is as good as a central fit."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from dperm.data.design import DesignMatrix, Scaling
from dperm.objective import L2, Logistic, Objective
from dperm.privacy import Budget
from dperm.solvers.vertical import AdmmSharing, ExactSharing
from dperm.testing.vertical import facts_of, run_vertical

DATA = Path(os.environ.get("DPERM_DATA", "missing")) / "a9a.npz"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="DPERM_DATA names no folder with a9a.npz")


@pytest.fixture(scope="module")
def adult():
    X, stored = sp.load_npz(DATA).astype(float).tocsr(), np.load(DATA)
    y, n = (stored["y"] > 0).astype(float), int(stored["n_train"])
    designs = {}
    # one bit in each of eight and of six groups: the row norms are public
    for name, part, norm, intercept in (("one", X[:n, :66], 8**0.5, 0.0), ("two", X[:n, 66:], 6**0.5, 1.0)):
        scaling = Scaling(np.zeros(part.shape[1]), np.ones(part.shape[1]), 1.0, norm)
        designs[name] = DesignMatrix.from_array(part.tocsc(), scaling, intercept)
    return designs, sp.hstack([X, np.ones((X.shape[0], 1))]).tocsr(), y, n


def test_certified_sharing_at_epsilon_one(adult):
    designs, X, y, n = adult
    task = AdmmSharing(
        Objective(Logistic(), L2(1e-5)),
        facts_of(designs),
        Budget(1.0, 1e-6),
        n_rounds=40,
        rho=0.1,
        step=6.0,
        limit=0.6,
        averaging=0.25,
    )
    result = run_vertical(task, designs, y[:n]).result
    weights = np.concatenate([result.weights["one"], result.weights["two"]])
    assert result.report.guarantee.epsilon <= 1.0
    assert np.mean((X[n:] @ weights > 0.0) == (y[n:] == 1.0)) > 0.842


@pytest.mark.slow
def test_exact_sharing_reaches_the_pooled_optimum_in_sixty_rounds(adult):
    designs, X, y, n = adult
    strength = np.full(124, 1e-4)
    strength[-1] = 0.0

    def cost(w):
        z = X[:n] @ w
        value = -np.mean(y[:n] * log_expit(z) + (1.0 - y[:n]) * log_expit(-z)) + 0.5 * strength @ w**2
        return value, X[:n].T @ (expit(z) - y[:n]) / n + strength * w

    best = minimize(cost, np.zeros(124), jac=True, method="L-BFGS-B", options={"maxiter": 3000, "ftol": 1e-14}).fun
    task = ExactSharing(Objective(Logistic(), L2(1e-4)), facts_of(designs), Budget(1.0, 1e-6), n_rounds=60, rho=0.1)
    result = run_vertical(task, designs, y[:n]).result
    reached = cost(np.concatenate([result.weights["one"], result.weights["two"]]))[0]
    assert reached <= best * (1.0 + 1e-3)
