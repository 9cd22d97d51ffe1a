"""Greedy scores: rules, incremental updates on sparse data, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dperm.data.design.weights import BoxedWeights, SparseWeights
from dperm.errors import InvalidInput
from dperm.objective import Huber, Logistic, Squared
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.selection import TwoLevelRace
from dperm.queries import GradientCoordinate, GreedyScores
from dperm.queries.gradients import FullGradient
from dperm.queries.greedy import RULES, ColumnConstants, _RaceState
from dperm.testing import ContractViolation, check_query
from dperm.testing.data import Layout, design_data


def sparse_data(seed=0, n=120, p=150, intercept=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.06)
    layout = Layout(n=n, n_features=p, sparse=True, intercept=intercept)
    return design_data(layout, X, rng.integers(0, 2, n))


def uneven(d, seed=2):
    return ColumnConstants(0.25 * 4.0 ** np.random.default_rng(seed).uniform(-2.0, 2.0, d))


D = 151
EVEN = (0.25, None)
CLIPPED = (0.25, 0.3)
UNEVEN = (uneven(D), ColumnConstants(0.3 * np.sqrt(uneven(D).values)))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("penalty", "numbers"),
    [
        (SeparablePenalty(), EVEN),
        (SeparablePenalty(l1=0.01), CLIPPED),
        (SeparablePenalty(l1=0.01, l2=0.1), EVEN),
        (SeparablePenalty(l1=0.01, l2=0.1), UNEVEN),
        (SeparablePenalty(low=-3.0, high=2.0), UNEVEN),
    ],
)
def test_incremental_scores_equal_a_full_pass_bit_for_bit(rule, penalty, numbers):
    rng = np.random.default_rng(1)
    kept, fresh = sparse_data(), sparse_data()
    d = kept.facts.d
    assert d == D
    entries: dict[int, float] = {}
    smoothness, limit = numbers
    for t in range(40):
        entries = dict(entries)
        column = d - 1 if t % 16 == 15 else int(rng.integers(d))  # the intercept touches every row
        entries[column] = float(np.clip(rng.normal(), penalty.low, penalty.high))
        if t % 7 == 6:
            entries.pop(next(iter(entries)))
        query = GreedyScores(
            Logistic(), SparseWeights(d, entries, 8.0), smoothness, penalty, (d - 1,), rule, limit, race=(5.0, 1e-3)
        )
        race = query.evaluate(kept)
        full = TwoLevelRace(replace(query, race=None).evaluate(fresh), 1e-3, 5.0, query.bound(fresh.facts))
        for part in ("_parts", "_powers", "_totals", "_tops"):
            assert getattr(race, part).tobytes() == getattr(full, part).tobytes()


@pytest.mark.parametrize("numbers", [EVEN, UNEVEN])
def test_a_planted_bug_in_the_update_is_detected(monkeypatch, numbers):
    monkeypatch.setattr(_RaceState, "_move", lambda self, data, query, changed: None)
    with pytest.raises(AssertionError):
        test_incremental_scores_equal_a_full_pass_bit_for_bit("GS-r", SeparablePenalty(), numbers)


def test_limits_of_the_wrong_column_are_detected(monkeypatch):
    monkeypatch.setattr(_RaceState, "_move", _with_shifted_limits(_RaceState._move))
    with pytest.raises(AssertionError):
        test_incremental_scores_equal_a_full_pass_bit_for_bit("GS-r", SeparablePenalty(), UNEVEN)


def _with_shifted_limits(move):
    def planted(self, data, query, changed):
        self.limits = np.roll(query.limits(self.step), 1)
        move(self, data, query, changed)

    return planted


def test_a_different_box_starts_a_new_race():
    data = sparse_data()
    d = data.facts.d
    races = [
        GreedyScores(Logistic(), SparseWeights(d, {3: 0.5}, box), 0.25, SeparablePenalty(), race=(5.0, 1e-3)).evaluate(
            data
        )
        for box in (8.0, 16.0)
    ]
    assert races[0] is not races[1]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.3)])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_one_coordinate_costs_one_column_and_agrees_with_the_block(sparse, loss, clip):
    rng = np.random.default_rng(3)
    layout = Layout(n=50, n_features=6, sparse=sparse)
    X = rng.normal(size=(50, 6)) * (rng.random((50, 6)) < 0.5)
    data = design_data(layout, X, rng.integers(0, 2, 50))
    dense = rng.normal(size=7)
    for j in range(7):
        fast = GradientCoordinate(loss, BoxedWeights(dense, 8.0), clip, (j,)).evaluate(data)
        entries = dict(enumerate(dense.tolist()))
        same = GradientCoordinate(loss, SparseWeights(7, entries, 8.0), clip, (j,)).evaluate(data)
        slow = GradientCoordinate(loss, dense, clip, (j,)).evaluate(data)
        assert fast == same
        assert fast == pytest.approx(slow, abs=1e-4 * 50)
    whole = FullGradient(loss, BoxedWeights(dense, 8.0)).evaluate(data)
    singles = [GradientCoordinate(loss, BoxedWeights(dense, 8.0), None, (j,)).evaluate(data)[0] for j in range(7)]
    assert whole.tolist() == singles


def test_rules_agree_at_zero_and_follow_their_formulas():
    data = sparse_data()
    d, penalty = data.facts.d, SeparablePenalty(l1=0.02)
    at_zero = [
        GreedyScores(Logistic(), SparseWeights(d, {}, 8.0), 0.25, penalty, rule=rule).evaluate(data) for rule in RULES
    ]
    assert (at_zero[0] == at_zero[1]).all()
    assert (at_zero[0] == at_zero[2]).all()
    assert at_zero[0].min() < 0.0  # the margin is not cut off
    query = GreedyScores(Logistic(), SparseWeights(d, {1: 0.5}, 8.0), 0.25, penalty, rule="GS-q")
    gradient = 0.3
    step = math.copysign(max(abs(0.5 - gradient / 0.25) - 0.02 / 0.25, 0.0), 0.5 - gradient / 0.25) - 0.5
    decrease = -(gradient * step + 0.125 * step**2 + 0.02 * (abs(0.5 + step) - 0.5))
    gradients = np.full(d, gradient)
    assert query.scores_of(gradients)[1] == pytest.approx(math.sqrt(2 * decrease))
    curvature = uneven(d).values
    at_zero = GreedyScores(Logistic(), SparseWeights(d, {}, 8.0), uneven(d), penalty).scores_of(gradients)
    assert at_zero == pytest.approx((gradient - 0.02) / np.sqrt(curvature))
    query = GreedyScores(Logistic(), SparseWeights(d, {1: 0.5}, 8.0), uneven(d), penalty, rule="GS-r")
    away = 0.5 - gradient / curvature[1]
    step = math.copysign(max(abs(away) - 0.02 / curvature[1], 0.0), away) - 0.5
    assert query.scores_of(gradients)[1] == pytest.approx(math.sqrt(curvature[1]) * abs(step))
    query = GreedyScores(Logistic(), SparseWeights(d, {1: 0.5}, 8.0), uneven(d), penalty, rule="GS-s")
    assert query.scores_of(gradients)[1] == pytest.approx((gradient + 0.02) / math.sqrt(curvature[1]))


def test_excluded_candidates_keep_their_coordinates():
    data = sparse_data()
    d = data.facts.d
    query = GreedyScores(Logistic(), SparseWeights(d, {}, 8.0), 0.25, SeparablePenalty(), excluded=(0, 5, d - 1))
    scores = query.evaluate(data)
    assert len(scores) == query.size(data.facts) == d - 3
    everything = replace(query, excluded=()).evaluate(data)
    assert [everything[query.coordinate(k)] for k in range(d - 3)] == scores.tolist()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rule": "GS-z"}, "rule must be"),
        ({"smoothness": 0.0}, r"smoothness must be (above 0|a finite number), got"),
        ({"limit": -1.0}, r"limit must be (above 0|a finite number), got"),
        ({"loss": Squared()}, "bounded slopes"),
        ({"penalty": SeparablePenalty(low=0.1, high=1.0)}, "must contain it"),
        ({"penalty": SeparablePenalty(low=-0.1, high=0.1), "weights": SparseWeights(4, {0: 1.0}, 8.0)}, "inside"),
    ],
)
def test_bad_fields_are_refused(changes, says):
    given = {
        "loss": Logistic(),
        "weights": SparseWeights(4, {}, 8.0),
        "smoothness": 0.25,
        "penalty": SeparablePenalty(),
    }
    with pytest.raises(InvalidInput, match=says):
        GreedyScores(**{**given, **changes})


def test_sensitivity_is_the_same_at_every_step():
    data = sparse_data()
    d = data.facts.d
    values = {
        GreedyScores(Logistic(), SparseWeights(d, entries, 8.0), 0.25, SeparablePenalty()).sensitivity(
            data.facts, Neighbours.REPLACE_ONE
        )
        for entries in ({}, {1: 3.0}, {2: -8.0, 9: 1.0})
    }
    assert len(values) == 1


# -------------------------------------------------------------------------------------------- numbers of single columns
@pytest.mark.parametrize("values", [(1.0, 0.0), (1.0, math.nan), (1.0, math.inf), ((1.0,), (2.0,)), 1.0])
def test_bad_column_constants_are_refused(values):
    with pytest.raises(InvalidInput, match="one for each column"):
        ColumnConstants(values)


def test_a_wrong_number_of_column_constants_is_refused_before_the_charge():
    facts = sparse_data().facts
    for changes in ({"smoothness": ColumnConstants((1.0, 2.0))}, {"limit": ColumnConstants((1.0, 2.0))}):
        given = {"smoothness": 0.25, **changes}
        query = GreedyScores(Logistic(), SparseWeights(D, {}, 8.0), penalty=SeparablePenalty(), **given)
        with pytest.raises(InvalidInput, match="one per column, not 2"):
            query.size(facts)


def test_column_constants_cannot_be_changed_afterwards():
    values = np.ones(3)
    numbers = ColumnConstants(values)
    values[0] = 5.0
    assert numbers.values.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        numbers.values[0] = 2.0


def test_the_sensitivity_is_that_of_the_worst_column():
    facts = sparse_data().facts
    smoothness, limits = np.full(D, 0.25), np.full(D, 0.4)
    smoothness[3], limits[3] = 0.01, 0.3
    query = GreedyScores(
        Logistic(),
        SparseWeights(D, {}, 8.0),
        ColumnConstants(smoothness),
        SeparablePenalty(),
        limit=ColumnConstants(limits),
    )
    assert query.zero_out_sensitivity(facts) == pytest.approx(0.3 / (facts.n * 0.1), rel=1e-6)
    # limits in proportion to the root of the curvature: every column has the same
    query = GreedyScores(Logistic(), SparseWeights(D, {}, 8.0), UNEVEN[0], SeparablePenalty(), limit=UNEVEN[1])
    assert query.zero_out_sensitivity(facts) == pytest.approx(0.3 / facts.n, rel=1e-6)


def test_the_constant_column_counts_with_its_own_height():
    low = sparse_data(intercept=0.25).facts
    steep = ColumnConstants(np.append(np.full(D - 1, 0.25), 0.25 * 0.25**2))
    query = GreedyScores(Logistic(), SparseWeights(D, {}, 8.0), steep, SeparablePenalty())
    assert query.zero_out_sensitivity(low) == pytest.approx(1.0 / (low.n * 0.5), rel=1e-6)


class TakesTheMeanCurvature(GreedyScores):
    """Divides by the mean root of the curvature instead of looking for the worst column."""

    def zero_out_sensitivity(self, facts):
        return self.person_bound(facts) / (facts.n * np.sqrt(self.curvature).mean())


class ForgetsTheLimitsOfSomeColumns(GreedyScores):
    """Clips every second column only."""

    def limits(self, step):
        limits = super().limits(step).copy()
        limits[::2] = np.inf
        return limits


class MixesUpTheColumns(GreedyScores):
    """Scores a column with its neighbour's curvature."""

    @property
    def _rule(self):
        roots, curvature, *others = super()._rule
        return np.roll(roots, 1), np.roll(curvature, 1), *others


def uneven_queries(kind):
    def make(rng, facts):
        smoothness = ColumnConstants(0.2 * 16.0 ** np.linspace(-1.0, 1.0, facts.d))
        limits = ColumnConstants(0.2 * np.sqrt(smoothness.values))
        weights = SparseWeights(facts.d, {j: float(rng.normal()) for j in range(facts.d)}, 1e4)
        return [
            kind(Logistic(), weights, smoothness, SeparablePenalty(l1=0.05, l2=0.3), (facts.d - 1,), "GS-r", limit)
            for limit in (limits, ColumnConstants(np.full(facts.d, 0.3)))
        ]

    return make


def test_uneven_columns_keep_the_common_sensitivity():
    assert check_query(uneven_queries(GreedyScores), n_random=1) > 0.9


@pytest.mark.parametrize("bug", [TakesTheMeanCurvature, ForgetsTheLimitsOfSomeColumns, MixesUpTheColumns])
def test_planted_bugs_of_uneven_columns_are_caught(bug):
    with pytest.raises(ContractViolation, match="times its declared"):
        check_query(uneven_queries(bug), n_random=1)
