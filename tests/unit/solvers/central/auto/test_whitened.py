"""Descent in a released metric: what it releases, its starting point, its shrinkage and its refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dperm import Bounds, DPLogisticRegression, Ledger
from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import (
    L1,
    L2,
    Huber,
    Logistic,
    Multinomial,
    NoPenalty,
    Objective,
    SmoothedHinge,
    Squared,
)
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import WhitenedDescent
from dperm.solvers.central.auto.starting_point import best_constant
from dperm.testing.data import Layout

SHORT = WhitenedDescent(n_steps=6)


def problem(loss, n=200, n_features=3, intercept=1.0, seed=0):
    rng = np.random.default_rng(seed)
    layout = Layout(n=n, n_features=n_features, intercept=intercept)
    X = rng.uniform(-1.0, 1.0, (n, n_features))
    z = X @ rng.normal(0.0, 2.0, (n_features, loss.n_outputs))
    low, high = 0.0, 1.0
    if loss.task == "regression":
        target, low = np.clip(0.3 * z[:, 0] + 0.1 * rng.normal(size=n), -1.0, 1.0), -1.0
    elif loss.n_outputs > 1:
        target, high = (z + rng.gumbel(size=z.shape)).argmax(axis=1), loss.n_outputs - 1.0
    else:
        target = rng.random(n) < 1.0 / (1.0 + np.exp(-z[:, 0]))
    return DesignData(DesignMatrix.from_array(X, layout.scaling(), intercept), target.astype(float), low, high)


def run(solver, objective, data, budget=None, seed=0, neighbours=Neighbours.REPLACE_ONE):
    plan = solver.plan(objective, data.facts)
    calibrated = CalibratedPlan(plan, 1e-8, Budget(1e8, 1e-6)) if budget is None else calibrate(plan, budget)
    scope = Scope(calibrated, Ledger(), neighbours, "test")
    with scope:
        holder = DataHolder(data, scope, RandomSource(seed), neighbours)
        return solver.solve(objective, holder, calibrated), holder


def objective_of(data, loss, penalty=None):
    free = (data.design.n_features,) if data.design.intercept_steps else ()
    return Objective(loss, penalty or NoPenalty(), unpenalised=free)


def public_lines(holder):
    return [(line.query, line.kind, line.noise_multiplier, line.size) for line in holder.released]


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Squared(residual_clip=1.0), SmoothedHinge(0.5)], ids=repr)
def test_with_an_overwhelming_penalty_the_result_is_the_best_constant(loss):
    """Only the intercept is left, and it starts at the best constant."""
    data = problem(loss, n=3000)
    solution, _ = run(WhitenedDescent(n_steps=2), objective_of(data, loss, L2(1e9)), data)
    assert np.abs(solution.weights[:-1]).max() < 1e-4
    last = solution.weights[-1] * data.design.intercept_height
    if loss.n_outputs > 1:
        shares = np.bincount(data.target.astype(int)) / len(data.target)
        np.testing.assert_allclose(last - last.mean(), np.log(shares) - np.log(shares).mean(), atol=0.05)
    elif loss.task == "regression":
        assert last == pytest.approx(data.target.mean(), abs=0.05)
    else:
        assert last == pytest.approx(best_constant(loss, data.target.mean()), abs=0.1)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Huber(0.5)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_the_list_of_releases_does_not_depend_on_the_data(loss, intercept):
    """Other data give the same releases in the same order with the same noise multipliers."""
    one, two = (problem(loss, intercept=intercept, seed=seed) for seed in (0, 1))
    empty = DesignMatrix.from_array(np.zeros((200, 3)), Layout(n_features=3).scaling(), intercept)
    three = replace(one, design=empty, target=np.zeros(200))
    lists = []
    for seed, data in enumerate((one, two, three)):
        lists.append(public_lines(run(SHORT, objective_of(data, loss), data, Budget(1.0, 1e-6), seed)[1]))
    assert lists[0] == lists[1] == lists[2]
    names = [line[0] for line in lists[0]]
    first = ["target moment" if loss.n_outputs == 1 else "class counts"] * bool(intercept)
    if loss.task == "regression":
        first.append("target deviation")
    assert names == [*first, "row lengths", "mapped second moment", *["mapped gradient"] * 6]


@pytest.mark.parametrize("neighbours", list(Neighbours), ids=str)
def test_gradients_have_the_sensitivity_of_their_clip(neighbours):
    """The clip never exceeds what the public bounds allow, however large the requested clip is."""
    loss = Logistic()
    data = problem(loss)
    sizes = {}
    for clip in (1e-3, 1e9):
        solver = replace(SHORT, clip=clip)
        _, holder = run(solver, objective_of(data, loss), data, Budget(4.0, 1e-6), neighbours=neighbours)
        (sizes[clip],) = {line.sensitivity for line in holder.released if line.query == "mapped gradient"}
    assert 0.0 < sizes[1e-3] <= neighbours.records_apart * 1e-3 * math.sqrt(data.facts.d)
    assert 1.0 < sizes[1e9] < 1e5


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Squared(residual_clip=1.0), SmoothedHinge(0.5)], ids=repr)
@pytest.mark.parametrize(("n", "n_features", "intercept"), [(1, 1, 0.0), (1, 1, 1.0), (2, 1, 1.0), (2, 5, 0.0)])
@pytest.mark.parametrize("neighbours", list(Neighbours), ids=str)
def test_few_rows_give_finite_weights(loss, n, n_features, intercept, neighbours):
    data = problem(loss, n, n_features, intercept)
    for budget in (Budget(0.01, 1e-6), Budget(20.0, 1e-6)):
        for penalty in (L2(0.1), L1(0.1)):
            solution, _ = run(SHORT, objective_of(data, loss, penalty), data, budget, neighbours=neighbours)
            assert np.isfinite(solution.weights).all()


@pytest.mark.parametrize(
    ("loss", "penalty", "noise_fraction"),
    [
        (Squared(residual_clip=1e-9), L2(1e-6), 0.5),
        (Huber(1e-20), L2(1e-6), 1.0),
        (SmoothedHinge(0.5), L2(1e150), 0.5),
        (Logistic(), L2(1e150), 0.0),
    ],
    ids=["clipped", "robust", "hinge", "logistic"],
)
@pytest.mark.parametrize("neighbours", list(Neighbours), ids=str)
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_almost_no_noise_gives_finite_weights(loss, penalty, noise_fraction, neighbours, intercept):
    """Directions without signal, tiny slopes or weights: variances of very different sizes, or zero."""
    solver = replace(SHORT, n_steps=8, noise_fraction=noise_fraction, momentum=0.5 * (noise_fraction == 0.5))
    for n in (1, 2, 3, 5, 60):
        data = problem(loss, n, 4, intercept)
        for rows in (None, 0.0, 1.0):
            if rows is not None:
                flat = DesignMatrix.from_array(np.full((n, 4), rows), Layout(n=n, n_features=4).scaling(), intercept)
                data = replace(data, design=flat)
            solution, _ = run(solver, objective_of(data, loss, penalty), data, Budget(1e6, 1e-6), neighbours=neighbours)
            assert np.isfinite(solution.weights).all()


def test_the_result_is_shrunk_by_its_share_of_noise():
    """Where noise dominates almost nothing is left; without noise almost nothing is removed."""
    loss = Logistic()
    data = problem(loss, n=300)
    objective = objective_of(data, loss)
    for budget, noise_fraction, low, high in ((Budget(0.01, 1e-6), 1.0, 0.0, 0.1), (Budget(1e3, 1e-6), 0.0, 0.9, 1.0)):
        solver, kept = WhitenedDescent(n_steps=16, noise_fraction=noise_fraction), []
        for seed in range(5):
            full, shrunk = (
                run(replace(solver, shrink=shrink), objective, data, budget, seed)[0].weights
                for shrink in (False, True)
            )
            kept.append(np.linalg.norm(shrunk[:-1]) / np.linalg.norm(full[:-1]))
        assert low <= np.mean(kept) <= high + 1e-12


def test_noise_common_to_all_classes_is_removed():
    """It changes no prediction and no step corrects it; counted as signal it would keep the noise of all columns."""
    rng = np.random.default_rng(0)
    excess, notes = [], 0
    for seed in range(6):
        X, y = np.clip(rng.normal(size=(8000, 10)), -3.0, 3.0), rng.choice(3, 8000, p=[0.7, 0.2, 0.1])
        bounds = Bounds(centre=0.0, scale=1.0, clip=3.0, classes=(0, 1, 2))
        model = DPLogisticRegression(epsilon=1.0, bounds=bounds, neighbours="zero-out", insecure_seed=seed)
        probabilities = model.fit(X[:4000], y[:4000]).predict_proba(X[4000:])[np.arange(4000), y[4000:]]
        excess.append(np.mean(np.log((np.bincount(y[:4000]) / 4000)[y[4000:]])) - np.mean(np.log(probabilities)))
        notes += bool(model.privacy_report_.public["warnings"])
    assert np.mean(excess) <= 0.003
    assert notes == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [({"n_steps": v}, "n_steps must be") for v in (0, 1.5, math.nan, "4", True)]
    + [({"clip": v}, "clip must be") for v in (0.0, -1.0, math.inf)]
    + [({"momentum": v}, "momentum must be") for v in (-0.1, 1.0, math.nan)]
    + [({"noise_fraction": v}, "noise_fraction must be") for v in (-0.1, 1.1, math.nan)]
    + [({"moment_share": v}, "moment_share must be") for v in (0.0, 1.0, math.nan)]
    + [({"moment_share": 0.8, "target_share": 0.2}, "less than a tenth")],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(InvalidInput, match=words):
        WhitenedDescent(**options)


def test_unsupported_problems_are_refused_in_the_plan():
    with pytest.raises(InvalidInput, match="unbounded slopes"):
        WhitenedDescent().plan(Objective(Squared()), Facts(n=10, n_features=2, d=2))
    for d in (3001, 10**9):  # without allocating a matrix of that size
        with pytest.raises(Unsupported, match=f"at most 3000 columns, not {d}"):
            WhitenedDescent().plan(Objective(Logistic()), Facts(n=10, n_features=d - 1, d=d))


def test_the_forecast_allows_for_shrinkage_and_for_the_number_of_classes():
    bounds = Bounds(features=(-1, 1))

    def forecast(n_classes, solver=None):
        solver = solver or WhitenedDescent(noise_fraction=1.0)
        return DPLogisticRegression(0.5, bounds=bounds, solver=solver).plan(1300, 64, n_classes).forecast

    few, many = forecast(4), forecast(16)
    assert many.null_excess == pytest.approx(2.0 * few.null_excess)  # their logarithms
    # a cautious descent of hopeless noise is no worse than the constant; one that is not cautious is
    assert 0.9 * many.null_excess < many.excess < many.null_excess
    assert forecast(16, WhitenedDescent(noise_fraction=0.0)).excess > 5.0 * many.null_excess
