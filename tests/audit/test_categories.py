"""Categories: exact ratios on the lattice, unbiased frequencies, stated variances."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import stats

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.local.categories import LocalHashing, RandomizedCategory, UnaryEncoding
from dperm.privacy.local.one_bit import LATTICE, exp_lower_bound
from dperm.privacy.randomness import RandomSource
from dperm.testing import ContractViolation
from dperm.testing.local import check_answers

ALL = (RandomizedCategory, UnaryEncoding, LocalHashing)


def allowed(epsilon):
    with mpmath.workdps(60):
        return mpmath.exp(mpmath.mpf(epsilon))


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 16.0])
def test_the_ratios_are_exact_and_one_point_less_is_too_little(epsilon):
    for k in (2, 3, 10, 1000):
        t = RandomizedCategory(epsilon, k).floor
        assert mpmath.mpf(LATTICE - (k - 1) * t) / t <= allowed(epsilon)
        assert mpmath.mpf(LATTICE - (k - 1) * (t - 1)) / (t - 1) > allowed(epsilon)
        assert LATTICE - (k - 1) * t > t
    t = UnaryEncoding(epsilon, 5).floor
    assert mpmath.mpf(LATTICE - t) / t <= allowed(epsilon)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0, 4.0, 16.0])
def test_both_sides_of_the_ratio_for_any_number_of_categories(epsilon):
    """A report either keeps epsilon in both directions, in whole numbers, or is refused."""
    above, below = exp_lower_bound(epsilon)
    rng, kept, refused = np.random.default_rng(), 0, 0
    some = [2, 3, 100_812, 101_000, 200_000, 484_400, 10**6, (1 << 20) - 100, 1 << 20]
    some += (2 ** rng.uniform(1, 20, 400)).astype(int).tolist()
    for k in some:
        try:
            own, other = RandomizedCategory(epsilon, k).ratio
        except Unsupported:
            refused += 1
            continue
        kept += 1
        assert own + (k - 1) * other == LATTICE
        assert own > 0
        assert own * below <= other * above
        assert other * below <= own * above
        assert own > other  # else frequencies could not be told
    assert kept > 100
    assert (refused > 0) == (epsilon <= 4.0)
    if refused:
        with pytest.raises(Unsupported, match="use LocalHashing"):
            RandomizedCategory(epsilon, (1 << 20) - 100)
    assert all(LocalHashing(epsilon, k).ratio[0] > LocalHashing(epsilon, k).ratio[1] for k in some)


def test_every_word_goes_to_its_category():
    """All words at the edges of the categories' shares."""

    class Fixed:
        def __init__(self, words):
            self.given = np.asarray(words, np.uint32)

        def words(self, n):
            return self.given[: 2 * n].view(np.uint64)

    report = RandomizedCategory(1.0, 3)
    t = report.floor
    words = [0, t - 1, t, 2 * t - 1, 2 * t, LATTICE - 1]
    assert report.report(np.full(6, 1), Fixed(words)).tolist() == [2, 2, 0, 0, 1, 1]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("k", [2, 7, 40])
def test_frequencies_are_unbiased_with_the_stated_variance(kind, k):
    rng, n, report = np.random.default_rng(k), 60_000, kind(1.5, k)
    truth = rng.dirichlet(np.ones(k))
    categories = rng.choice(k, n, p=truth)
    shares = np.bincount(categories, minlength=k) / n
    found = report.frequencies(report.support(report.report(categories, RandomSource(k))), n)
    z = (found - shares) / np.sqrt([report.variance(f, n) for f in shares])
    assert stats.chi2.sf((z**2).sum(), k) > 1e-4


@pytest.mark.parametrize("kind", ALL)
def test_noise_for_another_epsilon_would_be_detected(kind):
    n, report, other = 100_000, kind(1.0, 5), kind(2.0, 5)
    support = other.support(other.report(np.zeros(n, int), RandomSource(1)))
    z = (report.frequencies(support, n)[0] - 1.0) / np.sqrt(report.variance(1.0, n))
    assert abs(z) > 6 or abs((report.frequencies(support, n)[1]) / np.sqrt(report.variance(0.0, n))) > 6


def test_unary_beats_randomized_response_with_many_categories():
    assert UnaryEncoding(1.0, 100).variance(0.0, 1) < RandomizedCategory(1.0, 100).variance(0.0, 1)
    assert RandomizedCategory(1.0, 3).variance(0.0, 1) < UnaryEncoding(1.0, 3).variance(0.0, 1)


class TestTheAnswersAlone:
    """What an observer of two categories sees: which of the two a report supports; both sides, all outcomes."""

    @staticmethod
    def audit(report, epsilon, **options):
        source = RandomSource(5)

        def supported(values):
            sent = report.report(values.astype(int), source)
            if isinstance(report, LocalHashing):
                of = [report._hashed(sent, category) == sent[:, 2] for category in (0, 1)]
            else:
                of = [sent[:, category] if sent.ndim == 2 else sent == category for category in (0, 1)]
            return of[0] + 2 * of[1].astype(int)

        check_answers(supported, (0, 1, 2), epsilon, n_answers=4, slack=0.06, **options)

    @pytest.mark.parametrize("kind", ALL)
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_reports_satisfy_epsilon_and_use_all_of_it(self, kind, epsilon):
        self.audit(kind(epsilon, 4), epsilon)

    @pytest.mark.parametrize("kind", ALL)
    def test_halved_noise_is_caught(self, kind):
        with pytest.raises(ContractViolation, match="claimed"):
            self.audit(kind(2.0, 4), 1.0)

    def test_a_unary_bit_that_spends_epsilon_alone_is_caught(self):
        """Both bits change, so the two factors multiply: the own bit must stay at 1/2."""

        class Greedy(UnaryEncoding):
            def report(self, categories, source):
                own = np.eye(self.n_categories)[categories] > 0
                words = source.words(own.size).reshape(own.shape) >> np.uint64(32)
                return words < np.where(own, LATTICE - self.floor, self.floor).astype(np.uint64)

        with pytest.raises(ContractViolation, match="claimed"):
            self.audit(Greedy(1.0, 4), 1.0)


class TellingKey(LocalHashing):
    """The key carries the category."""

    def report(self, categories, source):
        sent = super().report(categories, source)
        sent[:, 1] = (sent[:, 1] // 4 * 4 + np.asarray(categories)) % ((1 << 31) - 1)
        return sent


class TestThePublicKey:
    """A key is sent in the clear: it must not know the category."""

    @staticmethod
    def keys(report, categories):
        return report.report(categories, RandomSource(6))[:, :2]

    def test_it_is_the_same_whatever_the_categories(self):
        one, other = np.zeros(5000, int), np.arange(5000) % 4
        assert np.array_equal(self.keys(LocalHashing(1.0, 4), one), self.keys(LocalHashing(1.0, 4), other))
        assert not np.array_equal(self.keys(TellingKey(1.0, 4), one), self.keys(TellingKey(1.0, 4), other))

    @staticmethod
    def audit(report):
        """All that is sent, the key by its last bits, together with the bucket."""
        source, g = RandomSource(7), report._buckets.n_categories

        def seen(values):
            sent = report.report(values.astype(int), source)
            return (sent[:, 0] % 4 * 4 + sent[:, 1] % 4) * g + sent[:, 2]

        check_answers(seen, (0, 1, 2), 1.0, n_answers=16 * g, slack=0.5)

    def test_key_and_bucket_together_satisfy_epsilon(self):
        self.audit(LocalHashing(1.0, 4))
        with pytest.raises(ContractViolation, match="claimed"):
            self.audit(TellingKey(1.0, 4))


@pytest.mark.parametrize("kind", ALL)
def test_bad_input(kind):
    for k in (1, 2.0, True, 1 << 21):
        with pytest.raises(InvalidInput, match="n_categories"):
            kind(1.0, k)
    with pytest.raises(InvalidInput):
        kind(20.0, 4)
    with pytest.raises(InvalidInput, match="whole number per person"):
        kind(1.0, 4).report([0.5], RandomSource(2))
    assert len(kind(1.0, 4).report([-7, 99, 3], RandomSource(3))) == 3
