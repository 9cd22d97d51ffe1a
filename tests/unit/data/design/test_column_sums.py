"""Sums of single columns along a run of single changes equal recomputed ones, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.data.design import column_sums as columns
from dperm.data.design.column_sums import ColumnSums
from dperm.data.design.weights import BoxedWeights
from dperm.errors import InvalidInput
from dperm.objective import Huber, Logistic, SmoothedHinge, Squared
from dperm.queries import FullGradient, GradientBlock
from dperm.testing.data import Layout, design_data

LOSSES = [Logistic(), Huber(0.3), Squared(residual_clip=0.8), SmoothedHinge(0.5)]


def data_of(n=37, n_features=6, sparse=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features)) * (rng.random((n, n_features)) < 0.7)
    return design_data(Layout(n=n, n_features=n_features, sparse=sparse), X, rng.integers(0, 2, n))


def walk(rng, d, n_steps):
    """Single moves, moves to the same value, the same weights twice, and now and then weights from nowhere."""
    weights = BoxedWeights(np.zeros(d), 8.0)
    for t in range(n_steps):
        kind = rng.integers(8)
        if kind == 0:
            weights = BoxedWeights(rng.normal(size=d), 8.0 if t % 2 else 16.0)
        elif kind == 1:
            other = weights.values.copy()
            other[rng.choice(d, 2, replace=False)] = rng.normal(size=2)
            weights = BoxedWeights(other, weights.box)
        elif kind == 2:
            j = int(rng.integers(d))
            weights = weights.with_weight(j, float(weights.values[j]))
        elif kind > 3:
            weights = weights.with_weight(int(rng.integers(d)), float(10.0 * rng.normal()))
            if kind == 7:  # two moves between two questions
                weights = weights.with_weight(int(rng.integers(d)), float(rng.normal()))
        yield weights, int(rng.integers(d))


def first_difference(data, loss, clip, n_steps=120, seed=1):
    rng = np.random.default_rng(seed)
    for t, (weights, column) in enumerate(walk(rng, data.facts.d, n_steps)):
        query = GradientBlock(loss, weights, clip, (column,))
        afresh = GradientBlock(loss, BoxedWeights(weights.values, weights.box), clip, (column,))
        if query.evaluate(data).tobytes() != afresh.evaluate(data_of(sparse=not data.design.dense)).tobytes():
            return t
    return None


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_run_equals_single_queries(loss, clip, sparse):
    assert first_difference(data_of(sparse=sparse), loss, clip) is None


def test_a_run_on_many_rows_equals_single_queries():
    """With many rows slopes have few bits and are computed in single precision, strip by strip."""
    n = 5000
    data, fresh = data_of(n), data_of(n)
    for weights, column in walk(np.random.default_rng(5), 7, 60):
        query = GradientBlock(Logistic(), weights, 0.3, (column,))
        fresh.cache.columns = ColumnSums()
        value = query.evaluate(data)
        assert data.cache.columns._slopes.dtype == np.float32
        assert value.tobytes() == query.evaluate(fresh).tobytes()
        inside = np.clip(weights.values, -weights.box, weights.box)
        whole = FullGradient(Logistic(), inside, None).evaluate(data)[column]
        loose = GradientBlock(Logistic(), weights, None, (column,)).evaluate(data)[0]
        # a slope is off by a step or two, and the weights' grids differ
        assert abs(loose - whole) <= 1e-6 * n


def test_repeated_changes_and_pauses_equal_single_queries():
    """Slopes are written down only where they may serve again."""
    n, rng = 5000, np.random.default_rng(6)
    data, fresh, weights = data_of(n), data_of(n), BoxedWeights(np.zeros(7), 8.0)
    held = set()
    for moves in (1, 0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 0):
        if moves:
            weights = weights.with_weight(int(rng.integers(7)), float(rng.normal()))
        query = GradientBlock(Logistic(), weights, 0.3, (int(rng.integers(7)),))
        fresh.cache.columns = ColumnSums()
        assert query.evaluate(data).tobytes() == query.evaluate(fresh).tobytes()
        held.add((moves, data.cache.columns._slopes_are_current))
    assert held == {(1, True), (1, False), (0, True)}


def test_losses_may_alternate():
    data, rng = data_of(), np.random.default_rng(2)
    for t, (weights, column) in enumerate(walk(rng, 7, 40)):
        loss = LOSSES[t % 4]
        query = GradientBlock(loss, weights, 0.3, (column,))
        assert query.evaluate(data).tolist() == query.evaluate(data_of()).tolist()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_dense_and_sparse_designs_agree(loss):
    dense, sparse = data_of(), data_of(sparse=True)
    for weights, column in walk(np.random.default_rng(3), 7, 40):
        query = GradientBlock(loss, weights, 0.3, (column,))
        assert query.evaluate(dense).tolist() == query.evaluate(sparse).tolist()


def test_an_interrupted_query_leaves_no_half_updated_state(monkeypatch):
    data, weights = data_of(), BoxedWeights(np.zeros(7), 8.0)
    GradientBlock(Logistic(), weights, None, (0,)).evaluate(data)
    moved = weights.with_weight(2, 0.7)
    with monkeypatch.context() as patch:
        patch.setattr(columns, "_kernels", lambda: None)
        with pytest.raises(AttributeError):
            GradientBlock(Logistic(), moved, None, (1,)).evaluate(data)
    query = GradientBlock(Logistic(), moved, None, (1,))
    assert query.evaluate(data).tolist() == query.evaluate(data_of()).tolist()


class ForgetsTheMove(ColumnSums):
    def _update_scores(self, design, weights):
        found = super()._update_scores(design, weights)
        return None if found is None else (found[0], 0.0)


class KeepsOldSlopes(ColumnSums):
    def _update_scores(self, design, weights):
        hold, found = self._slopes_are_current, super()._update_scores(design, weights)
        self._slopes_are_current = hold
        return found


@pytest.mark.parametrize("bug", [ForgetsTheMove, KeepsOldSlopes])
def test_planted_bugs_are_caught(bug):
    data = data_of()
    data.cache.columns = bug()
    assert first_difference(data, Logistic(), None) is not None


def test_weights_do_not_change_under_a_query():
    weights = BoxedWeights(np.zeros(3), 8.0)
    moved = weights.with_weight(1, 0.5)
    assert weights.values.tolist() == [0.0, 0.0, 0.0]
    assert (moved.changed_column(weights), moved.changed_column(None), weights.changed_column(moved)) == (1, None, None)
    with pytest.raises(ValueError, match="read-only"):
        moved.values[0] = 1.0
    with pytest.raises(InvalidInput, match="finite"):
        weights.with_weight(0, float("nan"))
