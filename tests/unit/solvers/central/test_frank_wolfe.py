"""Private Frank-Wolfe: without noise the best point of the l1 ball, with noise what its plan says."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp
from planted import private_data
from scipy.optimize import minimize

from dperm import Ledger
from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.design.weights import SparseWeights
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import (
    L1,
    L2,
    Box,
    BoxPenalty,
    ElasticNet,
    GroupL2,
    Huber,
    L1Ball,
    Logistic,
    Multinomial,
    NoPenalty,
    Objective,
    SmoothedHinge,
    Squared,
)
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import NoisyMax
from dperm.privacy.randomness import RandomSource
from dperm.queries import PenalisedAtomScores
from dperm.solvers import SOLVERS, FrankWolfe, Solution
from dperm.solvers.theory.curvature import jaggi_bound
from dperm.testing import (
    ContractViolation,
    check_gradient_canary,
    check_ledger_is_plan,
    check_noise_free_limit,
    check_non_interference,
    check_query,
)
from dperm.testing.data import Layout, design_data
from dperm.testing.solvers import problem as classification

D = 6


def regression(n=150, seed=0, intercept=1.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, D))
    X[:, 1] = 0.7 * X[:, 0] + 0.3 * X[:, 1]  # some correlation, so that corners must be mixed
    y = X @ np.array([1.0, -0.8, 0.0, 0.3, 0.0, 0.0]) + 0.4 + 0.2 * rng.normal(size=n)
    made = design_data(Layout(n=n, n_features=D, intercept=intercept), X, np.zeros(n))
    return DesignData(made.design, y, -3.0, 3.0)


def array(data):
    return np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])


def run(solver, objective, data, budget=None, seed=0):
    """Solve with the noise of a budget, or next to none."""
    plan = solver.plan(objective, data.facts)
    calibrated = CalibratedPlan(plan, 1e-9, Budget(1e8, 1e-6)) if budget is None else calibrate(plan, budget)
    scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test")
    with scope:
        holder = DataHolder(data, scope, RandomSource(seed), Neighbours.REPLACE_ONE)
        return solver.solve(objective, holder, calibrated), holder


def best_in_ball(objective, X, y, radius):
    """Trusted optimum over the ball, by SLSQP on w = a - b with sum(a + b) <= radius."""
    d = X.shape[1]
    l1 = np.full(d, SeparablePenalty.of(objective.penalty).l1)
    l2 = np.full(d, SeparablePenalty.of(objective.penalty).l2)
    l1[list(objective.unpenalised)] = l2[list(objective.unpenalised)] = 0.0

    def value(ab):
        w = ab[:d] - ab[d:]
        smooth = objective.gradient(X, y, w) + l2 * w
        loss = Objective(objective.loss).value(X, y, w)
        return loss + l2 @ w**2 / 2 + l1 @ (ab[:d] + ab[d:]), np.concatenate([smooth + l1, l1 - smooth])

    found = minimize(
        value,
        np.full(2 * d, 0.01),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, None)] * (2 * d),
        constraints={"type": "ineq", "fun": lambda ab: radius - ab.sum(), "jac": lambda ab: -np.ones(2 * d)},
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert found.success
    return found.x[:d] - found.x[d:]


# -------------------------------------------------------------------------------------------------- noise-free limit
def tolerance(radius):
    """The gap after a number of rounds grows with the square of the radius."""
    return 3e-5 * max(10.0, radius**2)


@pytest.mark.parametrize("loss", [Squared(residual_clip=50.0), Huber(0.3)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("radius", [0.8, 1.6, 4.0])
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_without_noise_it_is_the_best_point_of_the_ball(loss, radius, intercept):
    data = regression(intercept=intercept)
    objective = Objective(loss, constraint=L1Ball(radius), unpenalised=(D,) if intercept else ())
    solution, _ = run(FrankWolfe(n_steps=600), objective, data)
    X = array(data)
    best = best_in_ball(objective, X, data.target, radius)  # the intercept counts in the norm, in both
    gap = objective.value(X, data.target, solution.weights) - objective.value(X, data.target, best)
    assert -1e-7 < gap < tolerance(radius)
    assert np.abs(solution.weights).sum() <= radius * (1 + 1e-12)
    if radius < 2.0:  # in a large ball two correlated columns leave a flat direction
        np.testing.assert_allclose(solution.weights, best, atol=0.05)


@pytest.mark.parametrize(
    "penalty", [L1(0.05), L2(0.2), ElasticNet(0.1, l1_ratio=0.5), NoPenalty()], ids=lambda p: p.name
)
@pytest.mark.parametrize("radius", [1.0, 4.0])
def test_a_penalty_is_minimised_inside_the_ball(penalty, radius):
    data = regression()
    objective = Objective(Huber(1.0), penalty, unpenalised=(D,))
    solution, _ = run(FrankWolfe(n_steps=600, radius=radius), objective, data)
    X = array(data)
    best = objective.value(X, data.target, best_in_ball(objective, X, data.target, radius))
    assert -1e-7 < objective.value(X, data.target, solution.weights) - best < tolerance(radius)


def test_the_origin_is_a_candidate_with_an_l1_penalty():
    data = regression(intercept=0.0)
    solution, holder = run(FrankWolfe(n_steps=20, radius=1.0), Objective(Huber(1.0), L1(10.0)), data)
    assert not solution.weights.any()
    assert {line.size for line in holder.released} == {2 * D + 1}


def test_it_is_the_textbook_loop_under_jaggis_bound():
    data = regression()
    objective, radius = Objective(Huber(1.0)), 1.5
    X, w = array(data), np.zeros(D + 1)
    best = objective.value(X, data.target, best_in_ball(objective, X, data.target, radius))
    # curvature over the ball: (2 radius)^2 times the largest mean square of a column
    curvature = 4.0 * radius**2 * np.square(X).mean(axis=0).max()
    for t in range(12):
        w = w + 2.0 / (t + 2.0) * (L1Ball(radius).best_atom(objective.gradient(X, data.target, w)) - w)
        solution, _ = run(FrankWolfe(n_steps=t + 1, radius=radius), objective, data)
        np.testing.assert_allclose(solution.weights, w, atol=1e-12)
        assert objective.value(X, data.target, w) - best <= jaggi_bound(curvature, t + 1)


def test_sparse_and_dense_designs_give_the_same_weights():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (80, 30)) * (rng.random((80, 30)) < 0.2)
    y = (X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=80) > 0.0).astype(float)
    scaling = Scaling(np.zeros(30), np.ones(30), 1.0)
    objective = Objective(Logistic(), constraint=L1Ball(3.0), unpenalised=(30,))
    dense, sparse = (
        run(
            FrankWolfe(n_steps=15),
            objective,
            DesignData(DesignMatrix.from_array(A, scaling, 1.0), y),
            Budget(9.0, 1e-6),
        )[0]
        for A in (X, sp.csr_array(X))
    )
    np.testing.assert_array_equal(dense.weights, sparse.weights)
    assert 0 < np.count_nonzero(dense.weights) <= 15


# ------------------------------------------------------------------------------------------------------ plan and noise
def test_the_plan_is_its_selections():
    solver = FrankWolfe(n_steps=17, radius=2.0)
    plans = {
        repr(solver.plan(Objective(Logistic()), Facts(n=n, n_features=d, d=d, value_bound=b, row_bound=b)))
        for n, d, b in ((10, 2, 1.0), (10**6, 50, 9.0))
    }
    assert len(plans) == 1
    (release,) = solver.plan(Objective(Logistic()), Facts(n=1, n_features=1, d=1)).releases
    assert (release.query, release.kind, release.count) == ("atom scores", "selection", 17)


def test_every_release_has_the_sensitivity_of_one_person():
    data = regression()
    _, holder = run(FrankWolfe(n_steps=5, radius=2.0), Objective(Huber(0.5)), data, Budget(1.0, 1e-6))
    (line,) = {(r.query, r.kind, r.size, r.sensitivity) for r in holder.released}
    assert line[:3] == ("atom scores", "selection", 2 * (D + 1))
    assert line[3] == pytest.approx(2 * 0.5 * data.facts.value_bound)
    _, holder = run(FrankWolfe(n_steps=5, radius=2.0), Objective(Huber(0.5), L2(0.3)), data, Budget(1.0, 1e-6))
    assert [r.sensitivity for r in holder.released] == pytest.approx([line[3]] * 5, rel=1e-9)


def test_with_noise_the_iterates_stay_sparse_and_in_the_ball():
    data = regression()
    for seed in range(5):
        solution, _ = run(FrankWolfe(n_steps=4, radius=2.0), Objective(Huber(0.5)), data, Budget(1.0, 1e-6), seed)
        assert np.count_nonzero(solution.weights) <= 4
        assert np.abs(solution.weights).sum() <= 2.0 * (1 + 1e-12)


def test_a_moderate_budget_beats_predicting_nothing():
    data = regression(n=3000, seed=1)
    objective, X = Objective(Huber(0.5)), array(data)
    null = objective.value(X, data.target, np.zeros(D + 1))
    values = [
        objective.value(X, data.target, run(FrankWolfe(16, 1.6), objective, data, Budget(1.0, 1e-6), seed)[0].weights)
        for seed in range(5)
    ]
    assert np.mean(values) < 0.7 * null


def test_progress_tells_only_how_far_it_is():
    data, calls = regression(n=20), []
    solver, objective = FrankWolfe(n_steps=3), Objective(Logistic())
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(1.0, 1e-6))
    with Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test") as scope:
        holder = DataHolder(data, scope, RandomSource(0), Neighbours.REPLACE_ONE)
        solver.solve(objective, holder, calibrated, lambda *args: calls.append(args))
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_the_radius_is_public():
    facts = Facts(n=10, n_features=2, d=2, spread=0.5, target_low=-1.0, target_high=3.0)
    assert FrankWolfe().radius_for(Objective(Logistic()), facts) == 8.0
    assert FrankWolfe().radius_for(Objective(Huber(1.0)), facts) == 4.0
    assert FrankWolfe(radius=3).radius_for(Objective(Huber(1.0)), facts) == 3.0
    assert FrankWolfe(radius=3).radius_for(Objective(Huber(1.0), constraint=L1Ball(2.0)), facts) == 2.0


# ---------------------------------------------------------------------------------------------- the query, planted bugs
def penalised(rng, facts, kind=PenalisedAtomScores):
    entries = {int(j): float(rng.uniform(-5.0, 5.0)) for j in range(facts.d) if rng.random() < 0.5}
    return [
        kind(loss, SparseWeights(facts.d, chosen, 5.0), part, (facts.d - 1,))
        for loss in (Logistic(), SmoothedHinge(0.5))
        for chosen in ({}, entries)
        for part in (SeparablePenalty(l1=0.1), SeparablePenalty(l1=0.05, l2=0.3), SeparablePenalty(l2=2.0))
    ]


class ForgetsTheSecondRecord(PenalisedAtomScores):
    replacement_ratio = 1.0


class ForgetsThePenaltyInItsBound(PenalisedAtomScores):
    def bound(self, facts):
        return 0.4 * facts.n * self.loss.slope_bound * facts.value_bound

    def zero_out_sensitivity(self, facts):
        return self.loss.slope_bound * facts.value_bound * 1.001


@pytest.mark.parametrize("bug", [ForgetsTheSecondRecord, ForgetsThePenaltyInItsBound])
def test_wrong_scores_are_caught(bug):
    with pytest.raises(ContractViolation, match=r"times its declared|public bound"):
        check_query(lambda rng, facts: penalised(rng, facts, bug), n_random=1)


class PlansOneSelection(FrankWolfe):
    def plan(self, objective, facts):
        return Plan((PlannedRelease(PenalisedAtomScores.name, "selection", 1),))


class PeeksAtTheTarget(FrankWolfe):
    def solve(self, objective, holder, calibrated, progress=None):
        target = private_data(holder).target
        return replace(self, radius=1.0 + float(target.mean())).solve_honestly(objective, holder, calibrated)

    def solve_honestly(self, objective, holder, calibrated):
        return super().solve(objective, holder, calibrated)


class MovesAway(FrankWolfe):
    def solve(self, objective, holder, calibrated, progress=None):
        solution = super().solve(objective, holder, calibrated, progress)
        return Solution(-solution.weights, solution.n_steps)


class PenalisesTheIntercept(FrankWolfe):
    def solve(self, objective, holder, calibrated, progress=None):
        return super().solve(replace(objective, unpenalised=()), holder, calibrated, progress)


@dataclass(frozen=True)
class HalfTheNoise(NoisyMax):
    def apply(self, value, sensitivity, bound, source):
        return NoisyMax(self.noise_multiplier / 2).apply(value, sensitivity, bound, source)


class AddsTooLittleOutputNoise(FrankWolfe):
    def solve(self, objective, holder, calibrated, progress=None):
        honest = holder.release
        holder.release = lambda query, mechanism: honest(query, HalfTheNoise(mechanism.noise_multiplier))
        return super().solve(objective, holder, calibrated, progress)


def test_planted_bugs_are_caught():
    with pytest.raises(ContractViolation, match="left its plan"):
        check_ledger_is_plan(PlansOneSelection(n_steps=3))
    with pytest.raises(ContractViolation, match=r"different|depends on the data"):
        check_non_interference(PeeksAtTheTarget(n_steps=3))
    for bug in (MovesAway, PenalisesTheIntercept):
        with pytest.raises(ContractViolation, match="without noise reaches"):
            check_noise_free_limit(bug(n_steps=600, radius=5.0))


def test_the_canary_catches_halved_noise():
    data = classification(n=8)
    objective = Objective(Logistic(), unpenalised=(data.design.n_features,))
    check_gradient_canary(FrankWolfe(radius=1.0), objective, data, n_steps=2)
    with pytest.raises(ContractViolation, match="leaks more than it claims"):
        check_gradient_canary(AddsTooLittleOutputNoise(radius=1.0), objective, data, n_steps=2)


# --------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("options", "word"),
    [({"n_steps": v}, "n_steps") for v in (0, -1, 1.5, math.nan, math.inf, "64", None, True)]
    + [({"radius": v}, "radius") for v in (0.0, -1.0, math.nan, math.inf, "1", True)],
)
def test_bad_options(options, word):
    with pytest.raises(InvalidInput, match=f"^{word} must be"):
        FrankWolfe(**options)


@pytest.mark.parametrize(
    ("objective", "kind", "sentence"),
    [
        (Objective(Squared()), InvalidInput, "unbounded slopes"),
        (Objective(Multinomial(3)), InvalidInput, "takes two classes"),
        (Objective(Logistic(), constraint=Box(0.0, 1.0)), Unsupported, "l1 ball, not on the constraint 'box'"),
        (Objective(Logistic(), BoxPenalty(0.0, 1.0)), Unsupported, "takes no box"),
        (Objective(Logistic(), GroupL2(0.1, ((0, 1),))), Unsupported, "not the same for every weight"),
    ],
)
def test_objectives_that_do_not_fit_are_refused_in_the_plan(objective, kind, sentence):
    with pytest.raises(kind, match=sentence):
        FrankWolfe().plan(objective, Facts(n=10, n_features=2, d=2))


def test_scores_with_a_penalty_need_a_box_of_the_weights():
    with pytest.raises(InvalidInput, match="need SparseWeights"):
        PenalisedAtomScores(Logistic(), np.zeros(2), SeparablePenalty(l2=1.0))
    with pytest.raises(InvalidInput, match="inside their box"):
        PenalisedAtomScores(Logistic(), SparseWeights(2, {0: -3.0}, 2.0), SeparablePenalty(l2=1.0))
    with pytest.raises(InvalidInput, match="not a box"):
        PenalisedAtomScores(Logistic(), SparseWeights(2, {}, 2.0), SeparablePenalty(low=0.0))


def test_it_is_registered_and_counts_in_whole_numbers():
    assert SOLVERS["frank-wolfe"] is FrankWolfe
    assert type(FrankWolfe(n_steps=np.float32(4)).n_steps) is int
