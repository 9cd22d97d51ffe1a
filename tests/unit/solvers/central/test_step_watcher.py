"""A watcher sees the weights of every step: the right ones, and nothing that releases do not determine."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dperm.data.holding.holder import DataHolder
from dperm.objective import L2, Logistic, NoPenalty, Objective
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.boundary import observing
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import (
    BlockDescent,
    CoordinateDescent,
    FrankWolfe,
    GradientDescent,
    GreedyCoordinateDescent,
    Newton,
    StochasticGradientDescent,
    VarianceReducedDescent,
)
from dperm.solvers.base import StepWatcher
from dperm.testing.solvers import problem
from dperm.testing.whole_path.blind import BlindMechanisms

#: every solver that shows its steps, without averaging, so that the last step is the solution
SOLVERS = (
    GreedyCoordinateDescent(n_steps=4),
    BlockDescent(n_rounds=2, n_inner=2, n_blocks=2, averaging=False),
    CoordinateDescent(n_passes=1),
    FrankWolfe(n_steps=4),
    GradientDescent(n_steps=4, averaging=0.0),
    Newton(n_steps=4),
    StochasticGradientDescent(n_steps=4, rate=1.0, averaging=0.0),
    VarianceReducedDescent(n_steps=4, rate=1.0, averaging=0.0),
)


class Watcher(StepWatcher):
    def __init__(self):
        self.reported, self.seen = [], []

    def __call__(self, done, in_all):
        self.reported.append((done, in_all))

    def weights(self, done, in_all, current):
        self.seen.append((done, in_all, current()))


def watched(solver, data, *, seed=0, printed=False):
    objective = Objective(Logistic(), L2(0.01) if isinstance(solver, Newton) else NoPenalty())
    budget, neighbours, watcher = Budget(5.0, 1e-6), Neighbours.ZERO_OUT, Watcher()
    calibrated = solver.printed_noise(budget) if printed else calibrate(solver.plan(objective, data.facts), budget)
    with Scope(calibrated, Ledger(), neighbours, "test", unbounded="seeded") as scope:
        holder = DataHolder(data, scope, RandomSource(seed), neighbours)
        return solver.solve(objective, holder, calibrated, watcher).weights, watcher


def check(solver, solution, watcher):
    counts = [(done, in_all) for done, in_all, _ in watcher.seen]
    assert counts == watcher.reported == [(k + 1, len(counts)) for k in range(len(counts))]
    assert len(counts) >= 4, solver
    np.testing.assert_array_equal(watcher.seen[-1][2], solution)
    assert not np.array_equal(watcher.seen[0][2], solution)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_the_last_step_is_the_solution(solver, coarse):
    check(solver, *watched(solver, problem(n=200)))


@pytest.mark.parametrize("rule", ["GS-s", "GS-r", "GS-q"])
def test_printed_noise_shows_its_steps_too(rule):
    solver = GreedyCoordinateDescent(n_steps=4, rule=rule)
    check(solver, *watched(solver, problem(n=200), printed=True))


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_steps_are_functions_of_releases(solver, coarse):
    """With mechanisms that ignore their input, two tables show the same weights at every step."""
    seen = []
    for table in (0, 1):
        with observing(BlindMechanisms("strong")):
            _, watcher = watched(solver, problem(table, n=200))
        seen.append([weights for _, _, weights in watcher.seen])
    np.testing.assert_array_equal(seen[0], seen[1])
    assert np.abs(seen[0]).max() > 0.0


def test_weights_are_kept_apart_from_later_steps():
    """What a watcher keeps does not change when the solver goes on."""
    _, watcher = watched(GradientDescent(n_steps=4, averaging=0.0), problem(n=200))
    kept = [weights for _, _, weights in watcher.seen]
    assert all(not np.array_equal(one, other) for one, other in pairwise(kept))
