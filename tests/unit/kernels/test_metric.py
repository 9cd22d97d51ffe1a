"""The minimiser of a quadratic plus an elastic net: optimality conditions, and a generic solver."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from dperm.kernels import metric


def problem(d, seed, correlated=True):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3 * d, d))
    if correlated:
        A = A + rng.normal(size=(3 * d, 1))
    return A.T @ A / (3 * d), rng.normal(size=d), rng.normal(size=d), rng.uniform(0.0, 0.6, d), rng.uniform(0.0, 0.5, d)


def metric_prox(matrix, centre, start, l1, l2, n_sweeps=100):
    return metric.metric_prox(matrix, matrix @ (start - centre), start, l1, l2, centre @ matrix @ centre, n_sweeps)


def cost(w, matrix, centre, l1, l2):
    return 0.5 * (w - centre) @ matrix @ (w - centre) + l1 @ np.abs(w) + 0.5 * l2 @ (w * w)


def generic(matrix, centre, l1, l2):
    """Both signs of every weight as variables that are not negative: smooth, with bounds."""
    d = len(centre)

    def split(u):
        w = u[:d] - u[d:]
        slope = matrix @ (w - centre) + l2 * w
        value = 0.5 * (w - centre) @ matrix @ (w - centre) + l1 @ (u[:d] + u[d:]) + 0.5 * l2 @ (w * w)
        return value, np.concatenate([slope + l1, l1 - slope])

    options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(split, np.zeros(2 * d), jac=True, bounds=[(0.0, None)] * (2 * d), options=options).x
    return found[:d] - found[d:]


@pytest.mark.parametrize("d", [1, 2, 8])
@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_a_generic_solver(d, seed):
    matrix, centre, start, l1, l2 = problem(d, seed)
    w = metric_prox(matrix, centre, start, l1, l2)
    np.testing.assert_allclose(w, generic(matrix, centre, l1, l2), atol=2e-5)


@pytest.mark.parametrize("seed", range(4))
def test_optimality(seed):
    matrix, centre, start, l1, l2 = problem(30, seed)
    w = metric_prox(matrix, centre, start, l1, l2, n_sweeps=1000)
    slope = matrix @ (w - centre) + l2 * w
    moving = w != 0.0
    assert 0 < moving.sum() < 30
    np.testing.assert_allclose(slope[moving], -l1[moving] * np.sign(w[moving]), atol=1e-7)
    assert (np.abs(slope[~moving]) <= l1[~moving] + 1e-7).all()


def test_every_sweep_goes_down():
    matrix, centre, start, l1, l2 = problem(20, 0)
    before = start.copy()
    values = [cost(metric_prox(matrix, centre, start, l1, l2, n), matrix, centre, l1, l2) for n in range(1, 20)]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(values))
    assert values[0] < cost(start, matrix, centre, l1, l2)
    assert (start == before).all()  # the caller's array is left alone


def test_simple_cases():
    matrix, centre, start, l1, l2 = problem(6, 0)
    none = np.zeros(6)
    np.testing.assert_allclose(metric_prox(matrix, centre, start, none, none, 5000), centre, atol=1e-6)
    ridge = np.linalg.solve(matrix + np.diag(l2), matrix @ centre)
    np.testing.assert_allclose(metric_prox(matrix, centre, start, none, l2, 5000), ridge, atol=1e-6)
    assert not metric_prox(matrix, centre, start, np.full(6, 1e3), l2).any()
    assert not metric_prox(matrix, none, start, l1 + 0.1, l2).any()
    diagonal = np.diag([1.0, 4.0])
    w = metric_prox(diagonal, np.array([2.0, -1.0]), np.zeros(2), np.array([0.5, 1.0]), np.array([0.0, 4.0]))
    np.testing.assert_allclose(w, [1.5, -3.0 / 8.0], rtol=1e-14)
