"""Newton: a step without noise computed by hand, and the effect of its options."""

from __future__ import annotations

import numpy as np
import pytest

from dperm import Ledger
from dperm.data.holding.holder import DataHolder
from dperm.objective import L2, Logistic, Objective, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import Newton
from dperm.testing.data import Layout, design_data

LAYOUT = Layout(n=400, n_features=3, clip=1.0, intercept=0.5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (LAYOUT.n, 3)) @ np.diag([1.0, 0.3, 0.1])
    return design_data(LAYOUT, X, rng.random(LAYOUT.n) < 1 / (1 + np.exp(-3.0 * X[:, 0])))


def run(solver, objective, data, scale=1e-9):
    calibrated = CalibratedPlan(solver.plan(objective, data.facts), scale, Budget(1e8, 1e-6))
    scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test", unbounded="next to no noise")
    with scope:
        holder = DataHolder(data, scope, RandomSource(1), Neighbours.REPLACE_ONE)
        return solver.solve(objective, holder, calibrated).weights, holder


def rows_of(data):
    return np.vstack([block for _, block in data.design.row_chunks()]) * data.design.spacing


@pytest.mark.parametrize(("loss", "bend"), [(Logistic(), 0.25), (Squared(residual_clip=50.0), 1.0)])
def test_one_step_is_the_newton_step_of_the_bound(data, loss, bend):
    """The intercept, which carries no penalty, has none in the metric either."""
    objective = Objective(loss, L2(0.2), unpenalised=(3,))
    found, _ = run(Newton(n_steps=1, clip=1e9, row_clip=1e9, step=0.7), objective, data)
    X = rows_of(data)
    slopes = loss.slope(np.zeros(len(X)), data.target)
    metric = bend * X.T @ X / len(X) + np.diag([0.2, 0.2, 0.2, 0.0])
    assert found == pytest.approx(-0.7 * np.linalg.solve(metric, X.T @ slopes / len(X)), rel=1e-5, abs=1e-7)


def test_two_steps_also_carry_the_penalty(data):
    objective = Objective(Squared(residual_clip=50.0), L2(0.2), unpenalised=(3,))
    found, _ = run(Newton(n_steps=60, clip=1e9, row_clip=1e9), objective, data)
    X = rows_of(data)
    best = np.linalg.solve(X.T @ X / len(X) + np.diag([0.2, 0.2, 0.2, 0.0]), X.T @ data.target / len(X))
    assert found == pytest.approx(best, rel=1e-5)


def test_rows_are_shortened_to_the_limit_that_is_charged(data):
    wide, short = (run(Newton(n_steps=1, row_clip=c), Objective(Logistic()), data)[1].released[0] for c in (1.0, 0.25))
    assert (wide.query, wide.kind) == ("second moment", "gaussian")
    assert wide.sensitivity / short.sensitivity == pytest.approx(16.0, rel=1e-6)


@pytest.mark.parametrize("share", [0.15, 0.6])
def test_the_curvature_gets_its_share(data, share):
    curvature, gradients = Newton(n_steps=5, curvature_share=share).plan(Objective(Logistic()), data.facts).releases
    assert curvature.share / (curvature.share + gradients.share) == pytest.approx(share)
    assert (curvature.count, gradients.count) == (1, 5)


@pytest.mark.parametrize(("loss", "bend"), [(Logistic(), 0.25), (Squared(residual_clip=2.0), 1.0)])
def test_a_step_is_no_longer_than_the_noise_of_its_metric_allows(loss, bend):
    """Few people and a small epsilon: directions that the noise hides count as bent as the noise, never as flat."""
    layout, solver = Layout(n=60, n_features=5, clip=1.0), Newton(n_steps=1, row_clip=1.0)
    rng = np.random.default_rng(2)
    small = design_data(layout, rng.uniform(-1.0, 1.0, (60, 5)), rng.random(60) < 0.5)
    objective = Objective(loss)
    calibrated = CalibratedPlan(solver.plan(objective, small.facts), 5.0, Budget(1.0, 1e-6))
    lengths = []
    for seed in range(20):
        with Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test", unbounded="noise by hand") as scope:
            holder = DataHolder(small, scope, RandomSource(seed), Neighbours.REPLACE_ONE)
            weights = solver.solve(objective, holder, calibrated).weights
        curvature, gradient = (one.noise_scale / small.facts.n for one in holder.released)
        # the mean of clipped gradients, and no noise of five numbers is longer than 6 of them in 20 draws
        longest = 0.25 * loss.slope_bound * small.facts.row_bound + 6.0 * gradient
        lengths.append(np.linalg.norm(weights) * bend * curvature * np.sqrt(2.0 * 5) / (solver.step * longest))
    assert max(lengths) < 1.0
    assert max(lengths) > 0.2  # the floor is what rules here
