"""Privacy loss distributions from profiles: upper bounds, close to the truth, on cases that can be computed exactly."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from dperm.privacy.accounting import composition, gdp, profiles
from dperm.privacy.accounting.events import Composed, Gaussian, Laplace, RandomizedResponse, Repeat, Selection


def binomial_delta(epsilon, n, p, eps):
    """Exact delta of n two-way randomized responses."""
    k = np.arange(n + 1)
    loss = (2 * k - n) * epsilon
    return float((stats.binom.pmf(k, n, p) * np.maximum(0.0, -np.expm1(eps - loss))).sum())


@pytest.mark.parametrize(("n", "epsilon"), [(1, 1.0), (5, 0.7), (50, 0.2), (500, 0.05)])
def test_randomized_response_is_exact(n, epsilon):
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    leaves = {RandomizedResponse(epsilon): n}
    for eps in (0.0, 0.3, 0.9, 2.0):
        true = binomial_delta(epsilon, n, p, eps)
        claimed = profiles.upper_delta(leaves, eps)
        assert claimed >= true * (1 - 1e-9)
        assert claimed <= true * 1.02 + 1e-9
    delta = 1e-6
    if binomial_delta(epsilon, n, p, 0.0) > delta:
        true = brentq(lambda e: binomial_delta(epsilon, n, p, e) - delta, 0.0, n * epsilon)
        assert true <= profiles.upper_epsilon(leaves, delta) <= true + 0.01


def two_point(span, t):
    """Losses and probabilities (under P) of the pair with losses t and t - span."""
    high = (1 - math.exp(t - span)) / (1 - math.exp(-span))
    return ((t, high), (t - span, 1 - high))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("span", [0.2, 1.0, 3.0])
def test_selection_dominates_every_pair_of_its_range(n, span):
    """Brute force over products of two-point pairs, a different place of the interval at every step."""
    places = np.linspace(0.02, 0.98, 7) * span
    leaves = {Selection(2.0 / span): n}
    for eps in np.linspace(0.0, n * span, 9):
        worst = 0.0
        for ts in product(places, repeat=n):
            outcomes = [(0.0, 1.0)]
            for t in ts:
                outcomes = [(loss + more, q * r) for loss, q in outcomes for more, r in two_point(span, t)]
            worst = max(worst, sum(q * max(0.0, 1 - math.exp(eps - loss)) for loss, q in outcomes))
        assert profiles.upper_delta(leaves, float(eps)) >= worst * (1 - 1e-9)


def test_one_selection_has_the_closed_form():
    span = 0.8
    for eps in (0.0, 0.2, 0.5):
        closed = (1 - math.exp((eps - span) / 2)) ** 2 / (1 - math.exp(-span))
        assert profiles.upper_delta({Selection(2 / span): 1}, eps) == pytest.approx(closed, rel=1e-3)


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_gaussians_agree_with_the_closed_form(mu):
    leaves = {Gaussian(1 / mu): 1}
    for eps in (0.0, 0.5, 2.0):
        true = gdp.delta_of(mu, eps)
        assert true * (1 - 1e-9) <= profiles.upper_delta(leaves, eps) <= true * 1.01 + 1e-9


def test_gaussian_next_to_laplace_against_quadrature():
    mu, shift = 0.7, 0.5
    x = np.linspace(-60, 60, 400_001)
    density = 0.5 * np.exp(-np.abs(x))
    loss = np.clip(np.abs(x - shift) - np.abs(x), -shift, shift)
    weight = density * (x[1] - x[0])
    for eps in (0.0, 0.6, 1.5):
        values, where = np.unique(np.round(loss, 4), return_inverse=True)
        mass = np.bincount(where.ravel(), weight)
        true = sum(m * gdp.delta_of(mu, eps - v) for v, m in zip(values, mass, strict=True))
        claimed = profiles.upper_delta({Gaussian(1 / mu): 1, Laplace(1 / shift): 1}, eps)
        assert true * (1 - 1e-3) <= claimed <= true * 1.02


def test_the_smaller_bound_is_reported():
    few = Composed((Selection(8.0), Gaussian(8.0)))
    bound = composition.epsilon(few, 1e-6)
    assert bound.method == "privacy loss distribution"
    assert bound.epsilon <= composition.renyi_epsilon(few, 1e-6)
    many = Composed((Repeat(Selection(45.0), 50), Repeat(Gaussian(45.0), 50)))
    assert composition.epsilon(many, 1e-6).method == "Renyi"


def test_a_profile_that_is_too_low_is_detected(monkeypatch):
    honest = profiles.leaf_profile
    monkeypatch.setattr(profiles, "leaf_profile", lambda leaf: lambda e: 0.8 * honest(leaf)(e))
    profiles._compose.cache_clear()
    try:
        with pytest.raises(AssertionError):
            test_selection_dominates_every_pair_of_its_range(1, 1.0)
    finally:
        monkeypatch.undo()
        profiles._compose.cache_clear()


def test_nothing_is_claimed_beyond_the_precision_of_the_transform():
    assert profiles.upper_epsilon({RandomizedResponse(0.1): 100}, 1e-16) == math.inf
    assert profiles.upper_epsilon({Selection(1e-3): 2}, 1e-6) == math.inf
