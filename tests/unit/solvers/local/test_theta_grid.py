"""The theta-grid: without noise it finds the minimiser of the loss; with noise the error is small."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from dperm.errors import InvalidInput
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Counts, ThetaGrid, ThetaGridTask
from dperm.solvers.local.bernstein import BernsteinPolynomial


def people(p, n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    x *= rng.uniform(0.5, 1.0, (n, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(rng.random(n) < special.expit(x @ np.array([1.3, -0.9, 0.6])[:p]), 1.0, -1.0)
    return y[:, None] * x


def excess(a, w):
    def mean(v):
        return np.logaddexp(0.0, -a @ v).mean(), -(a.T @ special.expit(-a @ v)) / len(a)

    best = optimize.minimize(mean, np.zeros(a.shape[1]), jac=True, method="L-BFGS-B").fun
    return (mean(w)[0] - best) / np.log1p(np.exp(2.0 * np.sqrt(a.shape[1])))


def test_through_takes_its_values():
    values = np.random.default_rng(0).normal(size=(3, 4))
    nodes = np.stack(np.meshgrid(np.arange(3) / 2, np.arange(4) / 3, indexing="ij"), axis=-1).reshape(-1, 2)
    assert BernsteinPolynomial.through(values)(nodes) == pytest.approx(values.ravel())


@pytest.mark.parametrize("p", [1, 2, 3])
def test_with_exact_means_the_minimiser_is_near_the_true_one(p):
    a = people(p, 4000, p)
    grid = ThetaGridTask("logistic", 1.0, p, 2.0, degree=4)
    sketch, bit = grid.task.sketch, grid.task.bit
    means = np.array([sketch.values(a, np.full(len(a), j)).mean() for j in range(sketch.size)])
    n = np.full(sketch.size, 10**15)
    unit = (means - sketch.low) / (sketch.high - sketch.low)
    counts = Counts(grid.task.digest, n, np.rint(n * (bit.floor + unit * bit.steps) / 2**32).astype(np.int64))
    assert excess(a, grid.estimate(counts)[0]) < 2e-4


def test_a_node_that_hardly_anybody_answered_hardly_counts():
    """Least squares weighted by the known noise: one node is far off, with ten answers; unweighted it would win."""
    a = people(2, 4000, 7)
    grid = ThetaGridTask("logistic", 1.0, 2, 2.0)
    sketch, bit = grid.task.sketch, grid.task.bit
    means = np.array([sketch.values(a, np.full(len(a), j)).mean() for j in range(sketch.size)])
    unit = (means - sketch.low) / (sketch.high - sketch.low)
    n = np.full(sketch.size, 10**12)
    ones = np.rint(n * (bit.floor + unit * bit.steps) / 2**32).astype(np.int64)
    right = excess(a, grid.estimate(Counts(grid.task.digest, n, ones))[0])
    n[0], ones[0] = 10, 0
    weighted = excess(a, grid.estimate(Counts(grid.task.digest, n, ones))[0])
    n[0], ones[0] = 10**12, 0
    trusted = excess(a, grid.estimate(Counts(grid.task.digest, n, ones))[0])
    assert weighted < right + 5e-4
    assert trusted > 10 * weighted


@pytest.mark.parametrize(("p", "n", "reps", "limit"), [(1, 10_000, 20, 8e-4), (2, 100_000, 8, 12e-4)])
def test_excess_risk_at_epsilon_one(p, n, reps, limit):
    found = []
    for seed in range(reps):
        a, grid = people(p, n, seed), ThetaGridTask("logistic", 1.0, p, 2.0)
        weights, minimum = grid.estimate(grid.task.collect(a, RandomSource(seed)))
        assert np.abs(weights).max() <= 2.0
        assert minimum.gap < 1e-3
        found.append(excess(a, weights))
    assert np.mean(found) < limit


def test_another_loss():
    a = people(1, 50_000, 3)
    grid = ThetaGridTask("smoothed-hinge", 2.0, 1, 2.0, degree=3)
    weights, _ = grid.estimate(grid.task.collect(a, RandomSource(3)))
    assert weights[0] > 0.5


def test_bad_input():
    for bad in ((4, 2.0, 2), (1, 0.0, 2), (1, np.inf, 2), (1, 1.0, 0)):
        with pytest.raises(InvalidInput, match="theta-grid"):
            ThetaGridTask("logistic", 1.0, *bad)
    with pytest.raises(InvalidInput, match="loss"):
        _ = ThetaGridTask("squared", 1.0, 1, 1.0).task


@pytest.mark.parametrize("length", [1.0, 1e3, 1e154, 1e155, 1e307])
def test_long_records_are_scaled_down_however_long(length):
    sketch = ThetaGrid(((1.0, 0.0), (0.6, -0.8)))
    values = sketch.values(length * np.array([[1.0, 0.0], [0.6, -0.8]]), np.array([0, 1]))
    assert values == pytest.approx([np.log1p(np.exp(-1.0))] * 2)
