"""Printed choices: the noise that their certified event relies on is drawn, in exact probabilities of a worst pair."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm.privacy.accounting.events import ApproximateDP
from dperm.privacy.mechanisms.printed import LaplaceInsideMax, LaplaceMax
from dperm.privacy.randomness import RandomSource
from dperm.testing import ContractViolation, check_choice

N_DRAWS = 20_000
MULTIPLIER = 2.0

#: neighbouring scores for sensitivity 1 at which the first choice's probability changes most, by mechanism
PAIRS = {
    LaplaceMax: ([0.0, 3.0, 3.0], [1.0, 2.0, 2.0]),
    LaplaceInsideMax: ([5.0, -15.0, 15.0], [6.0, -14.0, 14.0]),
}


def laplace_cdf(x):
    return np.where(x < 0.0, 0.5 * np.exp(np.minimum(x, 0.0)), 1.0 - 0.5 * np.exp(-np.maximum(x, 0.0)))


def first_wins(mechanism, values):
    """Probability of choosing the first value, integrated over its noisy score."""
    grid = np.linspace(-80.0, 80.0, 400_001)

    def law(value):
        upper = laplace_cdf((grid - value) / MULTIPLIER)
        if mechanism is LaplaceMax:
            return upper
        return np.where(grid >= 0.0, upper - laplace_cdf((-grid - value) / MULTIPLIER), 0.0)

    others = np.prod([law(value) for value in values[1:]], axis=0)
    return float((np.diff(law(values[0])) * (others[1:] + others[:-1]) / 2.0).sum())


@pytest.mark.parametrize("mechanism", PAIRS)
def test_the_first_of_a_worst_pair_wins_as_often_as_the_noise_says(mechanism):
    source = RandomSource(1)
    for values in PAIRS[mechanism]:
        wanted = first_wins(mechanism, values)
        chosen = [mechanism(MULTIPLIER).draw(np.array(values), 1.0, 100.0, source) for _ in range(N_DRAWS)]
        found = np.mean(np.array(chosen) == 0)
        assert found == pytest.approx(wanted, abs=5.0 * math.sqrt(wanted * (1.0 - wanted) / N_DRAWS))


@pytest.mark.parametrize("mechanism", PAIRS)
def test_the_event_covers_the_pair_and_half_of_it_does_not(mechanism):
    event = mechanism(MULTIPLIER).event(2.0)
    assert event == ApproximateDP(1.0)
    pair = [first_wins(mechanism, values) for values in PAIRS[mechanism]]
    both = [[one, 1.0 - one] for one in pair]
    check_choice(event, *both)
    with pytest.raises(ContractViolation):
        check_choice(ApproximateDP(0.5), *both)


def test_the_choice_of_the_published_frank_wolfe_in_numbers():
    far, near = (first_wins(LaplaceMax, values) for values in PAIRS[LaplaceMax])
    assert far == pytest.approx(0.0888, abs=5e-4)
    assert near == pytest.approx(0.222, abs=5e-4)
    assert 2.0 < near / far < math.e
