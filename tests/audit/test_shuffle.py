"""Shuffled reports: every bound against exact enumeration, the closed form and the true errors of its arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import mpmath
import numpy as np
import pytest
from scipy import stats

from dperm.privacy.local.categories import LocalHashing, RandomizedCategory
from dperm.privacy.local.few_levels import FewLevels
from dperm.privacy.local.one_bit import LATTICE, OneBit
from dperm.privacy.local.shuffle import ROUNDING, Shuffled, closed_form_epsilon

EPSILONS = (0.0, 0.05, 0.2, 0.5, 0.9)


def shuffled_law(people):
    """Exact law of the multiset of reports; everybody is a vector of probabilities of answers."""
    law = {(0,) * len(people[0]): 1.0}
    for person in people:
        grown: Counter = Counter()
        for counts, chance in law.items():
            for answer, p in enumerate(person):
                grown[(*counts[:answer], counts[answer] + 1, *counts[answer + 1 :])] += chance * p
        law = grown
    return law


def true_delta(first, second, epsilon):
    return sum(max(0.0, chance - math.exp(epsilon) * second.get(counts, 0.0)) for counts, chance in first.items())


def largest_delta(choices, n, epsilon):
    """Over all people with these laws and all pairs for the first one."""
    worst = 0.0
    for others in combinations_with_replacement(choices, n - 1):
        laws = [shuffled_law([own, *others]) for own in choices]
        worst = max(worst, *(true_delta(a, b, epsilon) for a, b in product(laws, repeat=2)))
    return worst


def bit_laws(epsilon, shares, ends=(0.0, 1.0)):
    """Laws of (statistic, bit) for all records with these values in every statistic."""
    floor = OneBit(epsilon).floor / LATTICE
    made = []
    for values in product(ends, repeat=len(shares)):
        ones = [floor + v * (1.0 - 2.0 * floor) for v in values]
        made.append([x for share, one in zip(shares, ones, strict=True) for x in (share * (1.0 - one), share * one)])
    return made


@pytest.mark.parametrize("epsilon0", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_one_statistic(epsilon0, n):
    shuffled = Shuffled(OneBit(epsilon0), n, "mixer", "us")
    for epsilon in EPSILONS:
        true = largest_delta(bit_laws(epsilon0, (1.0,)), n, epsilon)
        assert shuffled.lower_delta(epsilon) <= true + 1e-12
        assert true <= shuffled.delta(epsilon) + 1e-12
        if n == 1:
            assert shuffled.delta(epsilon) == pytest.approx(true, abs=1e-8)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.8, 0.2), (0.5, 0.3, 0.2)])
def test_many_statistics_drawn_in_private_hide_like_one(shares):
    """Also for pairs of records that differ in a single statistic or not at all in some, and for values inside."""
    n = 4 if len(shares) == 2 else 3
    choices = bit_laws(1.0, shares, (0.0, 0.4, 1.0) if len(shares) == 2 else (0.0, 1.0))
    for epsilon in EPSILONS[:3] if len(shares) == 3 else EPSILONS[1::2]:
        assert largest_delta(choices, n, epsilon) <= Shuffled(OneBit(1.0), n, "mixer", "us").delta(epsilon)


def test_statistics_drawn_in_public():
    """The observer knows who drew what: exact sum over all draws."""
    shares, n = (0.7, 0.3), 5
    shuffled = Shuffled(OneBit(1.0), n, "mixer", "us", known_shares=shares)
    floor = OneBit(1.0).floor / LATTICE
    ends = [[1.0 - floor, floor], [floor, 1.0 - floor]]
    for epsilon in EPSILONS:
        worst = 0.0
        for high in range(n):  # so many of the others are high in every statistic
            total = 0.0
            for drawn in product(range(2), repeat=n):
                inside = [i for i in range(1, n) if drawn[i] == drawn[0]]
                others = [ends[int(i <= high)] for i in inside]
                chance = math.prod(shares[j] for j in drawn)
                total += chance * true_delta(*(shuffled_law([own, *others]) for own in ends[::-1]), epsilon)
            worst = max(worst, total)
        assert shuffled.lower_delta(epsilon) <= worst + 1e-12
        assert worst <= shuffled.delta(epsilon)


def test_few_levels_and_categories():
    levels = FewLevels(1.5, 3)
    rows = (np.array(levels.table.rows) / LATTICE).tolist()
    category = RandomizedCategory(1.5, 3)
    own, other = category.rates
    laws = [[own if i == j else other for i in range(3)] for j in range(3)]
    for report, choices in ((levels, rows), (category, laws)):
        for n in (1, 3, 4):
            shuffled = Shuffled(report, n, "mixer", "us")
            for epsilon in EPSILONS:
                true = largest_delta(choices, n, epsilon)
                assert shuffled.lower_delta(epsilon) - 1e-12 <= true <= shuffled.delta(epsilon) + 1e-12


@dataclass(frozen=True)
class TwiceTheBlanket(OneBit):
    """Claims that twice as many people answer without looking."""

    @property
    def least(self):
        return tuple(2 * count for count in super().least)


class TestPlantedBugs:
    """The enumeration tells each of them from a bound."""

    @staticmethod
    def broken(delta_at, epsilon0=1.0, n=9):
        truth = [largest_delta(bit_laws(epsilon0, (1.0,)), n, epsilon) for epsilon in EPSILONS]
        return any(true > delta_at(epsilon) + 1e-9 for true, epsilon in zip(truth, EPSILONS, strict=True))

    def test_the_right_one_passes(self):
        assert not self.broken(Shuffled(OneBit(1.0), 9, "mixer", "us").delta)

    def test_more_people_than_there_are(self):
        assert self.broken(Shuffled(OneBit(1.0), 40, "mixer", "us").delta)

    def test_reports_with_less_noise(self):
        assert self.broken(Shuffled(OneBit(0.5), 9, "mixer", "us").delta)

    def test_amplification_by_the_number_of_people_alone(self):
        """As if everybody's bit were a fair coin: not a bound once the bits of others are likely 0 or 1."""

        def naive(epsilon):
            high = OneBit(1.5).ratio[0] / LATTICE
            alpha = high - math.exp(epsilon) * (1.0 - high)
            g = stats.binom(8, 0.5)
            s = np.arange(0, 10)
            return float(np.maximum(alpha * g.pmf(s - 1) - (alpha + math.expm1(epsilon)) * g.pmf(s), 0.0).sum())

        assert self.broken(naive, 1.5)

    def test_a_blanket_that_is_too_wide(self):
        assert self.broken(Shuffled(TwiceTheBlanket(2.0), 9, "mixer", "us").delta, 2.0)


def test_blocks_agree_with_the_sum_over_all_numbers_of_others():
    for report, n in ((OneBit(1.0), 3000), (FewLevels(3.0), 3000), (OneBit(4.0), 500)):
        shuffled = Shuffled(report, n, "mixer", "us")
        high, low = report.ratio
        blanket = sum(report.least) / LATTICE
        own = (1.0 - blanket) / (high / low - 1.0)
        p = high / (high + low)
        c = np.arange(n)
        chance = stats.binom.pmf(c, n - 1, 2.0 * own)
        for epsilon in (0.01, 0.1, 0.4):
            total = 0.0
            for k, weight in zip(c, chance, strict=True):
                if weight < 1e-25:
                    continue
                s = np.arange(k + 2)
                g = stats.binom.pmf(s, k, 0.5)
                before = np.concatenate([[0.0], g[:-1]])
                first, second = p * before + (1 - p) * g, (1 - p) * before + p * g
                total += weight * np.maximum(first - math.exp(epsilon) * second, 0.0).sum()
            total *= own * (high / low + 1.0)
            assert total * (1.0 - 1e-9) <= shuffled.delta(epsilon) <= total * 1.02 + 1e-15


@pytest.mark.parametrize("report", [OneBit(0.25), OneBit(1.0), OneBit(3.0), FewLevels(2.0), LocalHashing(1.0, 100)])
@pytest.mark.parametrize("n", [1000, 100_000, 10_000_000])
def test_between_the_lower_bound_and_the_closed_form(report, n):
    for delta in (1e-5, 1e-9):
        bound = Shuffled(report, n, "mixer", "us").epsilon(delta)
        assert 0.0 <= bound.lower <= bound.epsilon <= bound.closed_form <= report.epsilon
        assert bound.closed_form == closed_form_epsilon(report.epsilon, n, delta)


@pytest.mark.parametrize("epsilon0", [0.5, 1.0, 2.0, 4.0])
def test_five_times_tighter_than_the_closed_form_and_near_the_truth(epsilon0):
    bound = Shuffled(OneBit(epsilon0), 1_000_000, "mixer", "us").epsilon(1e-6)
    assert bound.closed_form > 5.0 * bound.epsilon
    assert bound.epsilon < 1.45 * bound.lower


def test_binomial_probabilities_are_as_exact_as_the_bound_assumes():
    with mpmath.workdps(50):
        for n in (10**4, 10**7, 10**9):
            for chance in (0.5, OneBit(1.0).floor / LATTICE, 1e-4):
                for z in (-5.0, 0.0, 3.0, 7.0):
                    k = int(n * chance + z * math.sqrt(n * chance))
                    if k < 0:
                        continue
                    p = mpmath.mpf(chance)
                    log_choose = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
                    exact = mpmath.exp(log_choose + k * mpmath.log(p) + (n - k) * mpmath.log(1 - p))
                    assert abs(stats.binom.pmf(k, n, chance) / exact - 1) < ROUNDING / 10
                    if n == 10**4:
                        term, total = exact, mpmath.mpf(0)
                        for j in range(k, n):
                            term *= (n - j) * p / ((j + 1) * (1 - p))
                            total += term
                        assert abs(stats.binom.sf(k, n, chance) / total - 1) < ROUNDING / 10
