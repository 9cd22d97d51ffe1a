"""Claims, tables, statistics, exact repeats, power and the page."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest

from dperm.audit import AttackResult, AuditResult, Claim, PublicFacts, Verdict
from dperm.audit.exact_repeats import epsilon_of_constants, p_value_of_repeats, runs_for_constants
from dperm.audit.page import audit_page
from dperm.audit.pilot import Pilot
from dperm.audit.statistics import bit_statistics, density_statistics, linear_statistics, separation
from dperm.audit.tables import candidate_pairs, different_first
from dperm.privacy.accounting import gdp


def test_an_epsilon_delta_claim_implies_its_deltas():
    claim = Claim(1.0, 0.01)
    assert claim.delta_at(1.0) == claim.delta_at(3.0) == 0.01
    # randomised response with failure reaches it at smaller epsilons: the trade-off curve's corner
    corner = 0.99 / (1.0 + math.e)
    assert claim.delta_at(0.0) == pytest.approx(1.0 - 2.0 * corner)
    deltas = [claim.delta_at(e) for e in (0.0, 0.3, 0.6, 0.9, 1.0)]
    assert all(one >= two for one, two in pairwise(deltas))


def test_zero_out_allows_two_steps():
    claim = Claim(1.0, 1e-3, "zero-out")
    assert claim.tested == (2.0, pytest.approx(1e-3 * (1.0 + math.e)))
    assert claim.delta_at(2.0) == pytest.approx(claim.tested[1])
    assert Claim.gaussian(1.0, 1e-5, "zero-out").tested_mu == pytest.approx(2.0 * gdp.mu_of(1.0, 1e-5))


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove", "zero-out"])
@pytest.mark.parametrize("facts", [PublicFacts(), PublicFacts(n_features=1, classes=None, feature_range=(2.0, 3.0))])
def test_pairs_are_neighbours_and_different(neighbours, facts):
    pairs = candidate_pairs(facts, neighbours)
    assert len({(pair.first.name, pair.second.name) for pair in pairs}) == len(pairs) > 5
    for pair in pairs:
        apart = len(pair.first.y) - len(pair.second.y)
        assert apart == (1 if neighbours == "add-remove" else 0)
        rest = slice(1, None), slice(apart == 0, None)
        assert (pair.first.X[rest[0]] == pair.second.X[rest[1]]).all()
        assert (pair.first.y[rest[0]] == pair.second.y[rest[1]]).all()
        low, high = facts.feature_range
        inside = ((low <= pair.first.X) & (high >= pair.first.X)).all()
        if facts.classes is None:
            inside &= pair.first.y.max() <= facts.target_range[1]
        assert inside == (not pair.outside)
    inside = candidate_pairs(facts, neighbours, in_range=True)
    assert inside == [pair for pair in pairs if not pair.outside]


def test_statistics_find_what_they_are_for():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.0, 1.0, (2, 2000, 3))
    shifted = first + np.array([0.8, -0.8, 0.0])
    best = max(separation(one.of(shifted), one.of(second)) for one in linear_statistics(shifted[:500], second[:500]))
    assert best == pytest.approx(0.8 * math.sqrt(2.0), abs=0.1)
    wide = 2.0 * first
    names = {one.name: separation(one.of(wide), one.of(second)) for one in linear_statistics(wide[:500], second[:500])}
    assert names["distance from the middle"] > 0.7
    outer = np.where(np.abs(first) < 0.5, first + 1.0, first)
    found = {one.name: separation(one.of(outer), one.of(second)) for one in density_statistics(outer, second)}
    assert max(found.values()) > 0.8
    assert any(name.startswith("fine") for name in found)
    bits = bit_statistics(np.round(first * 1024.0) / 1024.0, second)
    assert max(separation(one.of(np.round(first * 1024.0) / 1024.0), one.of(second)) for one in bits) > 5.0


def test_bits_are_read_right():
    values = np.array([[1.0], [1.5], [0.75], [3.0], [0.1], [0.0], [-4.0]])
    (smallest,) = [one for one in bit_statistics(values, values) if one.name.startswith("smallest")]
    lowest = smallest.of(values) - smallest.of(values)[0]  # relative to 1 = 2^0
    assert lowest[[1, 2, 3, 4, 6]].tolist() == [-1.0, -2.0, 0.0, -55.0, 2.0]


def test_exact_repeats_prove_what_they_say():
    for epsilon in (0.5, 1.0, 3.0):
        runs = runs_for_constants(epsilon, 1e-5, 0.9999)
        assert epsilon_of_constants(runs, 1e-5, 0.9999) > epsilon > epsilon_of_constants(runs - 3, 1e-5, 0.9999)
    assert epsilon_of_constants(1, 0.0, 0.99) == 0.0
    # randomised response just satisfies epsilon: two constants come with the probability of the bound's leading term
    likely = math.e / (1.0 + math.e)
    assert likely ** (2 * 19) == pytest.approx(1.0 - _confidence_of(20, 1.0))
    assert p_value_of_repeats(1, 1) == 0.25
    assert p_value_of_repeats(3, 0) == 1.0


def _confidence_of(n_runs, epsilon):
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if epsilon_of_constants(n_runs, 0.0, middle) > epsilon else (low, middle)
    return low


def test_the_page_escapes_names_and_shows_the_claim():
    attacks = (
        AttackResult("canary", Verdict.VIOLATION, "found <b>it</b>", 7.0, "clopper-pearson", 0.5, 10, 1.0),
        AttackResult("density", Verdict.NOTHING, "nothing", math.inf, "x"),
        AttackResult("one-run", Verdict.NOT_RUN, "no scores"),
    )
    found = AuditResult("m:<script>\u202e", Claim(1.0), PublicFacts(), 0.9999, attacks, 2.0)
    page = audit_page(found)
    assert "<script>" not in page
    assert "<b>" not in page
    assert "\u202e" not in page
    assert "claim: 1<" in page
    assert "7 (cut)" in page
    assert found.verdict is Verdict.VIOLATION
    assert found.to_dict()["attacks"][1]["epsilon_found"] == "infinite"
    assert AuditResult("m", Claim(1.0), PublicFacts(), 0.9999, (), 0.0).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("factor", "sentence", "on_page"),
    [
        (None, r" The attacks that were run do not measure the amount of noise\.$", "<dd>not measured</dd>"),
        (0.0, r" So few runs find no lack of noise in the results\. Give it more --seconds", "no lack of noise"),
        (4e-7, r" So few runs find no lack of noise in the results\.", "no lack of noise"),
        (0.5, r" Noise 2 times too small would have been found with probability \.95\.$", "noise 2 times too small"),
    ],
)
def test_the_power_is_said_also_if_there_is_none(factor, sentence, on_page):
    attack = AttackResult("canary", Verdict.NOTHING, "nothing", 0.1, noise_factor=factor)
    found = AuditResult("m", Claim(3.0), PublicFacts(), 0.9999, (attack,), 0.0)
    assert re.search(sentence, found.sentence())
    assert on_page in audit_page(found)


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (0.5, "In any single release noise 2 times too small would have been found."),
        (0.001, "Single releases were measured too few times. Give it more --seconds, or fewer --features."),
    ],
)
def test_the_power_in_single_releases_is_said_if_there_is_any(factor, sentence):
    attack = AttackResult("releases", Verdict.NOTHING, "nothing", noise_factor=factor)
    assert sentence in AuditResult("m", Claim(3.0), PublicFacts(), 0.9999, (attack,), 0.0).sentence()


def result(*attacks, **options):
    return AuditResult("m", Claim(3.0), PublicFacts(), 0.9999, attacks, 0.0, **options)


@pytest.mark.parametrize(("through", "single"), [(0.04, None), (None, None), (0.0, 0.09)])
def test_an_audit_without_power_is_not_green(through, single):
    attacks = [AttackResult("canary", Verdict.NOTHING, "nothing", 0.0, noise_factor=through)]
    attacks += [] if single is None else [AttackResult("releases", Verdict.NOTHING, "nothing", noise_factor=single)]
    found = result(*attacks)
    assert found.verdict is Verdict.TOO_WEAK
    assert "too weak to say" in found.sentence()
    assert found.to_dict()["verdict"] == "too weak to say"
    assert '<div class="verdict weak"><strong>Too weak to say.' in audit_page(found)


def test_power_through_results_and_in_single_releases_are_two_things():
    found = result(
        AttackResult("canary", Verdict.NOTHING, "nothing", 0.0, noise_factor=0.25),
        AttackResult("releases", Verdict.NOTHING, "nothing", noise_factor=0.5),
    )
    assert found.verdict is Verdict.NOTHING
    data = found.to_dict()
    assert data["noise_factor_found_with_probability_0.95"] == 0.25
    assert data["noise_factor_of_single_releases_found_with_probability_0.95"] == 0.5
    page = audit_page(found)
    assert "Would have been found in results</dt><dd>noise 4 times too small" in page
    assert "In any single release</dt><dd>noise 2 times too small" in page


def test_an_infinite_epsilon_is_a_word():
    found = result(AttackResult("density", Verdict.VIOLATION, "found", math.inf))
    assert "epsilon is infinite, 3 is claimed (confidence 99.99%; found by density)" in found.sentence()


def test_the_worst_verdict():
    assert Verdict.worst([Verdict.NOT_RUN, Verdict.NOTHING, Verdict.WEAKNESS]) is Verdict.WEAKNESS
    assert Verdict.worst([]) is Verdict.NOT_RUN


def test_few_pairs_are_different_ones():
    pairs = candidate_pairs(PublicFacts(), "replace-one")
    ordered = different_first(pairs)
    assert sorted(pair.changed for pair in ordered) == sorted(pair.changed for pair in pairs)
    assert ordered[0].all_round
    n_changes = len({pair.change for pair in pairs})
    assert len({pair.change for pair in ordered[:n_changes]}) == n_changes


class _CountedPool:
    """Gives noise, and counts the runs on each table."""

    def __init__(self):
        self.runs, self._rng = {}, np.random.default_rng(5)

    def outputs_of(self, tables, n_runs):
        for table in tables:
            self.runs[id(table)] = self.runs.get(id(table), 0) + n_runs
        return [self._rng.normal(size=(n_runs, 2)) for _ in tables]


def test_a_pilot_compares_no_more_pairs_than_its_runs_can_tell_apart():
    pairs = candidate_pairs(PublicFacts(), "replace-one")
    tried = {}
    for name, claim in (("large", Claim(4.0)), ("small", Claim.gaussian(1.0, 1e-5)), ("tiny", Claim(0.1))):
        pool = _CountedPool()
        pilot = Pilot(pool, pairs, claim, 6000)
        tried[name] = len(pool.runs) // 2, pilot.one_pair
    # 40% of 6000 runs: 40, 8 / .268^2 = 112 and 800 on each of two tables
    assert tried == {"large": (30, False), "small": (10, False), "tiny": (1, True)}
