"""Noisy quadratics: minimisers, shrinkage, covariance."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.solvers.local.quadratic import NoisyQuadratic, interval


def symmetric(rng, scale, d):
    upper = np.triu(rng.normal(size=(d, d))) * scale
    return upper + np.triu(upper, 1).T


def exact(hessian, slope):
    return NoisyQuadratic(hessian, slope, np.zeros_like(hessian), np.zeros_like(slope))


def test_without_noise_it_is_the_minimiser():
    hessian, slope = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, -1.0])
    estimate = exact(hessian, slope).minimise(10.0)
    assert estimate.weights == pytest.approx(np.linalg.solve(hessian, slope))
    assert estimate.kept == 1.0
    assert estimate.covariance == pytest.approx(np.zeros((2, 2)))


def test_in_a_ball_nothing_feasible_is_better():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    hessian, slope = root @ root.T, rng.normal(size=3) * 5
    estimate = exact(hessian, slope).minimise(0.7)
    assert np.linalg.norm(estimate.weights) == pytest.approx(0.7)
    assert estimate.covariance is None
    assert "radius" in estimate.reason

    def objective(w):
        return 0.5 * np.einsum("ij,jk,ik->i", w, hessian, w) - w @ slope

    others = rng.normal(size=(20_000, 3))
    others *= 0.7 * rng.random((20_000, 1)) / np.linalg.norm(others, axis=1, keepdims=True)
    assert objective(estimate.weights[None])[0] <= objective(others).min() + 1e-12


def test_the_covariance_of_a_gradient():
    rng = np.random.default_rng(1)
    variance = np.array([[0.1, 0.3, 0.2], [0.3, 0.4, 0.05], [0.2, 0.05, 0.2]])
    slope_variance, w = np.array([0.2, 0.1, 0.3]), np.array([1.0, -2.0, 0.5])
    quadratic = NoisyQuadratic(np.eye(3), np.zeros(3), variance, slope_variance)
    errors = [
        symmetric(rng, np.sqrt(variance), 3) @ w - rng.normal(size=3) * np.sqrt(slope_variance) for _ in range(10_000)
    ]
    assert np.cov(np.transpose(errors)) == pytest.approx(quadratic.gradient_covariance(w), abs=0.1)


@pytest.mark.parametrize(("d", "slope_noise"), [(3, 0.2), (8, 0.2), (8, 0.1), (8, 0.03)])
def test_shrinking_helps_on_average_and_never_leaves_the_ball(d, slope_noise):
    """Where the signal is weak or clear; in between weights are cut to 0 that would have helped."""
    rng = np.random.default_rng(2)
    truth, hessian, noise = np.full(d, 1.0 / np.sqrt(d)), np.eye(d) * 0.3, 0.03
    gain = []
    for _ in range(300):
        noisy = hessian + symmetric(rng, noise, d)
        slope = hessian @ truth + rng.normal(size=d) * slope_noise
        quadratic = NoisyQuadratic(noisy, slope, np.full((d, d), noise**2), np.full(d, slope_noise**2))
        estimate = quadratic.minimise(3.0)
        assert np.linalg.norm(estimate.weights) <= 3.0 * (1 + 1e-12)
        gain.append(((estimate.unshrunk - truth) ** 2).sum() - ((estimate.weights - truth) ** 2).sum())
    assert np.mean(gain) > 0.0


def test_public_entries_are_not_shrunk():
    hessian = np.array([[0.5, 0.01], [0.01, 0.9]])
    variance = np.array([[0.1, 0.1], [0.1, 0.0]])
    steady = NoisyQuadratic(hessian, np.zeros(2), variance, np.ones(2)).shrunk_hessian()
    assert steady.hessian[1, 1] == 0.9
    assert steady.hessian[0, 1] == 0.0


@pytest.mark.parametrize("spread", [(1.0,), (1.0, 1.0), (1.0, 0.1, 0.1), (1.0,) * 10])
def test_weights_of_noise_alone_are_hardly_ever_kept(spread):
    rng, d = np.random.default_rng(3), len(spread)
    hessian, noise = np.eye(d), np.array(spread)
    kept = [
        NoisyQuadratic(hessian, rng.normal(size=d) * np.sqrt(noise), np.zeros((d, d)), noise).minimise(100.0).kept
        for _ in range(3000)
    ]
    assert 10 <= np.count_nonzero(kept) <= 60  # 1% of them, or a little more where one direction dominates
    assert np.quantile(kept, 0.995) < 0.4


def test_clear_weights_are_shrunk_by_their_noise_alone():
    quadratic = NoisyQuadratic(np.eye(3), np.full(3, 10.0), np.zeros((3, 3)), np.ones(3))
    assert quadratic.minimise(100.0).kept == pytest.approx(1.0 - 3.0 / 300.0)
    exact = NoisyQuadratic(np.eye(3), np.full(3, 1e-3), np.zeros((3, 3)), np.zeros(3))
    assert exact.minimise(100.0).kept == 1.0


def test_pure_noise_gives_weights_zero():
    quadratic = NoisyQuadratic(np.eye(2), np.array([0.1, 0.1]), np.zeros((2, 2)), np.ones(2))
    estimate = quadratic.minimise(1.0)
    assert estimate.kept == 0.0
    assert estimate.weights.tolist() == [0.0, 0.0]


def test_no_interval_where_the_curvature_is_noise():
    quadratic = NoisyQuadratic(np.diag([1.0, 0.05]), np.ones(2), np.full((2, 2), 0.01), np.ones(2))
    estimate = quadratic.minimise(100.0)
    assert estimate.covariance is None
    assert "more people" in estimate.reason


def test_a_curvature_below_zero_is_raised_to_its_noise():
    """The positive projection: without it the minimiser would run to the ball's edge the wrong way."""
    noise = np.diag([0.0, 4e-4])
    quadratic = NoisyQuadratic(np.diag([1.0, -0.005]), np.array([0.5, 0.002]), noise, np.zeros(2))
    values, _ = quadratic.floored_curvature()
    assert values.min() == pytest.approx(0.01)
    weights = quadratic.minimise(50.0).weights
    assert (weights > 0.0).all()
    assert np.linalg.norm(weights) < 1.0


def test_the_gate_of_intervals_stands_at_four_times_the_noise():
    for ratio, given in ((3.9, False), (4.1, True)):
        covariance, reason = interval(np.zeros(1), np.array([[ratio]]), np.ones((1, 1)), np.ones((1, 1)), 1.0)
        assert (covariance is not None) is given
        assert (reason is None) is given


@pytest.mark.parametrize(("ratio", "right"), [(5.0, True), (1.5, False)])
def test_intervals_cover_above_the_gate_and_not_below(ratio, right):
    """95% intervals of the delta method, all of them given: near a curvature of no noise they are off."""
    rng, h, truth, hits = np.random.default_rng(6), 1.0, 0.5, 0
    for _ in range(3000):
        curvature = h + rng.normal() * h / ratio
        slope, noise = h * truth + 0.05 * rng.normal(), np.array([[(h / ratio) ** 2]])
        one = NoisyQuadratic(np.array([[curvature]]), np.array([slope]), noise, np.array([0.05**2]))
        weights = one.slope / curvature
        spread = np.sqrt(one.gradient_covariance(weights)[0, 0]) / abs(curvature)
        hits += abs(weights[0] - truth) <= 1.96 * spread
    assert bool(0.92 <= hits / 3000 <= 0.98) == right
