"""Solvers that move single coordinates or blocks: special cases, samplings, sparse iterates, options."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from dperm import Bounds, DPLogisticRegression, Ledger
from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, PlanViolation, Unsupported
from dperm.objective import L1, L2, Box, GroupL2, L1Ball, Logistic, Multinomial, NoPenalty, Objective
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import BlockDescent, CoordinateDescent, GradientDescent, GreedyCoordinateDescent, Newton, Peel
from dperm.solvers.coordinate_sampling import ArbitrarySampling, DistributedSampling, NiceSampling, Sampling
from dperm.testing.data import Layout, design_data
from dperm.testing.solvers import problem


def run(solver, objective, data, epsilon=1e8, seed=0):
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(epsilon, 1e-6))
    scope = Scope(calibrated, Ledger(), Neighbours.ZERO_OUT, "test")
    with scope:
        holder = DataHolder(data, scope, RandomSource(seed), Neighbours.ZERO_OUT)
        return solver.solve(objective, holder, calibrated)


def objective_for(data, penalty):
    return Objective(Logistic(), penalty, unpenalised=(data.design.n_features,))


def test_one_block_is_gradient_descent_with_coordinate_steps():
    data = problem(n=200)
    objective = objective_for(data, NoPenalty())
    got = run(BlockDescent(n_rounds=1, n_inner=5, n_blocks=1, clip=1e9, averaging=False), objective, data).weights
    X = np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])
    w, smoothness = np.zeros(4), np.array([0.25, 0.25, 0.25, 0.25])
    for _ in range(5):
        slope = 1 / (1 + np.exp(-X @ w)) - data.target
        w = w - X.T @ slope / len(X) / smoothness
    assert got == pytest.approx(w, abs=1e-3)


def test_as_many_blocks_as_coordinates_is_coordinate_descent():
    data = problem(n=100)
    objective = objective_for(data, L1(0.01))
    blocks = run(BlockDescent(n_rounds=1, n_inner=8, n_blocks=4, averaging=False), objective, data, epsilon=2.0)
    single = run(CoordinateDescent(n_passes=2), objective, data, epsilon=2.0)
    assert (blocks.weights == single.weights).all()


def test_averaging_ends_a_round_at_the_mean_of_its_iterates():
    data = problem(n=100)
    objective = objective_for(data, NoPenalty())
    ends = [run(BlockDescent(1, k, 1, clip=1e9, averaging=False), objective, data, seed=k).weights for k in range(1, 5)]
    averaged = run(BlockDescent(1, 4, 1, clip=1e9, averaging=True), objective, data).weights
    assert averaged == pytest.approx(np.mean(ends, axis=0), abs=1e-4)


@pytest.mark.parametrize(
    "sampling",
    [
        NiceSampling(4, 2),
        DistributedSampling(((0, 1), (2, 3)), 1),
        ArbitrarySampling(4, (((0, 1, 2, 3), 0.2), ((0,), 0.3), ((1, 2), 0.3), ((3, 0), 0.2))),
        "importance",
    ],
)
def test_any_proper_sampling_converges_without_noise(sampling):
    data = problem(n=200)
    objective = objective_for(data, L2(0.05))
    X = np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])
    solver = BlockDescent(1, 300, 2, sampling, clip=1e9, step=0.5, averaging=False)
    reached = objective.value(X, data.target, run(solver, objective, data).weights)
    best = objective.value(
        X, data.target, run(BlockDescent(1, 600, 1, clip=1e9, step=0.5, averaging=False), objective, data).weights
    )
    assert reached - best < 1e-3


def sparse_classes(n=400, p=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.1)
    return X, (X[:, :3].sum(axis=1) + 0.1 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize("incremental", [True, False])
def test_greedy_finds_the_support_of_a_sparse_problem(incremental):
    X, y = sparse_classes()
    data = design_data(Layout(n=400, n_features=300, sparse=True, intercept=0.0), X, y)
    objective = Objective(Logistic(), L1(0.005))
    solver = GreedyCoordinateDescent(n_steps=12, incremental=incremental)
    found = np.flatnonzero(run(solver, objective, data).weights)
    assert set(found) >= {0, 1, 2}
    assert len(found) <= 12


def test_incremental_and_full_greedy_make_the_same_choices_without_noise():
    X, y = sparse_classes(seed=3)
    data = [design_data(Layout(n=400, n_features=300, sparse=s, intercept=1.0), X, y) for s in (True, True, False)]
    weights = [
        run(
            GreedyCoordinateDescent(n_steps=15, incremental=i), objective_for(d, L1(0.005)), d, epsilon=1e12 / 1e4
        ).weights
        for d, i in zip(data, (True, False, True), strict=True)
    ]
    for other in weights[1:]:
        assert weights[0] == pytest.approx(other, abs=1e-3)


def test_sparse_greedy_works_at_small_epsilon_and_many_rows():
    """Much noise must not be taken for too little precision, after the budget was reserved."""
    rng = np.random.default_rng(0)
    X = sp.random_array((60_000, 40), density=0.05, format="csr", rng=rng)
    y = rng.integers(0, 2, 60_000)
    bounds = Bounds(centre=0.0, scale=1.0, clip=1.0)
    for epsilon in (0.1, 0.01):
        DPLogisticRegression(epsilon=epsilon, bounds=bounds, solver="greedy", insecure_seed=0).fit(X, y)


def test_the_report_tells_the_support():
    X, y = sparse_classes()
    bounds = Bounds(centre=0.0, scale=1.0, clip=3.0)
    model = DPLogisticRegression(bounds=bounds, solver=GreedyCoordinateDescent(n_steps=5), penalty="l1").fit(X, y)
    support = model.privacy_report_.public["support"]
    assert support == np.flatnonzero(model.coef_[0]).tolist()
    assert len(support) <= 5


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GreedyCoordinateDescent(n_steps=0), "n_steps must be a whole number"),
        (lambda: GreedyCoordinateDescent(n_steps="many"), "n_steps must be a whole number"),
        (lambda: GreedyCoordinateDescent(rule="best"), "rule must be one of"),
        (lambda: GreedyCoordinateDescent(selection_share=1.0), "selection_share must be between"),
        (lambda: GreedyCoordinateDescent(box=1e-320), "box must be positive"),
        (lambda: BlockDescent(sampling="random"), "sampling must be"),
        (lambda: BlockDescent(n_blocks=1.5), "n_blocks must be a whole number"),
        (lambda: CoordinateDescent(n_passes=-1), "n_passes must be positive"),
        (lambda: Newton(curvature_share=0), "curvature_share must be between"),
        (lambda: BlockDescent(smoothness=-1.0), "smoothness must be positive"),
        (lambda: CoordinateDescent(smoothness=float("nan")), "smoothness must be positive"),
        (lambda: BlockDescent(averaging="yes"), "averaging must be True or False"),
        (lambda: Peel(n_selected=None), "n_selected must be a whole number"),
    ],
)
def test_bad_options_get_one_sentence(make, says):
    with pytest.raises(InvalidInput, match=says):
        make()


def test_whole_numbers_of_any_type_are_taken():
    assert GreedyCoordinateDescent(n_steps=np.float32(4.0)).n_steps == 4


@pytest.mark.parametrize(
    ("solver", "objective"),
    [
        (Newton(), Objective(Logistic(), L1(0.1))),
        (Newton(), Objective(Multinomial(3), L2(0.1))),
        (GreedyCoordinateDescent(), Objective(Logistic(), GroupL2(0.1, ((0, 1), (2, 3))))),
        (BlockDescent(sampling=NiceSampling(9, 2)), Objective(Logistic())),
        *((solver, Objective(Logistic(), constraint=Box(-0.1, 0.1))) for solver in (Newton(), Peel(), BlockDescent())),
        *((solver, Objective(Logistic(), constraint=L1Ball(0.1))) for solver in (CoordinateDescent(), Newton())),
    ],
)
def test_what_a_solver_cannot_do_is_refused_in_its_plan(solver, objective):
    with pytest.raises((Unsupported, InvalidInput)):
        solver.plan(objective, problem().facts)


@pytest.mark.parametrize(
    "solver",
    [
        GreedyCoordinateDescent(limit=1e-90),
        "blocks",
        "frank-wolfe",
        GreedyCoordinateDescent(),  # with three classes
        "newton",
        "peel",
    ],
)
def test_a_refused_fit_writes_nothing(solver, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", dataset="people")
    before = len(ledger.entries())
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 3)), rng.integers(0, 3, 60)
    with pytest.raises((InvalidInput, Unsupported)):
        DPLogisticRegression(bounds=Bounds(features=(-1, 1)), solver=solver, ledger=ledger).fit(X, y)
    assert len(ledger.entries()) == before


def test_scores_that_cannot_be_raced_are_refused_before_anything_is_reserved(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", dataset="people")
    before = len(ledger.entries())
    X, y = sparse_classes()
    solver = GreedyCoordinateDescent(box=1e12)
    with pytest.raises(Unsupported, match="too large for their sensitivity"):
        DPLogisticRegression(
            bounds=Bounds(centre=0.0, scale=1.0, clip=3.0), solver=solver, ledger=ledger, fit_intercept=False
        ).fit(sp.csr_array(X), y)
    assert len(ledger.entries()) == before


def test_a_solver_that_leaves_its_plan_is_stopped_in_the_dry_run(tmp_path):
    class UsesLessNoise(GradientDescent):
        def solve(self, objective, holder, calibrated, progress=None):
            return super().solve(objective, holder, replace(calibrated, scale=calibrated.scale / 2), progress)

    ledger = Ledger(tmp_path / "ledger.db", dataset="people")
    before = len(ledger.entries())
    X, y = sparse_classes()
    with pytest.raises(PlanViolation, match="at a different cost"):
        DPLogisticRegression(bounds=Bounds(features=(-3, 3)), solver=UsesLessNoise(3), ledger=ledger).fit(X, y)
    assert len(ledger.entries()) == before


class SometimesNobody(Sampling):
    """Every coordinate by its own coin: proper, and sometimes empty."""

    d = 4

    def draw(self, source):
        return tuple(j for j in range(4) if source.below(4) == 0)

    def pairs(self):
        out = np.full((4, 4), 1 / 16)
        np.fill_diagonal(out, 1 / 4)
        return out

    def subsets(self):
        raise NotImplementedError


def test_an_empty_draw_is_drawn_again():
    data = problem(n=50)
    run(BlockDescent(1, 20, 2, SometimesNobody()), objective_for(data, NoPenalty()), data)


def test_huge_weights_give_finite_gradients():
    from dperm.queries import FullGradient

    data = design_data(Layout(n=4, n_features=3, intercept=0.0), np.array([[1, 1, 1], [1, -1, 1]] * 2), [0, 1, 2, 0])
    weights = np.zeros((3, 3))
    weights[:, 0] = 8.9e307
    assert np.isfinite(FullGradient(Multinomial(3), weights).evaluate(data)).all()


@pytest.mark.parametrize("n_blocks", [1, 4])
def test_weights_stay_in_their_box(n_blocks):
    data = design_data(Layout(n=30, n_features=4), np.eye(30, 4), np.ones(30))
    solver = BlockDescent(n_rounds=1, n_inner=40, n_blocks=n_blocks, clip=1e9, step=50.0, averaging=False, box=0.25)
    found = run(solver, Objective(Logistic(), NoPenalty()), data).weights
    assert np.abs(found).max() == pytest.approx(0.25 / data.facts.value_bound)


@pytest.mark.parametrize("n_rounds", [1, 2, 3])
def test_passes_are_counted_over_all_rounds(n_rounds):
    facts = Facts(n=1000, n_features=12, d=12, value_bound=1.0, row_bound=2.0)
    plan = CoordinateDescent(n_passes=2, n_rounds=n_rounds).plan(Objective(Logistic()), facts)
    assert plan.releases[0].count == 24


@pytest.mark.parametrize(("n_passes", "steps"), [(0.25, 3), (0.01, 1), (1.5, 18), (0.29, 29), (1, 12)])
def test_a_fraction_of_a_pass_makes_fewer_steps(n_passes, steps):
    d = 100 if n_passes == 0.29 else 12  # 0.29 * 100 is 28.999999999999996
    facts = Facts(n=1000, n_features=d, d=d, value_bound=1.0, row_bound=2.0)
    solver = CoordinateDescent(n_passes=n_passes)
    assert solver.plan(Objective(Logistic()), facts).releases[0].count == steps
