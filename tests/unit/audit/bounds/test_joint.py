"""One test for several numbers of guesses: against enumeration, and between the bounds that it must lie between."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import special, stats

from dperm.audit.bounds import joint


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("limits", [(3, 5, 8), (4, 6, 7), (1, 9, 11), (4, 8, 11)])
def test_the_probability_of_reaching_a_limit_is_that_of_all_sequences(epsilon, limits):
    numbers, q = np.array([3, 6, 10]), special.expit(epsilon)
    exact = 0.0
    for sequence in itertools.product((0, 1), repeat=10):
        if any(sum(sequence[:number]) >= limit for number, limit in zip(numbers, limits, strict=True)):
            exact += q ** sum(sequence) * (1.0 - q) ** (10 - sum(sequence))
    assert joint._reached(numbers, np.array(limits), epsilon) == pytest.approx(exact, rel=1e-9, abs=2e-12)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("level", [0.3, 0.01, 1e-7])
def test_limits_are_the_fewest_with_a_small_tail(level, epsilon):
    numbers = np.array([1, 8, 50, 1000, 20_000])
    limits = joint._limits(numbers, level, epsilon)
    q = special.expit(epsilon)
    assert (stats.binom.sf(limits - 1, numbers, q) <= level).all()
    assert (stats.binom.sf(limits - 2, numbers, q) > level).all()


def test_increments_are_binomial():
    for n, epsilon in ((1, 0.3), (40, 0.0), (3000, 2.0), (5000, 12.0)):
        first, found = joint._increment(n, epsilon)
        assert found.sum() == pytest.approx(1.0, abs=1e-11)
        exact = stats.binom.pmf(np.arange(first, first + len(found)), n, special.expit(epsilon))
        np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-300)


@pytest.mark.parametrize("share_right", [0.55, 0.8, 1.0])
def test_it_lies_between_shared_and_unshared_error(share_right):
    numbers = np.array([10, 20, 40, 80, 160])
    correct = np.rint(share_right * numbers).astype(np.int64)
    found = joint.largest_epsilon(numbers, correct, 0.05)
    assert joint._root(numbers, correct, 0.01) <= found <= joint._root(numbers, correct, 0.05)
    if share_right > 0.6:
        assert found > joint._root(numbers, correct, 0.01) + 0.01


def test_one_number_needs_no_share():
    numbers, correct = np.array([100]), np.array([80])
    by_hand = special.logit(stats.beta.ppf(0.05, 80, 21))
    assert joint.largest_epsilon(numbers, correct, 0.05) == pytest.approx(by_hand, abs=2e-3)


def test_nothing_is_shown_by_guesses_that_are_no_better_than_lots():
    assert joint.largest_epsilon(np.array([8, 16]), np.array([0, 8]), 0.05) == 0.0


def test_the_surest_number_has_the_smallest_tail():
    assert joint.surest(np.array([10, 100]), np.array([8, 80]), 0.5) == 1
