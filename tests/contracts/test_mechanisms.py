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
from dperm.testing import MECHANISM_EXAMPLES, ContractViolation, check_choice, check_density, check_mechanism

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
