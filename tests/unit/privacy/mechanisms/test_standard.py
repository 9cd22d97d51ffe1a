"""Mechanisms: the event they cost, the norm they need, the noise they add."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from dperm.errors import InvalidInput
from dperm.privacy.accounting.calibration import PlannedRelease
from dperm.privacy.accounting.events import Gaussian, Laplace, Selection
from dperm.privacy.mechanisms.standard import MECHANISMS, GaussianNoise, LaplaceNoise, Mechanism, NoisyMax
from dperm.privacy.randomness import RandomSource

CASES = [(GaussianNoise, Gaussian, "l2"), (LaplaceNoise, Laplace, "l1"), (NoisyMax, Selection, "linf")]


@pytest.mark.parametrize(("mechanism", "event", "norm"), CASES)
def test_event_norm_and_kind(mechanism: type[Mechanism], event: type, norm: str) -> None:
    made = mechanism(3.5)
    assert made.event(1.25) == event(3.5, 1.25)
    assert made.norm == norm
    assert MECHANISMS[made.kind] is mechanism
    # a plan's release of this kind costs what the mechanism costs
    planned = PlannedRelease("q", made.kind, 1, replacement_ratio=1.25)
    assert planned.event(3.5) == made.event(1.25)


@pytest.mark.parametrize("mechanism", [GaussianNoise, LaplaceNoise, NoisyMax])
def test_the_noise_is_at_least_the_planned_one(mechanism: type[Mechanism]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        multiplier = float(10.0 ** rng.uniform(-2, 3))
        sensitivity = float(10.0 ** rng.uniform(-8, 4))
        size = int(rng.choice([1, 7, 1000]))
        scale = mechanism(multiplier).noise_scale(sensitivity, 10.0 * sensitivity, size)
        assert Fraction(scale) >= Fraction(multiplier) * Fraction(sensitivity)
        assert scale <= multiplier * sensitivity * (1.0 + 1e-3)
        # planted: the same noise does not do for 0.2 % more sensitivity
        assert Fraction(scale) < Fraction(multiplier) * Fraction(sensitivity * 1.002)


@pytest.mark.parametrize("sampler", ["filtered", "integer"])
@pytest.mark.parametrize(("mechanism", "law"), [(GaussianNoise, stats.norm), (LaplaceNoise, stats.laplace)])
def test_released_noise_has_its_scale(mechanism: type[Mechanism], law: stats.rv_continuous, sampler: str) -> None:
    made = mechanism(2.5, sampler)
    n = 4000
    value = np.linspace(-1.0, 1.0, n).reshape(40, 100)
    released = made.apply(value, 0.3, 1.0, RandomSource(f"{made.kind}{sampler}"))
    assert released.shape == value.shape
    noise = (released - value).ravel() / made.noise_scale(0.3, 1.0, n)
    assert stats.kstest(noise, law.cdf).pvalue > 1e-5
    for wrong in (0.5, 1.5):
        assert stats.kstest(noise * wrong, law.cdf).pvalue < 1e-9


def test_values_beyond_their_bound_are_clipped() -> None:
    small = GaussianNoise(1e-3).apply(np.array([1e6, -1e6]), 1.0, 2.0, RandomSource(0))
    assert np.abs(small - [2.0, -2.0]).max() < 0.1
    # 9 and 1e9 are the same score under a bound of 1, so the third candidate is as likely as they
    source = RandomSource("clip")
    scores = np.array([9.0, 1e9, 1.0])
    winners = [NoisyMax(1.0).apply(scores, 1.0, 1.0, source) for _ in range(3000)]
    assert stats.chisquare(np.bincount(winners, minlength=3)).pvalue > 1e-5


def test_choices_have_their_probabilities() -> None:
    source = RandomSource("max")
    scores = np.array([0.0, 0.5, 1.0, -0.7])
    winners = [NoisyMax(2.0).apply(scores, 0.3, 1.0, source) for _ in range(8000)]
    observed = np.bincount(winners, minlength=4)
    assert stats.chisquare(observed, special.softmax(scores / 0.6) * 8000).pvalue > 1e-5
    for wrong in (0.5, 1.5):
        assert stats.chisquare(observed, special.softmax(scores / (0.6 * wrong)) * 8000).pvalue < 1e-9


@pytest.mark.parametrize("mechanism", [GaussianNoise, LaplaceNoise, NoisyMax])
def test_bad_parameters_are_refused(mechanism: type[Mechanism]) -> None:
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidInput):
            mechanism(bad)
    with pytest.raises(InvalidInput, match="sampler"):
        mechanism(1.0, "fast")
    with pytest.raises(InvalidInput):
        mechanism(1.0).apply(np.array([0.0, math.nan]), 1.0, 1.0, RandomSource(0))
    with pytest.raises(InvalidInput):
        mechanism(1.0).apply(np.zeros(2), 0.0, 1.0, RandomSource(0))
