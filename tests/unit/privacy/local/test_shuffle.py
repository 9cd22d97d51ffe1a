"""Shuffled reports: what is claimed, what is assumed, and what is refused."""

from __future__ import annotations

import math
import time

import pytest

from dperm.errors import InvalidBudget, InvalidInput, Unsupported
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.local import shuffle
from dperm.privacy.local.categories import UnaryEncoding
from dperm.privacy.local.one_bit import LATTICE, OneBit
from dperm.privacy.local.shuffle import Shuffled, closed_form_epsilon


def test_the_guarantee_names_the_shuffler_and_its_assumptions():
    guarantee = Shuffled(OneBit(1.0), 100_000, "Mixer Ltd", collector="Acme").guarantee(1e-8)
    assert guarantee.epsilon < 0.05
    assert guarantee.delta == 1e-8
    assert guarantee.neighbours is Neighbours.REPLACE_ONE
    assert "Mixer Ltd" in guarantee.assumptions[0]
    assert "Acme" in guarantee.assumptions[0]
    assert "100000 people" in guarantee.assumptions[1]
    assert 0.0 < guarantee.looseness < 0.3 * guarantee.epsilon


def test_the_closed_form():
    ratio, n, delta = math.e, 10**6, 1e-6
    noise = 8 * math.sqrt(ratio * math.log(4 / delta)) / math.sqrt(n) + 8 * ratio / n
    expected = math.log(1 + (ratio - 1) / (ratio + 1) * noise)
    assert closed_form_epsilon(1.0, n, delta) == pytest.approx(expected)
    assert closed_form_epsilon(1.0, 100, delta) == 1.0  # too few people for the theorem
    assert closed_form_epsilon(12.0, n, delta) == 12.0


def test_one_person_alone_gets_no_amplification():
    bound = Shuffled(OneBit(1.0), 1, "mixer", "us").epsilon(1e-9)
    assert bound.epsilon == pytest.approx(1.0, abs=1e-6)
    assert bound.lower == pytest.approx(1.0, abs=1e-6)


def test_delta_falls_and_ends_at_the_reports_own_epsilon():
    shuffled = Shuffled(OneBit(1.0), 1000, "mixer", "us")
    found = [shuffled.delta(epsilon) for epsilon in (0.0, 0.05, 0.1, 0.2, 0.4, 0.9, 1.0, 5.0, 1e6)]
    assert found == sorted(found, reverse=True)
    assert found[-3:] == [0.0] * 3
    assert shuffled.epsilon(0.4).epsilon == 0.0


def test_a_single_public_statistic_changes_nothing():
    hidden, public = (Shuffled(OneBit(1.0), 5000, "mixer", "us", known_shares=s).epsilon(1e-6) for s in (None, (3.0,)))
    assert public.epsilon == pytest.approx(hidden.epsilon, rel=1e-6)
    assert public.lower == pytest.approx(hidden.lower, rel=1e-6)


def test_many_shares_are_bounded_by_a_few():
    n = 1_000_000
    exact = Shuffled(OneBit(1.0), n, "mixer", "us", known_shares=tuple(range(20, 35))).epsilon(1e-6)
    binned = Shuffled(OneBit(1.0), n, "mixer", "us", known_shares=tuple(x / 4 for x in range(80, 140))).epsilon(1e-6)
    assert binned.lower < binned.epsilon
    assert binned.epsilon == pytest.approx(2 * exact.epsilon, rel=0.1)  # four times as many statistics


def test_shares_are_rounded_to_the_safe_side(monkeypatch):
    """Against the exact sum over all shares: bounded from above by fewer to hide among, from below by more."""
    shares = tuple(float(x) for x in range(1, 13))
    monkeypatch.setattr(shuffle, "_N_SHARES", len(shares))
    exact = Shuffled(OneBit(2.0), 3000, "mixer", "us", known_shares=shares)
    assert len(exact._cells) == len(shares)
    sums = [(exact.delta(epsilon), exact.lower_delta(epsilon)) for epsilon in (0.1, 0.3, 0.6)]
    for few in (1, 2, 5):
        monkeypatch.setattr(shuffle, "_N_SHARES", few)
        binned = Shuffled(OneBit(2.0), 3000, "mixer", "us", known_shares=shares)
        assert len(binned._cells) <= few
        for epsilon, (upper, lower) in zip((0.1, 0.3, 0.6), sums, strict=True):
            assert binned.delta(epsilon) >= upper
            assert binned.lower_delta(epsilon) <= lower


def test_ten_million_people_are_fast():
    start = time.perf_counter()
    Shuffled(OneBit(1.0), 10**7, "mixer", "us").epsilon(1e-9)
    assert time.perf_counter() - start < 20.0  # a tenth of a second on an idle machine


@pytest.mark.parametrize("shuffler", ["collector", "The Collector", " the collector "])
def test_the_collector_cannot_shuffle_for_itself(shuffler):
    with pytest.raises(Unsupported, match="no amplification"):
        Shuffled(OneBit(1.0), 1000, shuffler, "the collector")
    with pytest.raises(Unsupported, match="no amplification"):
        Shuffled(OneBit(1.0), 1000, "Acme", collector="acme")


def test_bad_input():
    for shuffler in ("", "  ", None, 3):
        with pytest.raises(InvalidInput, match="shuffler must be a name"):
            Shuffled(OneBit(1.0), 1000, shuffler, "the collector")
    for n in (0, 1.5, True, 10**10):
        with pytest.raises(InvalidInput, match="number of people"):
            Shuffled(OneBit(1.0), n, "mixer", "us")
    for delta in (0.0, 1.0, math.nan, True, "x"):
        with pytest.raises(InvalidBudget, match="delta"):
            Shuffled(OneBit(1.0), 1000, "mixer", "us").epsilon(delta)
    for shares in ((), (1.0, 0.0), (1.0, math.inf)):
        with pytest.raises(InvalidInput, match="known_shares"):
            Shuffled(OneBit(1.0), 1000, "mixer", "us", known_shares=shares)
    for epsilon in (math.nan, -1.0, 0.0, math.inf, True, "x"):
        with pytest.raises(InvalidBudget, match="epsilon of a report"):
            closed_form_epsilon(epsilon, 10**6, 1e-6)
    with pytest.raises(TypeError, match="collector"):
        Shuffled(OneBit(1.0), 1000, "mixer")
    with pytest.raises(InvalidBudget, match="epsilon"):
        Shuffled(OneBit(1.0), 1000, "mixer", "us").delta(math.nan)
    with pytest.raises(Unsupported, match="UnaryEncoding"):
        Shuffled(UnaryEncoding(1.0, 5), 1000, "mixer", "us")


def test_a_report_whose_blanket_is_too_small_is_refused():
    class Odd(OneBit):
        least = (1, 1)
        ratio = (LATTICE // 2, 1)

    with pytest.raises(Unsupported, match="too few answers"):
        Shuffled(Odd(1.0), 1000, "mixer", "us")


def test_beyond_the_epsilon_of_one_report_no_pair_shows_anything():
    shuffled = Shuffled(OneBit(0.5), 50, "mixer", "us")
    assert shuffled.lower_delta(0.49) > 0.0
    assert shuffled.lower_delta(0.51) == shuffled.lower_delta(2.0) == 0.0
