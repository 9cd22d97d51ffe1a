"""Greedy descent with a curvature and a limit for every column."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso, LogisticRegression

from dperm import Bounds, DPLogisticRegression
from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import L1, Logistic, Objective, Squared
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries import GradientCoordinate
from dperm.solvers import BlockDescent, GreedyCoordinateDescent
from dperm.testing import ContractViolation, check_ledger_is_plan, check_noise_free_limit, check_non_interference
from dperm.testing.solvers import problem

SCALES = np.array([1.0, 0.3, 0.1, 0.03])


def run(solver, objective, data, epsilon, seed=0):
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(epsilon, 1e-6))
    with Scope(calibrated, Ledger(), Neighbours.ZERO_OUT, "test") as scope:
        holder = DataHolder(data, scope, RandomSource(seed), Neighbours.ZERO_OUT)
        return solver.solve(objective, holder, calibrated).weights, holder


def test_only_weights_of_zero_are_not_stored():
    solver, objective, entries = GreedyCoordinateDescent(n_steps=1, step=1.0), Objective(Squared(residual_clip=1.0)), {}

    def move(j, gradient):
        solver._move(entries, j, gradient, objective, SeparablePenalty(), 1.0, 1.0)

    move(0, -0.5)
    move(1, -4.0)
    assert entries == {0: 0.5, 1: 1.0}  # the second stays inside the box
    move(0, 0.5)
    assert entries == {1: 1.0}


def uneven(n=2000, seed=0, sparse=False, intercept=0.0, regression=False):
    """Columns of very different size that all matter; all entries within [-1, 1]."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 4)) * SCALES
    if sparse:
        X *= rng.random(X.shape) < 0.5
    margin = X @ (np.array([1.0, -1.0, 1.0, -1.0]) / SCALES)
    y = margin + 0.1 * rng.normal(size=n) if regression else rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * margin))
    scaling = Scaling(np.zeros(4), np.ones(4), 1.0)
    design = DesignMatrix.from_array(sp.csc_array(X) if sparse else X, scaling, intercept)
    return DesignData(design, y.astype(float), float(y.min()), float(y.max()))


def rows(data):
    return np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])


def curvatures(beta=0.25, scales=SCALES):
    return tuple(beta * scales**2 / 3.0)


# versions differ in how the penalty is spelt, and warn of the other spelling
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*l1_ratio:UserWarning")
@pytest.mark.parametrize(("rule", "sparse"), [("GS-s", False), ("GS-r", True), ("GS-q", False), ("GS-q", True)])
def test_without_noise_it_is_the_l1_logistic_model_of_scikit_learn(rule, sparse):
    data, strength = uneven(sparse=sparse), 2e-4
    solver = GreedyCoordinateDescent(n_steps=250, rule=rule, smoothness=curvatures(), box=1000.0)
    found, _ = run(solver, Objective(Logistic(), L1(strength)), data, 1e9)
    X = rows(data)
    options = {"solver": "liblinear", "fit_intercept": False, "max_iter": 20_000, "tol": 1e-8}
    trusted = LogisticRegression(penalty="l1", l1_ratio=1, C=1.0 / (strength * len(X)), **options).fit(X, data.target)
    assert found == pytest.approx(trusted.coef_[0], rel=0.02, abs=0.02)


@pytest.mark.parametrize("sparse", [False, True])
def test_without_noise_it_is_the_lasso_of_scikit_learn(sparse):
    data, strength = uneven(sparse=sparse, regression=True), 1e-3
    objective = Objective(Squared(residual_clip=100.0), L1(strength))
    found, _ = run(GreedyCoordinateDescent(n_steps=60, smoothness=curvatures(1.0)), objective, data, 1e9)
    trusted = Lasso(alpha=strength, fit_intercept=False, tol=1e-12).fit(rows(data), data.target)
    assert found == pytest.approx(trusted.coef_, rel=0.01, abs=0.01)


def test_it_keeps_the_contracts():
    """The canary of the common suite runs through the same code."""
    solver = GreedyCoordinateDescent(n_steps=250, smoothness=(0.09, 0.09, 0.12, 0.25), limit=(1.0, 1.1, 2.0, 1.0))
    check_ledger_is_plan(solver)
    check_non_interference(solver)
    check_noise_free_limit(solver)


class StepsByTheNextColumn(GreedyCoordinateDescent):
    """Moves every column by the next one's curvature."""

    def _move(self, entries, j, gradient, objective, penalty, smoothness, box):
        super()._move(entries, j, gradient, objective, penalty, self.smoothness[(j + 1) % 4], box)


class MeasuresWithTheWrongLimit(GreedyCoordinateDescent):
    """Clips the update harder than the score: the steps follow another objective."""

    @staticmethod
    def _limit(j, limits, loss, facts):
        return 0.2 * limits[j]


def test_planted_bugs_are_caught():
    for bug in (StepsByTheNextColumn, MeasuresWithTheWrongLimit):
        with pytest.raises(ContractViolation, match="without noise reaches"):
            check_noise_free_limit(bug(n_steps=250, smoothness=(1e-3, 0.12, 0.12, 0.25), limit=(1.0, 1.0, 1.0, 1.0)))


def test_each_update_has_the_noise_of_its_own_limit():
    data = uneven(intercept=0.5)
    limits = (0.4, 0.2, 0.1, 0.05, 1.0)
    solver = GreedyCoordinateDescent(n_steps=40, smoothness=(*curvatures(), 0.06), limit=limits)
    objective = Objective(Logistic(), unpenalised=(4,))
    _, holder = run(solver, objective, data, 1e9)
    seen = {round(r.sensitivity, 6) for r in holder.released if r.query == GradientCoordinate.name}
    assert seen <= {0.4, 0.2, 0.1, 0.05, 0.5}  # the constant column cannot exceed its height
    assert len(seen) >= 4
    (score,) = {r.sensitivity for r in holder.released if r.query != GradientCoordinate.name}
    ratios = np.minimum(limits, [1, 1, 1, 1, 0.5]) / np.sqrt([*curvatures(), 0.06])
    assert score * data.facts.n == pytest.approx(ratios.max(), rel=1e-6)


@pytest.mark.parametrize(("limit", "expected"), [(None, 0.5), (0.2, 0.2), (3.0, 0.5)])
def test_the_intercepts_update_has_the_noise_of_its_height(limit, expected):
    """Every person has the same public height there: columns that reach further do not make it noisier."""
    data = uneven(intercept=0.5)
    solver = GreedyCoordinateDescent(n_steps=12, limit=limit, smoothness=(100.0,) * 4 + (1e-3,))  # its score wins
    holder = run(solver, Objective(Logistic(), unpenalised=(4,)), data, 5.0)[1]
    updates = {one.sensitivity for one in holder.released if one.query == GradientCoordinate.name}
    assert any(sensitivity == pytest.approx(expected, rel=1e-9) for sensitivity in updates)


def test_three_quarters_of_the_budget_choose():
    plan = GreedyCoordinateDescent(n_steps=3).plan(Objective(Logistic()), uneven().facts)
    shares = {release.query: release.share for release in plan.releases}
    assert shares["greedy scores"] / sum(shares.values()) == pytest.approx(0.75)


def test_the_step_factor_moves_the_update_only():
    """Inside the score it would multiply what one person can change."""
    scored, moved = [], []
    for step in (1.0, 2.2):
        solver = GreedyCoordinateDescent(n_steps=1, smoothness=curvatures(), step=step)
        found, holder = run(solver, Objective(Logistic()), uneven(), 1e9)
        scored.append([r.sensitivity for r in holder.released if r.query != GradientCoordinate.name])
        moved.append(np.abs(found).max())
    assert scored[0] == scored[1]
    assert moved[1] == pytest.approx(2.2 * moved[0], rel=1e-6)


def test_a_smaller_limit_than_charged_is_not_possible():
    """The book sees multipliers only, so the sensitivity must come from the query that is released."""

    class AddsTooLittleNoise(GreedyCoordinateDescent):
        def solve(self, objective, holder, calibrated, progress=None):
            honest = holder.release

            def release(query, mechanism):
                fewer = GaussianNoise(mechanism.noise_multiplier / 2)
                return honest(query, fewer if isinstance(mechanism, GaussianNoise) else mechanism)

            holder.release = release
            return super().solve(objective, holder, calibrated, progress)

    with pytest.raises(ContractViolation, match="left its plan"):
        check_ledger_is_plan(AddsTooLittleNoise(n_steps=3, smoothness=(0.1, 0.1, 0.1, 0.25)))


def test_the_intercept_steps_by_its_own_curvature():
    """Small features make a small common curvature; a constant column of height 1 would overshoot with it."""
    rng = np.random.default_rng(0)
    X = 0.1 * rng.normal(size=(2000, 3))
    scaling = Scaling(np.zeros(3), np.ones(3), 1.0, spread=0.1)
    data = DesignData(DesignMatrix.from_array(X, scaling, 1.0), (rng.random(2000) < 0.8).astype(float))
    weights, _ = run(GreedyCoordinateDescent(n_steps=30), Objective(Logistic(), unpenalised=(3,)), data, 1e9)
    assert weights[3] == pytest.approx(np.log(0.8 / 0.2), abs=0.25)


def test_numbers_of_single_columns_help_on_columns_of_unequal_size():
    """Mean loss over seeds at the same budget, one number for all columns against one for each."""
    data = uneven(n=20_000)
    objective = Objective(Logistic())
    X = rows(data)
    each = GreedyCoordinateDescent(n_steps=12, smoothness=curvatures(), limit=tuple(0.5 * SCALES))
    losses = {}
    for name, solvers in {
        "each": [each],
        "all": [
            GreedyCoordinateDescent(n_steps=12, smoothness=smoothness, limit=limit)
            for smoothness in (curvatures()[0], float(np.mean(curvatures())), curvatures()[1])
            for limit in (None, 0.5)
        ],
    }.items():
        means = [
            np.mean([objective.value(X, data.target, run(s, objective, data, 4.0, seed)[0]) for seed in range(3)])
            for s in solvers
        ]
        losses[name] = min(means)  # the best common number, chosen without paying for the choice
    null = objective.value(X, data.target, np.zeros(4))
    assert losses["each"] < losses["all"] - 0.1 * (null - losses["all"])


@pytest.mark.parametrize("make", [GreedyCoordinateDescent, BlockDescent])
def test_numbers_of_single_columns_are_taken_as_any_sequence(make):
    for given in ([1, 2, 3, 4], np.array([1.0, 2.0, 3.0, 4.0]), (1.0, 2.0, 3.0, 4.0)):
        assert make(smoothness=given).smoothness == (1.0, 2.0, 3.0, 4.0)
    assert make(smoothness=np.float32(2.0)).smoothness == 2.0


@pytest.mark.parametrize("bad", [(), (1.0, 0.0), (1.0, -1.0), (1.0, math.nan), (1.0, "2"), [1.0, None], (True, 1.0)])
@pytest.mark.parametrize("option", ["smoothness", "limit"])
def test_bad_numbers_get_one_sentence(option, bad):
    with pytest.raises(InvalidInput, match=f"^{option} must be one positive number, or positive numbers"):
        GreedyCoordinateDescent(**{option: bad})


@pytest.mark.parametrize("option", ["smoothness", "limit"])
def test_a_wrong_number_of_numbers_is_refused_in_the_plan(option):
    solver = GreedyCoordinateDescent(**{option: (1.0, 2.0)})
    with pytest.raises(InvalidInput, match=f"^{option} must be one positive number or 4, .* 2 were given"):
        solver.plan(Objective(Logistic()), problem().facts)


@pytest.mark.parametrize("option", ["smoothness", "limit"])
def test_the_printed_noise_takes_one_number_for_all_columns(option):
    solver = GreedyCoordinateDescent(rule="GS-s", **{option: (1.0, 1.0, 1.0, 2.0)})
    with pytest.raises(Unsupported, match="one limit and one smoothness"):
        solver.printed(Objective(Logistic()), problem().facts, Budget(1.0, 1e-6))


@pytest.mark.parametrize("rule", ["GS-r", "GS-s", "GS-q"])
def test_printed_noise_for_comparison_has_no_finite_epsilon(rule):
    """No multiple of the printed epsilon bounds the choices of GS-r, GS-q, unequal limits or a box."""
    solver = GreedyCoordinateDescent(n_steps=10, rule=rule, limit=(0.1, 1.0))
    event = solver.printed_noise(Budget(1.0, 1e-6)).event
    assert composition.is_unbounded(event)
    assert composition.upper_epsilon(event, 1e-6)[0] == math.inf


def test_the_certified_printed_noise_is_as_large_and_has_a_finite_epsilon():
    solver, budget = GreedyCoordinateDescent(n_steps=10, rule="GS-s"), Budget(1.0, 1e-6)
    certified = solver.printed(Objective(Logistic()), problem().facts, budget).calibrated
    assert certified.noise_multiplier("greedy gradients") == solver.printed_noise(budget).noise_multiplier(
        "greedy gradients"
    )
    assert 1.0 < composition.upper_epsilon(certified.event, 1e-6)[0] < 2.0


@pytest.mark.parametrize("option", ["smoothness", "limit"])
def test_a_fit_with_printed_noise_refuses_unequal_columns(option):
    data, budget = problem(), Budget(1.0, 1e-6)
    solver = GreedyCoordinateDescent(n_steps=2, rule="GS-s", **{option: (1.0, 1.0, 1.0, 2.0)})
    noise = solver.printed_noise(budget)
    with Scope(noise, Ledger(), Neighbours.REPLACE_ONE, "test", unbounded="printed") as scope:
        holder = DataHolder(data, scope, RandomSource(0), Neighbours.REPLACE_ONE)
        with pytest.raises(Unsupported, match="one limit and one smoothness"):
            solver.solve(Objective(Logistic()), holder, noise)


@pytest.mark.parametrize("two_valued", [True, False])
def test_steps_settle_where_only_a_range_is_known(two_valued):
    """Columns that fill their range have three times the curvature of those that are spread over it."""
    rng = np.random.default_rng(3)
    X = rng.random((4000, 12))
    X = (X < 0.5).astype(float) if two_valued else X
    y = (rng.random(4000) < 1.0 / (1.0 + np.exp(-(X - 0.5) @ np.linspace(-4.0, 4.0, 12)))).astype(int)

    def loss(model):
        z = X @ model.coef_[0] + model.intercept_[0]
        return np.mean(np.logaddexp(0.0, z) - y * z)

    best = loss(LogisticRegression(C=np.inf).fit(X, y))
    null = math.log(2.0) - best
    bounds = Bounds(features=(0.0, 1.0), classes=(0, 1))
    model = DPLogisticRegression(1e6, bounds=bounds, penalty="none", solver=GreedyCoordinateDescent(n_steps=150))
    assert loss(model.set_params(insecure_seed=0).fit(X, y)) - best <= 0.03 * null
