"""Posterior odds of a record: how often they exceed e^epsilon, against closed forms and attackers that attain it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.events import Composed, Gaussian, Laplace, Repeat
from dperm.privacy.accounting.guarantee import Accounting, Guarantee
from dperm.privacy.accounting.posterior import (
    PosteriorBelief,
    exceedance_from_curve,
    exceedance_of_gaussian,
    posterior_belief,
)

CASES = [(epsilon, delta) for epsilon in (0.1, 1.0, 3.0, 8.0) for delta in (1e-4, 1e-6, 1e-9)]


def worst_attacker(mu, epsilon):
    """Probability that the odds exceed e^epsilon, for an attacker who sees only whether the loss exceeds some t."""

    def excess(t):
        return ndtr(mu / 2 - t / mu) - math.exp(epsilon) * ndtr(-mu / 2 - t / mu)

    t = brentq(excess, 0.0 if excess(0.0) < 0 else -20.0, epsilon)
    return float(ndtr(mu / 2 - t / mu))


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_gaussian_releases_attain_the_bound(epsilon, delta):
    mu = gdp.mu_of(epsilon, delta)
    bound, tail = exceedance_of_gaussian(mu, epsilon), float(ndtr(-epsilon / mu + mu / 2))
    assert bound == pytest.approx(worst_attacker(mu, epsilon), rel=1e-5)
    assert bound > 2 * tail > 4 * delta  # neither delta nor the tail of one release is a bound for all attackers


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_points_of_a_curve_bound_it_too(epsilon, delta):
    mu = gdp.mu_of(epsilon, delta)
    points = [(gdp.epsilon_of(mu, 10.0**-k), 10.0**-k) for k in range(3, 13)]
    exact = worst_attacker(mu, epsilon)
    assert exact * (1 - 1e-9) <= exceedance_from_curve(points, epsilon) <= 2.5 * exact


def test_both_records_and_both_directions_of_a_discrete_pair():
    """Counted on two laws over three answers: exactly the mass of answers whose odds exceed e^epsilon."""
    P, Q = (0.6, 0.3, 0.1), (0.7, 0.285, 0.015)

    def delta(e, P, Q):
        return sum(max(0.0, p - math.exp(e) * q) for p, q in zip(P, Q, strict=True))

    for epsilon in (0.01, 0.04, 0.1, 0.5, 1.5):
        points = [(k / 1000, max(delta(k / 1000, P, Q), delta(k / 1000, Q, P))) for k in range(2000)]
        for one, other in ((P, Q), (Q, P)):
            exceeds = [p > math.exp(epsilon) * q for p, q in zip(one, other, strict=True)]
            for truth in (one, other):
                mass = sum(p for p, over in zip(truth, exceeds, strict=True) if over)
                assert mass <= exceedance_from_curve(points, epsilon)


def guarantee_of(accounting, **changes):
    return replace(Guarantee(accounting.epsilon, accounting.delta, "replace-one"), **changes)


def test_a_guarantee_without_its_curve_states_twice_the_factor():
    planned = Accounting.of(Repeat(Gaussian(40.0), 100), 1e-6)
    own = posterior_belief(guarantee_of(planned), planned)
    assert (own.epsilon, own.exceedance) == (planned.epsilon, exceedance_of_gaussian(planned.mu, planned.epsilon))
    for other in (guarantee_of(planned, epsilon=1.5), guarantee_of(planned, delta=1e-7)):
        found = posterior_belief(other, planned)
        assert found.epsilon == pytest.approx(other.epsilon + math.log(2.0))
        assert found.exceedance == pytest.approx(2.0 * other.delta)
    assert posterior_belief(guarantee_of(planned, delta=0.0), planned) == PosteriorBelief(planned.epsilon, 0.0)


def test_mixed_releases_use_their_curve():
    planned = Accounting.of(Composed((Repeat(Gaussian(40.0), 20), Laplace(30.0))), 1e-6)
    assert planned.mu is None
    found = posterior_belief(guarantee_of(planned), planned)
    assert found.epsilon == planned.epsilon
    assert planned.delta < found.exceedance < 1e-3
    steep = replace(planned, curve=((planned.epsilon, planned.delta),))  # no statement below: twice the factor again
    assert posterior_belief(guarantee_of(planned), steep).epsilon > planned.epsilon


def test_the_posterior_probability_follows_from_the_odds():
    assert PosteriorBelief(math.log(3.0), 0.0).after(0.5) == pytest.approx(0.75)
    assert PosteriorBelief(math.log(3.0), 0.0).after(0.1) == pytest.approx(0.25)
    assert exceedance_of_gaussian(0.5, 0.0) == 1.0
