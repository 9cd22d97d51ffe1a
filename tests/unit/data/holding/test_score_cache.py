"""Results kept between queries are correct after an interruption: everybody is counted exactly once."""

import threading

import numpy as np
import pytest

import dperm.kernels.greedy as greedy_kernels
from dperm.data.design.weights import BoxedWeights, SparseWeights
from dperm.data.holding.holder import DataHolder
from dperm.objective import Logistic
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries.gradients import GradientBlock, predictions
from dperm.queries.greedy import GreedyScores
from dperm.queries.statistics import TargetMoment
from dperm.testing.data import Layout, design_data


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (30, 6)) * (rng.random((30, 6)) < 0.4)
    return design_data(Layout(n=30, n_features=6, intercept=0.0, sparse=True), X, rng.integers(0, 2, 30))


def query(entries):
    return GreedyScores(
        Logistic(), SparseWeights(6, entries, 64.0), 0.25, SeparablePenalty(), (), "GS-r", None, race=(5.0, 1.0)
    )


@pytest.mark.parametrize("n_interrupts", [1, 3])
def test_greedy_scores_are_recomputed_after_an_interruption(monkeypatch, n_interrupts):
    holder, wanted = data(), query({2: 5.0})
    query({}).evaluate(holder)
    real = greedy_kernels.update_sums

    def interrupted(*args):
        real(*args)
        raise KeyboardInterrupt

    for _ in range(n_interrupts):
        monkeypatch.setattr(greedy_kernels, "update_sums", interrupted)
        with pytest.raises(KeyboardInterrupt):
            wanted.evaluate(holder)
        monkeypatch.setattr(greedy_kernels, "update_sums", real)
        query({}).evaluate(holder)
    wanted.evaluate(holder)
    (state,) = (value for key, value in holder.cache.incremental.items() if key[0] == Logistic())
    assert np.array_equal(state.sums, wanted.part(data()))


def test_scores_are_recomputed_after_an_interruption(monkeypatch):
    holder, weights = data(), BoxedWeights(np.linspace(-1.0, 1.0, 6), 64.0)
    real = type(holder.design).scores

    def interrupted(*args):
        raise MemoryError

    monkeypatch.setattr(type(holder.design), "scores", interrupted)
    with pytest.raises(MemoryError):
        predictions(holder, weights)
    monkeypatch.setattr(type(holder.design), "scores", real)
    assert np.array_equal(predictions(holder, weights), predictions(data(), weights))


class HalfLogistic(Logistic):
    """A loss of its own behind the name of another."""

    @property
    def slope_bound(self):
        return 0.5

    def slope(self, z, y):
        return 0.5 * super().slope(z, y)


def test_a_subclass_keeps_its_own_slopes():
    dense = design_data(Layout(n=3, n_features=1, intercept=0.0), np.ones((3, 1)), np.zeros(3))
    value = GradientBlock(HalfLogistic(), BoxedWeights(np.array([50.0]), 64.0), None, (0,)).evaluate(dense)
    assert value[0] == pytest.approx(1.5, rel=1e-3)


def test_queries_of_several_threads_are_serialised(monkeypatch):
    """A query is evaluated while its thread holds the lock, so that no other sees what is half changed."""
    held = []
    monkeypatch.setattr(TargetMoment, "evaluate", lambda self, data: held.append(other_waits(data)) or np.zeros(1))
    calibrated = calibrate(Plan((PlannedRelease(TargetMoment.name, "gaussian", 1),)), Budget(1.0, 1e-6))
    with Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test") as scope:
        holder = DataHolder(data(), scope, RandomSource(), Neighbours.REPLACE_ONE)
        holder.release(TargetMoment(), GaussianNoise(calibrated.noise_multiplier(TargetMoment.name)))
    assert held == [True]


def other_waits(data):
    got = []
    thread = threading.Thread(target=lambda: got.append(data.cache.lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    return got == [False]
