"""Noisy quartics: minimisers, covariance, limits on the change of curvature."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy import optimize

from dperm.solvers.local.quadratic import NoisyQuadratic
from dperm.solvers.local.quartic import NoisyQuartic


def quartic(d, seed=0, noise=0.0, c2=0.123, c4=-0.0037):
    """The surrogate's moments of some rows in the unit ball, with a slope that asks for weights of length 1.5."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(300, d))
    a /= np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1.0)
    index = np.array(list(combinations_with_replacement(range(d), 4)))
    hessian, fourth = 2.0 * c2 * a.T @ a / len(a), c4 * np.prod(a[:, index], axis=2).mean(axis=0)
    w = 1.5 * np.ones(d) / np.sqrt(d)
    s = a @ w
    slope = (a * (2.0 * c2 * s + 4.0 * c4 * s**3)[:, None]).mean(axis=0)
    variance = np.full((d, d), (c2 * noise) ** 2)
    flat = NoisyQuadratic(hessian, slope, variance, np.full(d, noise**2))
    return NoisyQuartic(flat, index, fourth, np.full(len(index), (c4 * noise) ** 2), 16.0 * c4 / (2.0 * c2)), w, a


@pytest.mark.parametrize("d", [1, 2, 4])
def test_without_noise_it_is_the_minimiser(d):
    one, truth, _ = quartic(d)
    estimate = one.minimise(10.0)
    assert estimate.weights == pytest.approx(truth, rel=1e-6)
    assert estimate.unshrunk == pytest.approx(truth, rel=1e-6)
    assert estimate.covariance == pytest.approx(np.zeros((d, d)))
    flat = one.quadratic.minimise(10.0).weights  # the quadratic part alone does not have it
    assert np.abs(flat - truth).max() > 0.02


def test_in_a_ball_nothing_feasible_is_better():
    one, _, a = quartic(3)
    found = one.minimise(0.8).weights
    assert np.linalg.norm(found) == pytest.approx(0.8)

    def objective(w):
        s = a @ w
        return (0.123 * s**2 - 0.0037 * s**4).mean() - one.quadratic.slope @ w

    ball = {"type": "ineq", "fun": lambda w: 0.64 - w @ w}
    best = optimize.minimize(objective, np.zeros(3), constraints=[ball], method="SLSQP", options={"ftol": 1e-12})
    assert objective(found) <= best.fun + 1e-7


def test_the_local_quadratic_has_the_quartics_gradient():
    one, _, a = quartic(3)
    w = np.array([0.3, -0.7, 1.1])
    s = a @ w
    gradient = (a * (2.0 * 0.123 * s - 4.0 * 0.0037 * s**3)[:, None]).mean(axis=0)
    assert one.local_quadratic(w).hessian @ w == pytest.approx(gradient)


def test_the_covariance_of_the_gradient():
    rng = np.random.default_rng(1)
    one, w, _ = quartic(2, noise=0.5)
    noises = []
    for _ in range(3000):
        upper = np.triu(rng.normal(size=(2, 2))) * np.sqrt(one.quadratic.hessian_variance)
        off = (upper + np.triu(upper, 1).T) @ w - rng.normal(size=2) * np.sqrt(one.quadratic.slope_variance)
        entries = rng.normal(size=len(one.index)) * np.sqrt(one.variances)
        tensor = NoisyQuartic(one.quadratic, one.index, entries, one.variances, one.lowest)
        noises.append(off + 4.0 * tensor._along(w) @ w)
    covariance = one.gradient_covariance(w)
    assert np.cov(np.transpose(noises)) == pytest.approx(covariance, rel=0.12, abs=0.06 * covariance.max())
    fourth = covariance - one.quadratic.gradient_covariance(w)
    assert np.linalg.eigvalsh(fourth).min() > 0.0


def test_a_wild_fourth_moment_is_cut_to_what_it_can_be():
    one, truth, _ = quartic(2)
    for factor in (-50.0, 50.0):
        wild = NoisyQuartic(one.quadratic, one.index, factor * one.values, one.variances, one.lowest)
        found = wild.minimise(10.0).weights
        assert np.isfinite(found).all()
        assert np.linalg.norm(found) <= 1.4 * np.linalg.norm(truth)


def test_no_interval_without_a_clear_minimiser():
    one, _, _ = quartic(2)
    estimate = NoisyQuartic(one.quadratic, one.index, 50.0 * one.values, one.variances, one.lowest).minimise(10.0)
    assert estimate.covariance is None
    assert "more people" in estimate.reason or "radius" in estimate.reason
    noisy, _, _ = quartic(2, noise=2.0)
    assert noisy.minimise(10.0).covariance is None
