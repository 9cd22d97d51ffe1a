"""One sweep of the fit of which weights are not zero, against the same in plain words."""

from __future__ import annotations

import math

import numpy as np

from dperm.kernels.relevance import relevance_sweep


def test_a_sweep_updates_one_column_after_the_other():
    rng = np.random.default_rng(0)
    d = 6
    root = rng.normal(size=(d, d))
    precision, weights, means = root @ root.T + np.eye(d), 3.0 * rng.normal(size=d), rng.normal(size=d)
    spread, prior_odds = rng.uniform(0.1, 1.0, d), rng.normal(size=d)
    expected, largest = means.copy(), 0.0
    for j in range(d):
        others = np.delete(np.arange(d), j)
        best = weights[j] + precision[j, others] @ (weights - expected)[others] / precision[j, j]
        slab = spread[j] * precision[j, j] * best
        relevant = 1.0 / (1.0 + math.exp(-prior_odds[j] - 0.5 * slab**2 / spread[j]))
        largest = max(largest, abs(relevant * slab - expected[j]))
        expected[j] = relevant * slab
    residual, slab, relevance = precision @ (weights - means), np.zeros(d), np.zeros(d)
    moved = relevance_sweep(precision, residual, means, slab, relevance, spread, prior_odds)
    np.testing.assert_allclose(means, expected, rtol=1e-12)
    np.testing.assert_allclose(relevance * slab, expected, rtol=1e-12)
    np.testing.assert_allclose(residual, precision @ (weights - expected), atol=1e-10)
    assert math.isclose(moved, largest, rel_tol=1e-12)
