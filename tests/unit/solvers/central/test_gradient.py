"""The gradient solver without noise is scikit-learn's optimum; with noise it does what its plan says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.utils.fixes import parse_version

from dperm import Ledger
from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput
from dperm.objective import L1, L2, Logistic, Multinomial, NoPenalty, Objective, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import SOLVERS, GradientDescent, resolve_solver
from dperm.testing.data import Layout, design_data

PRECISE = GradientDescent(n_steps=1500, clip=1e9, step=1.0, momentum=0.9, averaging=0.0)


def problem(n_classes, n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 4))
    scores = X @ rng.normal(0.0, 2.0, (4, n_classes)) + rng.gumbel(size=(n, n_classes)) + np.linspace(0, 0.5, n_classes)
    return design_data(Layout(n=n, n_features=4), X, scores.argmax(axis=1))


def run(solver, objective, data, budget=None, seed=0):
    """Solve with the noise of a budget, or next to none."""
    plan = solver.plan(objective, data.facts)
    calibrated = CalibratedPlan(plan, 1e-8, Budget(1e8, 1e-6)) if budget is None else calibrate(plan, budget)
    scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test")
    with scope:
        holder = DataHolder(data, scope, RandomSource(seed), Neighbours.REPLACE_ONE)
        return solver.solve(objective, holder, calibrated), holder


def objective_of(data, penalty, n_classes=2):
    loss = Logistic() if n_classes == 2 else Multinomial(n_classes)
    return Objective(loss, penalty, unpenalised=(data.design.n_features,))


def trusted(data, strength, l1):
    X = np.concatenate([block for _, block in data.design.row_chunks()])[:, :-1] * data.design.spacing
    options = {"C": 1.0 / (len(X) * strength), "tol": 1e-8, "max_iter": 50_000, "solver": "saga" if l1 else "lbfgs"}
    if parse_version(sklearn.__version__) >= parse_version("1.8"):
        options["l1_ratio"] = 1.0 if l1 else 0.0
    else:
        options["penalty"] = "l1" if l1 else "l2"
    return LogisticRegression(**options).fit(X, data.target)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("l1", [False, True], ids=["l2", "l1"])
def test_without_noise_it_agrees_with_scikit_learn(n_classes, l1):
    data = problem(n_classes)
    strength = 0.02
    solution, _ = run(PRECISE, objective_of(data, L1(strength) if l1 else L2(strength), n_classes), data)
    model = trusted(data, strength, l1)
    weights = solution.weights
    np.testing.assert_allclose(weights[:-1].T, model.coef_.squeeze(), atol=2e-4)
    ours, theirs = np.atleast_1d(weights[-1]), model.intercept_
    # several outputs may all move by one constant without changing a probability
    np.testing.assert_allclose(
        ours - ours.mean() * (n_classes > 2), theirs - theirs.mean() * (n_classes > 2), atol=2e-4
    )
    if l1:
        assert ((weights[:-1].T == 0.0) == (np.abs(model.coef_.squeeze()) < 1e-6)).all()


def test_momentum_reaches_the_optimum_in_fewer_steps():
    data = problem(2)
    objective = objective_of(data, NoPenalty())
    X = np.concatenate([block for _, block in data.design.row_chunks()]) * data.design.spacing
    values = {}
    for momentum in (0.0, 0.9):
        solver = GradientDescent(n_steps=60, clip=1e9, step=1.0, momentum=momentum, averaging=0.0)
        solution, _ = run(solver, objective, data)
        values[momentum] = objective.value(X, data.target, solution.weights)
    assert values[0.9] < values[0.0]


@pytest.mark.parametrize(("averaging", "n_averaged"), [(0.0, 1), (0.5, 4), (0.9, 7)])
def test_averaging_is_the_mean_of_the_last_iterates(averaging, n_averaged):
    data = problem(2)
    objective = objective_of(data, L2(0.1))
    # the same keyed noise, cut after every number of steps with the same noise scale
    options = {"clip": 0.5, "step": 0.7, "momentum": 0.3}
    calibrated = calibrate(GradientDescent(n_steps=8).plan(objective, data.facts), Budget(5.0, 1e-6))
    iterates = []
    for solver in [GradientDescent(n_steps=t, averaging=0.0, **options) for t in range(1, 9)]:
        scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test")
        with scope:
            holder = DataHolder(data, scope, RandomSource(3), Neighbours.REPLACE_ONE)
            iterates.append(solver.solve(objective, holder, calibrated).weights)
    solution, _ = run(GradientDescent(8, averaging=averaging, **options), objective, data, Budget(5.0, 1e-6), seed=3)
    np.testing.assert_allclose(solution.weights, np.mean(iterates[-n_averaged:], axis=0), rtol=1e-12)


def test_clipping_bounds_every_release():
    data = problem(2)
    _, holder = run(GradientDescent(n_steps=3, clip=0.25), objective_of(data, L2(0.1)), data)
    assert {line.sensitivity for line in holder.released} == {0.5}
    _, holder = run(GradientDescent(n_steps=3, clip=1e9), objective_of(data, L2(0.1)), data)
    (sensitivity,) = {line.sensitivity for line in holder.released}
    assert sensitivity == pytest.approx(2.0 * data.facts.row_bound)


def test_the_plan_needs_no_data():
    """Facts are made from public numbers alone; scale, bounds and target do not change counts or multipliers."""
    solver = GradientDescent(n_steps=17)
    objective = Objective(Logistic(), L2(0.1))
    plans = {
        repr(solver.plan(objective, Facts(n=n, n_features=d, d=d, value_bound=b, row_bound=b)))
        for n, d, b in ((10, 2, 1.0), (10**6, 50, 9.0))
    }
    assert len(plans) == 1
    (release,) = solver.plan(objective, Facts(n=1, n_features=1, d=1)).releases
    assert (release.query, release.kind, release.count) == ("gradient", "gaussian", 17)


def test_progress_tells_only_how_far_it_is():
    data = problem(2)
    solver = GradientDescent(n_steps=3)
    objective = objective_of(data, L2(0.1))
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(1.0, 1e-6))
    calls = []
    scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test")
    with scope:
        holder = DataHolder(data, scope, RandomSource(0), Neighbours.REPLACE_ONE)
        solver.solve(objective, holder, calibrated, lambda *args: calls.append(args))
    assert calls == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("options", "word"),
    [({"n_steps": v}, "n_steps") for v in (0, -1, 1.5, math.nan, math.inf, "64", None, True)]
    + [({"clip": v}, "clip") for v in (0.0, -1.0, math.nan, math.inf, "1", True)]
    + [({"step": v}, "step") for v in (0.0, -1.0, math.nan, math.inf, "1")]
    + [({"momentum": v}, "momentum") for v in (-0.1, 1.0, math.nan, "0")]
    + [({"averaging": v}, "averaging") for v in (-0.1, 1.0, math.nan, "0", None)],
)
def test_bad_options(options, word):
    with pytest.raises(InvalidInput, match=f"^{word} must be"):
        GradientDescent(**options)


def test_whole_numbers_of_any_type_count_steps():
    for n_steps in (4, 4.0, np.int64(4), np.float32(4)):
        solver = GradientDescent(n_steps=n_steps)
        assert type(solver.n_steps) is int
        data = problem(2, n=20)
        run(solver, objective_of(data, L2(0.1)), data)


def test_a_loss_without_bounded_slopes_is_refused_in_the_plan():
    with pytest.raises(InvalidInput, match="unbounded slopes"):
        GradientDescent().plan(Objective(Squared()), Facts(n=10, n_features=2, d=2))


def test_solvers_by_name():
    for name in ("auto", *SOLVERS):
        assert resolve_solver(name).name == name
    own = GradientDescent(n_steps=3)
    assert resolve_solver(own) is own
    for wrong in ("adam", None, 3, GradientDescent, ["gradient"]):
        with pytest.raises(InvalidInput, match="solver must be one of 'auto', 'gradient'"):
            resolve_solver(wrong)
