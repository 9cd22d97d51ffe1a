"""Greedy scores: rules, incremental updates on sparse data, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm.data.weights import BoxedWeights, SparseWeights
from dperm.errors import InvalidInput
from dperm.objective import Huber, Logistic
from dperm.objective.separable import SeparablePenalty
from dperm.privacy.neighbours import Neighbours
from dperm.queries import GradientCoordinate, GreedyScores
from dperm.queries.gradients import FullGradient
from dperm.queries.greedy import RULES
from dperm.testing.data import Layout, design_data


def sparse_data(seed=0, n=120, p=150, intercept=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.06)
    layout = Layout(n=n, n_features=p, sparse=True, intercept=intercept)
    return design_data(layout, X, rng.integers(0, 2, n))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("penalty", "limit"),
    [(SeparablePenalty(), None), (SeparablePenalty(l1=0.01), 0.3), (SeparablePenalty(l1=0.01, l2=0.1), None)],
)
def test_incremental_scores_equal_a_full_pass_bit_for_bit(rule, penalty, limit):
    rng = np.random.default_rng(1)
    kept, fresh = sparse_data(), sparse_data()
    d = kept.facts.d
    entries: dict[int, float] = {}
    for t in range(40):
        entries = dict(entries)
        entries[int(rng.integers(d))] = float(rng.normal())
        if t % 7 == 6:
            entries.pop(next(iter(entries)))
        query = GreedyScores(
            Logistic(), SparseWeights(d, entries, 8.0), 0.25, penalty, (d - 1,), rule, limit, race=(5.0, 1e-3)
        )
        race = query.evaluate(kept)
        full = query.scores(fresh)
        table = race._table.ravel()[:d]
        assert (table == np.clip(full, -race.bound, race.bound) / race.scale).all()


def test_a_planted_slip_in_the_update_is_seen(monkeypatch):
    from dperm.queries.greedy import _State

    monkeypatch.setattr(_State, "_move", lambda self, data, query, changed: None)
    with pytest.raises(AssertionError):
        test_incremental_scores_equal_a_full_pass_bit_for_bit("GS-r", SeparablePenalty(), None)


def test_another_box_starts_another_race():
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
        GreedyScores(Logistic(), SparseWeights(d, {}, 8.0), 0.25, penalty, rule=rule).scores(data) for rule in RULES
    ]
    assert (at_zero[0] == at_zero[1]).all()
    assert (at_zero[0] == at_zero[2]).all()
    assert at_zero[0].min() < 0.0  # the margin is not cut off
    query = GreedyScores(Logistic(), SparseWeights(d, {1: 0.5}, 8.0), 0.25, penalty, rule="GS-q")
    gradient = 0.3
    step = math.copysign(max(abs(0.5 - gradient / 0.25) - 0.02 / 0.25, 0.0), 0.5 - gradient / 0.25) - 0.5
    decrease = -(gradient * step + 0.125 * step**2 + 0.02 * (abs(0.5 + step) - 0.5))
    assert query.one(gradient, 1) == pytest.approx(math.sqrt(2 * decrease))


def test_excluded_candidates_keep_their_places():
    data = sparse_data()
    d = data.facts.d
    query = GreedyScores(Logistic(), SparseWeights(d, {}, 8.0), 0.25, SeparablePenalty(), excluded=(0, 5, d - 1))
    scores = query.evaluate(data)
    assert len(scores) == query.size(data.facts) == d - 3
    everything = query.scores(data)
    assert [everything[query.coordinate(k)] for k in range(d - 3)] == scores.tolist()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rule": "GS-z"}, "rule must be"),
        ({"smoothness": 0.0}, "smoothness must be positive"),
        ({"limit": -1.0}, "limit must be positive"),
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
