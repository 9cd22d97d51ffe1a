"""Every registered mechanism has the distribution and the exact one-dimensional densities it claims."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import special

from dperm.privacy.accounting.events import Laplace, Selection
from dperm.privacy.mechanisms.lattice import Lattice
from dperm.privacy.mechanisms.standard import MECHANISMS, GaussianNoise, LaplaceNoise, NoisyMax
from dperm.privacy.randomness import RandomSource
from dperm.testing import (
    MECHANISM_EXAMPLES,
    ContractViolation,
    check_choice,
    check_density,
    check_mechanism,
    distribution,
)

EXAMPLES = [m for group in MECHANISM_EXAMPLES.values() for m in group]
ADDITIVE = [m for m in EXAMPLES if m.kind != "selection"]


def test_every_mechanism_has_an_example():
    assert set(MECHANISM_EXAMPLES) == set(MECHANISMS)


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=repr)
def test_distribution(mechanism):
    check_mechanism(mechanism)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", EXAMPLES, ids=repr)
def test_distribution_with_fresh_entropy(mechanism):
    check_mechanism(mechanism, n_samples=300_000, seed=None)


@dataclass(frozen=True)
class HalfTheNoise(GaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        return GaussianNoise(self.noise_multiplier / 2).apply(value, sensitivity, bound, source)


@dataclass(frozen=True)
class RightVarianceWrongShape(GaussianNoise):
    """A variance test would be content with this one."""

    def apply(self, value, sensitivity, bound, source):
        uniform = source.words(value.size) * 2.0**-64
        return value + (uniform - 0.5) * math.sqrt(12.0) * self.noise_multiplier * sensitivity


@dataclass(frozen=True)
class RepeatsItself(GaussianNoise):
    """Every noise value is used for two coordinates."""

    def apply(self, value, sensitivity, bound, source):
        half = super().apply(value[: (value.size + 1) // 2], sensitivity, bound, source)
        return np.repeat(half, 2)[: value.size]


@dataclass(frozen=True)
class AddsLaplaceInstead(NoisyMax):
    def apply(self, value, sensitivity, bound, source):
        noise = LaplaceNoise(self.noise_multiplier).apply(np.zeros(value.size), sensitivity, bound, source)
        return int(np.argmax(value + noise))


@pytest.mark.parametrize(
    "mechanism", [HalfTheNoise(3.0), RightVarianceWrongShape(3.0), RepeatsItself(3.0), AddsLaplaceInstead(3.0)]
)
def test_planted_samplers_are_rejected(mechanism):
    with pytest.raises(ContractViolation, match="does not fit its law"):
        check_mechanism(mechanism)


@dataclass(frozen=True)
class MissingOnZeros(GaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        return np.where(value == 0.0, 0.0, super().apply(value, sensitivity, bound, source))


@dataclass(frozen=True)
class MissingAtTheBound(GaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        clipped = np.clip(value, -bound, bound)
        return np.where(np.abs(clipped) == bound, clipped, super().apply(value, sensitivity, bound, source))


@dataclass(frozen=True)
class HalfBeyondTheBound(LaplaceNoise):
    def apply(self, value, sensitivity, bound, source):
        noisy = super().apply(value, sensitivity, bound, source)
        return np.where(value > bound, 0.5 * (noisy + bound), noisy)


@pytest.mark.parametrize("mechanism", [MissingOnZeros(3.0), MissingAtTheBound(3.0), HalfBeyondTheBound(3.0)])
def test_noise_that_is_missing_on_particular_values_is_found(mechanism):
    with pytest.raises(ContractViolation, match="does not fit its law"):
        check_mechanism(mechanism)
    noise, levels = distribution.noise_at_levels(mechanism, 9_000, RandomSource(0))
    untouched = noise[levels == 0.3]
    assert distribution.noise_p_value(untouched, mechanism, 1.0) > 1e-3  # the bug is on those values alone


class OldNoise:
    """Every second block of ``lag`` releases uses the noise of the block before it."""

    def __init__(self, lag, rare=2):
        self.lag, self.rare, self.made = lag, rare, []

    def __call__(self, noise):
        n = len(self.made)
        old = n >= self.lag and (n // self.lag) % self.rare == 1
        if old and self.made[n - self.lag].shape == noise.shape:
            noise = self.made[n - self.lag]
        self.made.append(noise)
        return noise


@pytest.mark.parametrize("kind", [GaussianNoise, LaplaceNoise])
@pytest.mark.parametrize(("lag", "rare"), [(1, 2), (2, 2), (5, 2), (8, 2), (3, 8)])
def test_noise_of_an_earlier_release_is_found(kind, lag, rare, monkeypatch):
    old, honest = OldNoise(lag, rare), kind.draw

    def draw(self, value, sensitivity, bound, source):
        clipped, noisy = np.clip(value, -bound, bound), honest(self, value, sensitivity, bound, source)
        return clipped + old(noisy - clipped) if value.size < 100 else noisy

    monkeypatch.setattr(kind, "draw", draw)
    with pytest.raises(ContractViolation, match="not independent between releases"):
        check_mechanism(kind(3.0))


def test_choices_of_an_earlier_selection_are_found(monkeypatch):
    honest, chosen = NoisyMax.draw, []

    def draw(self, *given):
        chosen.append(chosen[-2] if len(chosen) % 4 in (2, 3) else honest(self, *given))
        return chosen[-1]

    monkeypatch.setattr(NoisyMax, "draw", draw)
    with pytest.raises(ContractViolation):
        check_mechanism(NoisyMax(3.0))


@pytest.mark.parametrize("mechanism", ADDITIVE, ids=repr)
@pytest.mark.parametrize(("sensitivity", "bound"), [(1.0, 1.0), (0.37, 5.0), (1e-6, 1e-3), (2.0**-10, 1.0)])
def test_exact_density(mechanism, sensitivity, bound):
    check_density(mechanism, sensitivity, bound)


@pytest.mark.parametrize("mechanism", ADDITIVE, ids=repr)
def test_density_check_catches_a_smaller_scale(mechanism):
    right = Lattice.design(1.0, mechanism.noise_multiplier, 1, 1.0, mechanism.kind)
    for factor in (0.5, 0.97):
        with pytest.raises(ContractViolation, match="the true delta is"):
            check_density(mechanism, 1.0, 1.0, replace(right, scale=right.scale * factor))


def exponential_mechanism(scores, scale):
    return special.softmax(np.asarray(scores) / scale)


@pytest.mark.parametrize("multiplier", [0.5, 2.0, 10.0])
def test_choice_probabilities_of_the_race(multiplier):
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = int(rng.integers(2, 6))
        scores = rng.normal(0, 2 * multiplier, p)
        moved = scores + rng.choice([-1.0, 0.0, 1.0], p)  # every score may move by the sensitivity 1
        check_choice(Selection(multiplier), *(exponential_mechanism(s, multiplier) for s in (scores, moved)))


def test_choice_check_catches_halved_noise_and_a_wrong_theorem():
    scores, moved = np.array([0.0, 0.0]), np.array([1.0, -1.0])
    with pytest.raises(ContractViolation):
        check_choice(Selection(2.0), exponential_mechanism(scores, 1.0), exponential_mechanism(moved, 1.0))
    # a selection costs up to twice what one Laplace release of its score would
    with pytest.raises(ContractViolation):
        check_choice(Laplace(1.0), exponential_mechanism(scores, 1.0), exponential_mechanism(moved, 1.0))
