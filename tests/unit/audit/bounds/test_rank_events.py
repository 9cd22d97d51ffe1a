"""The exact test by one event, against values by hand and by another integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from dperm.audit.bounds.curves import Profile, epsilon_delta_curve, gaussian_curve
from dperm.audit.bounds.rank_events import RankEvent, rank_events
from dperm.errors import InvalidInput
from dperm.privacy.accounting import gdp


def test_all_of_three_beyond_all_of_three_has_the_probability_of_that_order():
    event = RankEvent(above=True, rank=1, n_absent=3, hits=3, n_present=3)
    assert event.p_value(epsilon_delta_curve(0.0, 0.0)) == pytest.approx(1 / 20, rel=5e-3)


def test_one_run_on_each_side_by_hand():
    # U is uniform and the curve is 2u up to 1/3, then (1 + u)/2: the integral is 1/9 + 5/9
    event = RankEvent(above=True, rank=1, n_absent=1, hits=1, n_present=1)
    assert event.p_value(epsilon_delta_curve(math.log(2.0), 0.0)) == pytest.approx(2 / 3, rel=5e-3)


@pytest.mark.parametrize("curve", [gaussian_curve(0.5), epsilon_delta_curve(1.0, 0.01)], ids=["gaussian", "pair"])
@pytest.mark.parametrize(("rank", "hits"), [(1, 12), (5, 30), (40, 79), (10, 65)])
def test_another_integration_gives_the_same_or_less(curve, rank, hits):
    event = RankEvent(above=True, rank=rank, n_absent=100, hits=hits, n_present=80)
    density = stats.beta(rank, 101 - rank)

    def integrand(u):
        return density.pdf(u) * stats.binom.sf(hits - 1, 80, curve(np.array([u]))[0])

    cuts = density.isf([1e-13, 1e-6, 1e-3, 0.1, 0.5, 0.9])
    exact, _ = integrate.quad(integrand, 0.0, 1.0, points=cuts, limit=400, epsabs=0.0, epsrel=1e-9)
    assert exact * (1.0 - 1e-9) <= event.p_value(curve) <= exact * 1.012 + 1e-15
    assert exact / 1.012 - 1e-15 <= event.least_probability(curve) <= exact * (1.0 + 1e-9)
    for share in (exact / 2.0, exact * 2.0):
        assert event.contradicts(curve, share) == (event.p_value(curve) <= share)


def test_the_p_value_is_not_too_small_for_a_rare_event_of_a_curve_that_is_steep():
    """A rule without a direction gave 4.221e-7 here."""
    n, hits = 20_000, 16_091
    curve = epsilon_delta_curve(7.0, 1e-5)
    exponent = np.linspace(-14.0, 0.0, 400_001)  # log U, finely enough for four digits
    u = np.exp(exponent)
    tails = special.betainc(hits, n - hits + 1, curve(u))
    exact = float(integrate.trapezoid(tails * u * n * np.exp((n - 1) * np.log1p(-np.minimum(u, 0.999))), exponent))
    assert exact == pytest.approx(4.228e-7, rel=1e-3)
    assert exact * (1.0 - 1e-5) <= RankEvent(True, 1, n, hits, n).p_value(curve) <= exact * 1.012


def test_it_is_never_weaker_than_two_clopper_pearson_limits():
    alpha, n = 0.01, 200
    for rank, hits in ((1, 20), (10, 60), (60, 150), (120, 199)):
        p_low = stats.beta.ppf(alpha / 2, hits, n - hits + 1)
        u_high = stats.beta.isf(alpha / 2, rank, n - rank + 1)
        epsilon = max(math.log(p_low / u_high), math.log((1 - u_high) / (1 - p_low)))
        assert RankEvent(True, rank, n, hits, n).p_value(epsilon_delta_curve(epsilon, 0.0)) <= alpha * 1.01


def test_no_hits_show_nothing():
    event = RankEvent(True, 1, 10, 0, 10)
    assert event.p_value(gaussian_curve(0.0)) == 1.0
    assert not event.contradicts(gaussian_curve(0.0), 0.5)


def test_events_count_both_tails():
    absent, present = np.arange(0, 100), np.arange(100, 150)
    events = rank_events(present, absent)
    assert {event.hits for event in events if event.above} == {50}
    assert {event.hits for event in events if not event.above} == {0}
    assert min(event.rank for event in events) == 1
    assert rank_events(np.array([1]), np.array([0]))[0].hits == 1
    assert "50 of 50 results with the record lie above" in str(events[0])


def test_a_profile_is_the_curve_of_its_claim():
    u = np.linspace(0.0, 1.0, 41)
    profile = Profile(lambda epsilon: gdp.delta_of(1.0, epsilon))
    exact = gaussian_curve(1.0)(u)
    assert (profile(u) >= exact - 1e-12).all()  # a claim is read at a few epsilons: never stricter than it is
    assert (profile(u) <= exact + 5e-3).all()
    pure = Profile(lambda epsilon: 0.0 if epsilon >= 1.0 else 1.0)
    assert (pure(u) >= epsilon_delta_curve(1.0, 0.0)(u)).all()


def test_the_worst_epsilon_is_where_the_excess_is_largest():
    profile = Profile(lambda epsilon: gdp.delta_of(0.5, epsilon))
    epsilon, claimed = profile.worst(float(special.ndtr(0.5)), float(special.ndtr(-0.5)))
    assert claimed == gdp.delta_of(0.5, epsilon)
    assert epsilon < 0.2  # at the middle of two Gaussians the likelihood ratio is 1


@pytest.mark.parametrize("claim", [lambda epsilon: math.nan, lambda epsilon: -0.1])
def test_a_claim_without_delta_is_refused(claim):
    with pytest.raises(InvalidInput, match="claim must return a delta of 0 or more"):
        Profile(claim)
