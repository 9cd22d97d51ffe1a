"""Public numbers of the automatic rule: predicted costs, the noise fraction, and clips that follow from it."""

from __future__ import annotations

import itertools

import pytest

from dperm.data.design.facts import Facts
from dperm.objective import Huber, Logistic, Multinomial, SmoothedHinge, Squared
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.solvers.central.auto.costs import cost_without_metric, explainable, fraction_of, noise_fraction, skewed
from dperm.solvers.central.auto.descent import Descent, longest_step
from dperm.solvers.central.auto.scales import scale_of

LOSSES = [Logistic(), Multinomial(4), SmoothedHinge(0.5), Squared(residual_clip=1.0), Huber(0.5)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_noise_fraction_falls_with_more_data_and_more_budget(loss):
    def at(n, mu, neighbours=Neighbours.ZERO_OUT):
        return noise_fraction(loss, Facts(n, 10, 11, 1.0, 11**0.5, 1.0), mu, neighbours)

    for line in ([at(n, 0.1) for n in (10, 100, 1000, 10**6)], [at(1000, mu) for mu in (0.001, 0.1, 1.0, 10.0)]):
        assert all(1.0 >= a > b >= 0.0 for a, b in itertools.pairwise(line))
    assert at(1000, 0.1, Neighbours.REPLACE_ONE) > at(1000, 0.1)
    assert at(1, 1e-4) > 0.99
    assert at(10**9, 1.0) < 0.01


def test_a_skewed_target_multiplies_the_odds_of_noise():
    for fraction in (0.0, 0.1, 0.9):
        assert skewed(fraction, 1.0) == pytest.approx(fraction)
    assert skewed(0.5, 3.0) == pytest.approx(0.9)
    assert skewed(1.0, 2.0) <= 1.0


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_clips_grow_so_that_their_noise_still_falls(loss):
    """Noise costs in proportion to the squared clip: with the noise of the fraction it falls with its root."""
    scale = scale_of(loss)
    assert scale.clip_at(1.0) == scale.clip
    for fraction in (0.5, 1e-3, 1e-8):
        assert fraction * scale.clip_at(fraction) ** 2 == pytest.approx(scale.clip**2 * fraction**0.5)
    assert scale.clip_at(0.0) < 1e4  # finite without noise


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_descent_without_a_metric_never_costs_more_than_learning_nothing(loss):
    for d, duration, rows in itertools.product((1, 100, 10**5), (0.01, 1.0, 100.0), (1.0, 100.0, 10**5)):
        assert 0.0 < cost_without_metric(loss, d, duration, rows) <= explainable(loss)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_a_planned_descent_is_longer_with_less_noise_and_never_unstable(momentum):
    scale, times = scale_of(Logistic()), []
    for excess in (1.0, 0.1, 0.01, 1e-4, 1e-9):
        descent = Descent.planned(scale, fraction_of(excess), 1.0, explainable(Logistic()) / excess, 64, momentum)
        times.append(descent.time)
        clip = min(1.0, scale.clip_at(fraction_of(excess)))
        assert (descent.steps <= longest_step(scale.step_curvature, momentum) / clip + 1e-12).all()
        assert 1 <= descent.n_averaged <= 32
    assert times == sorted(times)
    # heavy-ball steps below this limit converge on the steepest direction
    assert longest_step(0.25, momentum) * 0.25 < 2.0 * (1.0 + momentum)
