"""One bit per person: its lattice, its law, decoding and bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dperm.errors import InvalidBudget, InvalidInput
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.events import RandomizedResponse
from dperm.privacy.local.one_bit import LATTICE, OneBit, uniform32
from dperm.privacy.randomness import RandomSource


class Fixed:
    """A source that returns the words it is given."""

    def __init__(self, words):
        self.given = np.asarray(words, np.uint32)

    def words(self, n):
        return self.given[: 2 * n].view(np.uint64)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 16.0])
def test_the_bit_is_one_below_its_threshold(epsilon):
    bit = OneBit(epsilon)
    for value in (-1.0, -0.3, 0.0, 1.0):
        k = int(bit.thresholds(value))
        words = [0, k - 1, min(k, LATTICE - 1), LATTICE - 1]
        assert bit.report(np.full(4, value), Fixed(words)).tolist() == [True, True, False, False]


def test_thresholds_grow_with_the_value_and_stay_inside():
    bit = OneBit(0.7)
    k = bit.thresholds(np.linspace(-2.0, 2.0, 10_001)).astype(np.int64)
    assert np.all(np.diff(k) >= 0)
    assert k[0] == bit.floor
    assert k[-1] == LATTICE - bit.floor


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 1.0), (-0.5, 3.0), (1e-12, 1e12)])
def test_decoding_is_unbiased(low, high):
    """Exactly: the expectation over the lattice, not a simulation."""
    for epsilon in (1e-3, 0.5, 2.0, 16.0):
        bit = OneBit(epsilon)
        for value in np.linspace(low, high, 7):
            p = int(bit.thresholds(value, low, high)) / LATTICE
            decoded = bit.decode([0, 1], low, high)
            mean = (1.0 - p) * decoded[0] + p * decoded[1]
            grid = (high - low) / bit.steps
            assert abs(mean - value) <= 1.01 * grid + 1e-9 * (high - low) * bit.gain
            variance = (1.0 - p) * (decoded[0] - mean) ** 2 + p * (decoded[1] - mean) ** 2
            assert variance == pytest.approx(float(bit.variance(value, low, high)), rel=1e-6)


def test_the_law_of_the_bits_is_distinguished_from_halved_probabilities():
    source = RandomSource(5)
    n = 100_000
    for value in (-1.0, 0.2, 1.0):
        bit = OneBit(1.0)
        p = int(bit.thresholds(value)) / LATTICE
        ones = int(bit.report(np.full(n, value), source).sum())
        assert stats.binomtest(ones, n, p).pvalue > 1e-6
        assert stats.binomtest(ones, n, p / 2).pvalue < 1e-6


def test_neighbouring_bits_are_independent():
    bits = OneBit(1.0).report(np.zeros(200_001), RandomSource(6)).astype(float)
    assert abs(np.corrcoef(bits[:-1], bits[1:])[0, 1]) < 0.01


def test_ranges_per_person_and_chunks_agree_with_one_call_each():
    values = np.linspace(-1, 1, 3)
    lows, highs = np.array([-1.0, -2.0, 0.0]), np.array([1.0, 2.0, 4.0])
    expected = [int(OneBit(1.0).thresholds(v, a, b)) for v, a, b in zip(values, lows, highs, strict=True)]
    assert OneBit(1.0).thresholds(values, lows, highs).tolist() == expected


def test_the_cost_of_a_report():
    bit = OneBit(1.0)
    assert bit.event == RandomizedResponse(1.0, 2)
    assert bit.epsilon_realised == pytest.approx(1.0, abs=1e-8)
    assert composition.epsilon(bit.event, 1e-12).epsilon <= 1.0


def test_words_are_uniform():
    words = uniform32(100_001, RandomSource(7))
    assert words.size == 100_001
    assert stats.kstest(words / LATTICE, "uniform").pvalue > 1e-6


@pytest.mark.parametrize("epsilon", [0.0, 9e-4, 16.1, np.inf, np.nan, -1.0, True, "1"])
def test_bad_epsilon(epsilon):
    with pytest.raises(InvalidBudget, match="one-bit report"):
        OneBit(epsilon)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0), (-1e308, 1e308)])
def test_bad_range(low, high):
    with pytest.raises(InvalidInput, match="low below high"):
        OneBit(1.0).thresholds(0.5, low, high)


def test_bad_shape():
    with pytest.raises(InvalidInput, match="one value per person"):
        OneBit(1.0).report(np.zeros((2, 2)), RandomSource(8))
