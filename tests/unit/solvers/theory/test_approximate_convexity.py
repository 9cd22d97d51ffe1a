"""Minimising nearly convex functions, and population risk."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.solvers.theory import approximate_convexity as theory


def test_lemma_3_and_its_inverse_agree():
    for p in (2, 10, 1000):
        for conditioning in (1.0, 7.0):
            for error in (0.3, 1e-3, 1e-6):
                deviation = theory.tolerated_deviation(error, p, conditioning)
                assert theory.near_convex_error(deviation, p, conditioning) == pytest.approx(error)
                assert theory.near_convex_error(2.0 * deviation, p, conditioning) > error


def test_theorem_5_takes_the_second_branch_for_small_errors():
    """Below 16348 mu / p^1.5 the promise is 16348 p times the deviation, O(p alpha)."""
    for p in (2, 50):
        deviation = 1e-9
        assert theory.near_convex_error(deviation, p, 1.0) == pytest.approx(16348 * p * deviation)


@pytest.mark.parametrize("radius", [0.5, 2.0])
def test_the_conditioning_of_a_ball_is_that_of_its_derivatives(radius):
    """Central differences of F(x) = |x|^2 - r^2 at points of the sphere."""
    rng, step = np.random.default_rng(0), 1e-4
    for _ in range(5):
        x = rng.normal(size=3)
        x *= radius / np.linalg.norm(x)

        def value(y):
            return float(y @ y) - radius**2

        eye = step * np.eye(3)
        gradient = np.array([(value(x + e) - value(x - e)) / (2 * step) for e in eye])
        second = np.array([(value(x + e) - 2 * value(x) + value(x - e)) / step**2 for e in eye])
        assert np.abs(second).max() / np.linalg.norm(gradient) == pytest.approx(
            theory.ball_conditioning(radius), rel=1e-4
        )


# ------------------------------------------------------------------------------------------ population risk
def ridge_excess(n, runs, penalty, rng):
    """Means of x in [-1, 1] by (w - x)^2/2 + penalty w^2/2: empirical and population excess of shaken weights."""
    found = []
    for _ in range(runs):
        x = rng.choice([-1.0, 1.0], n, p=[0.4, 0.6])
        best, truth = x.mean() / (1 + penalty), 0.2 / (1 + penalty)
        w = best + 0.05 * rng.choice([-1, 1])
        curvature = 1 + penalty
        found.append((curvature * (w - best) ** 2 / 2, curvature * (w - truth) ** 2 / 2))
    return np.array(found)


@pytest.mark.parametrize("n", [20, 500])
def test_the_population_risk_is_below_its_bound(n):
    penalty, failure = 0.5, 0.1
    found = ridge_excess(n, 2_000, penalty, np.random.default_rng(n))
    lipschitz = 2.0 + penalty  # |w - x| + penalty |w| with w and x in [-1, 1]
    bounds = [theory.population_bound(empirical, lipschitz, 1.0 + penalty, n, failure) for empirical, _ in found]
    assert np.mean(found[:, 1] > bounds) <= failure
    for empirical, bound in zip(found[:50, 0], bounds[:50], strict=True):
        assert bound > empirical


def test_a_penalty_would_never_do_better_than_the_trivial_bound():
    """Adding mu |w|^2 / 2 to a convex loss and applying the lemma gives at least L radius, whatever mu and n."""
    for mu in np.geomspace(1e-9, 1e3, 50):
        assert theory.population_bound(mu / 2, 1.0 + mu, mu, 10**12, 0.1) + mu / 2 >= 1.0


@pytest.mark.parametrize("n", [50, 2_000])
def test_losses_of_a_linear_function_stay_below_their_bound(n):
    """Absolute losses |<w, y> - z| / 2, not strongly convex, with the best of many weights on n people."""
    rng, failure, runs = np.random.default_rng(n), 0.1, 60
    angles = np.linspace(0.0, 2.0 * np.pi, 40)
    weights = np.vstack([r * np.column_stack([np.cos(angles), np.sin(angles)]) for r in (0.0, 0.3, 0.6, 1.0)])

    def losses(count):
        y = rng.normal(size=(count, 2))
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        z = np.sign(y[:, 0] + 0.5 * rng.normal(size=count))
        return (np.abs(y @ weights.T - z[:, None]) / 2.0).mean(axis=0)

    risks = losses(400_000)
    off = []
    for _ in range(runs):
        means = losses(n)
        chosen = int(np.argmin(means))
        off.append(risks[chosen] - risks.min())
    bound = theory.population_bound_linear(0.0, 0.5, 1.0, n, failure)
    assert np.mean(np.array(off) > bound) <= failure
    assert theory.population_bound_linear(0.01, 0.5, 1.0, n, failure) == pytest.approx(bound + 0.01)
    assert bound == pytest.approx(theory.population_bound_linear(0.0, 0.5, 1.0, 4 * n, failure) * 2.0)


def test_bad_numbers():
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        theory.population_bound(0.1, 1.0, 1.0, 10, 1.5)
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        theory.population_bound_linear(0.1, 1.0, 1.0, 10, 0.0)
    with pytest.raises(InvalidInput, match="above 0"):
        theory.ball_conditioning(0.0)
    assert math.isfinite(theory.population_bound(0.0, 1.0, 1.0, 10, 0.5))
