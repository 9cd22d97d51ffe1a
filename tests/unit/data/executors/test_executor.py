"""Blocks and placed data: what is kept is guarded, and raw data cannot be pickled with them by mistake."""

from __future__ import annotations

import pickle
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from dperm.data.design.matrix import DesignMatrix
from dperm.data.design.scaling import Scaling
from dperm.data.design.weights import SparseWeights
from dperm.data.executors.executor import Block, PlacedData, TargetView, bounded_part
from dperm.data.executors.placing import place
from dperm.data.holding.holder import added
from dperm.errors import InvalidData, PlanViolation
from dperm.objective import Logistic
from dperm.objective.penalties import SeparablePenalty
from dperm.queries import FirstMoment, GreedyScores

N, P = 300, 6
PLAIN = Scaling(np.zeros(P), np.ones(P), 1.0)


def rows():
    return np.random.default_rng(0).normal(size=(N, P))


def test_a_block_needs_a_target_for_every_row():
    with pytest.raises(InvalidData, match="X changed"):
        Block(DesignMatrix.from_array(rows(), PLAIN), np.zeros(N - 1), 0)


def test_parts_of_different_shapes_are_no_sum():
    with pytest.raises(PlanViolation, match="different shapes"):
        added([np.zeros(3), np.ones(1)])


@pytest.mark.parametrize("part", [np.zeros(5), np.zeros(4, np.float32), [0.0] * 4], ids=["large", "single", "list"])
def test_a_part_that_is_not_as_declared_stays_on_its_worker(part):
    class Planted(FirstMoment):
        def part(self, block):
            return part

    block = Block(DesignMatrix.from_array(rows(), PLAIN), np.zeros(N), 0)
    with pytest.raises(PlanViolation, match="nothing of it was sent"):
        bounded_part(block, Planted(), TargetView(), 4)
    assert bounded_part(block, FirstMoment(), TargetView(), P).shape == (P,)


def test_executors_and_placed_data_cannot_be_pickled():
    executor = place(rows(), np.zeros(N), PLAIN)
    for thing in (executor, PlacedData(executor)):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


def test_a_block_that_was_sent_has_the_same_parts_and_digest():
    block = Block(DesignMatrix.from_array(rows(), PLAIN), np.zeros(N), 0)
    wanted = block.part(FirstMoment(), TargetView()), block.digest(b"key")
    sent = pickle.loads(pickle.dumps(block))
    assert np.array_equal(sent.part(FirstMoment(), TargetView()), wanted[0])
    assert sent.digest(b"key") == wanted[1]
    other = Block(DesignMatrix.from_array(rows()[::-1], PLAIN), np.zeros(N), 0)
    assert other.digest(b"key") != wanted[1]
    assert block.digest(b"other") != wanted[1]


def test_two_threads_on_one_table_keep_right_scores():
    """Scores of greedy descent are changed in place: a second thread must wait."""
    X = sp.csr_array(np.where(rows() > 1.0, rows(), 0.0))
    data = PlacedData(place(X, np.arange(N) % 2.0, PLAIN, 1.0))

    def query(value):
        weights = SparseWeights(P + 1, {1: value, 3: -value}, 8.0)
        return GreedyScores(Logistic(), weights, 0.25, SeparablePenalty(), race=(5.0, 1e-3))

    def work(sign):
        for k in range(40):
            query(sign * 0.1 * k).evaluate(data)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(sign,)) for sign in (1.0, -1.0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    fresh = PlacedData(place(X, np.arange(N) % 2.0, PLAIN, 1.0))
    for part in ("_parts", "_powers", "_totals", "_tops"):
        kept, new = (getattr(query(0.7).evaluate(one), part) for one in (data, fresh))
        assert kept.tobytes() == new.tobytes()


def test_the_same_weights_in_another_box_have_their_own_scores():
    data = PlacedData(place(rows(), np.zeros(N), PLAIN, 1.0))

    def scores(box, where):
        weights = SparseWeights(P + 1, {0: 7.5}, box)
        return GreedyScores(Logistic(), weights, 0.25, SeparablePenalty()).evaluate(where)

    scores(8.0, data)
    fresh = PlacedData(place(rows(), np.zeros(N), PLAIN, 1.0))
    assert np.array_equal(scores(5.0, data), scores(5.0, fresh))
