"""Sparse pursuit: selected columns, releases, the box on weights, and refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dperm import Bounds, DPLasso, DPLogisticRegression, Ledger
from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import L1, L2, Huber, L1Ball, Logistic, Multinomial, NoPenalty, Objective, SmoothedHinge, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import SparsePursuit
from dperm.solvers.central.auto.pursuit import _shrink
from dperm.testing.data import Layout

LOSSES = [Logistic(), Squared(residual_clip=1.0), Huber(0.5), SmoothedHinge(0.5)]


def problem(loss, n=400, n_features=30, intercept=1.0, seed=0, clip=1.0, mean=0.0):
    """Return data in which two columns are relevant."""
    rng = np.random.default_rng(seed)
    layout = Layout(n=n, n_features=n_features, intercept=intercept, clip=clip)
    X = clip * rng.choice([-1.0, 1.0], (n, n_features))
    z = (X[:, 0] - 0.7 * X[:, -1]) / clip + mean
    low = 0.0
    if loss.task == "regression":
        target, low = np.clip(0.4 * z + 0.05 * rng.normal(size=n), -1.0, 1.0), -1.0
    else:
        target = rng.random(n) < 1.0 / (1.0 + np.exp(-3.0 * z))
    return DesignData(DesignMatrix.from_array(X, layout.scaling(), intercept), target.astype(float), low, 1.0)


def run(solver, objective, data, budget=None, seed=0, neighbours=Neighbours.REPLACE_ONE):
    plan = solver.plan(objective, data.facts)
    calibrated = CalibratedPlan(plan, 1e-8, Budget(1e8, 1e-6)) if budget is None else calibrate(plan, budget)
    scope = Scope(calibrated, Ledger(), neighbours, "test")
    with scope:
        holder = DataHolder(data, scope, RandomSource(seed), neighbours)
        return solver.solve(objective, holder, calibrated).weights, holder


def objective_of(data, loss, penalty=None):
    free = (data.design.n_features,) if data.design.intercept_steps else ()
    return Objective(loss, penalty or L1(0.01), unpenalised=free)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_it_selects_the_relevant_columns(loss, intercept):
    data = problem(loss, intercept=intercept)
    weights, _ = run(SparsePursuit(n_steps=12), objective_of(data, loss), data, Budget(100.0, 1e-6))
    features = weights[:30]
    assert {0, 29} <= set(np.flatnonzero(features))
    assert features[0] > 0.0 > features[29]
    assert np.count_nonzero(features) <= 12
    assert np.abs(np.delete(features, [0, 29])).max() < 0.3 * features[0]


@pytest.mark.parametrize("loss", LOSSES[:2], ids=lambda loss: loss.name)
def test_the_list_of_releases_does_not_depend_on_the_data(loss):
    lists = []
    for seed in range(3):
        data = problem(loss, n=100, seed=seed)
        _, holder = run(SparsePursuit(n_steps=3), objective_of(data, loss), data, Budget(1.0, 1e-6), seed)
        lists.append([(line.query, line.kind, line.noise_multiplier) for line in holder.released])
    assert lists[0] == lists[1] == lists[2]
    names = [line[0] for line in lists[0]]
    first = ["target moment"] + ["target deviation"] * (loss.task == "regression")
    assert names == [*first, *["greedy scores", "gradient coordinate"] * 3]


def test_the_clip_follows_the_released_deviation():
    """Targets with little variation get a small clip; a large requested clip is limited by the public bound."""
    loss = Squared(residual_clip=1.0)
    data = problem(loss)
    quiet = replace(data, target=0.01 * data.target)
    sizes = {}
    for name, which, clip in (("wide", data, 1.5), ("quiet", quiet, 1.5), ("most", data, 1e9)):
        _, holder = run(SparsePursuit(n_steps=2, clip=clip), objective_of(which, loss), which)
        (sizes[name],) = {line.sensitivity for line in holder.released if line.query == "gradient coordinate"}
    assert sizes["quiet"] < 0.1 * sizes["wide"]
    assert sizes["most"] == pytest.approx(2.0 * loss.slope_bound * data.facts.value_bound)


@pytest.mark.parametrize("clip", [0.05, 1.0, 500.0])
def test_the_intercept_starts_at_the_best_constant_for_any_scale(clip):
    """Columns with large values have a small box, which must not limit the intercept."""
    loss = Logistic()
    data = problem(loss, n=3000, clip=clip, mean=1.5)
    weights, _ = run(SparsePursuit(n_steps=1), objective_of(data, loss, L1(1e6)), data, Budget(1e3, 1e-6))
    share = data.target.mean()
    assert not weights[:-1].any()
    assert weights[-1] * data.facts.intercept_height == pytest.approx(math.log(share / (1.0 - share)), abs=0.1)


@pytest.mark.parametrize("clip", [1.0, 20.0])
def test_weights_stay_in_their_box(clip):
    loss = Squared(residual_clip=1.0)
    data = problem(loss, clip=clip, mean=1.0)
    weights, _ = run(SparsePursuit(n_steps=6, box=0.1), objective_of(data, loss), data)
    assert np.abs(weights[:-1]).max() == pytest.approx(0.1 / data.facts.value_bound)
    assert abs(weights[-1]) * data.facts.intercept_height <= 0.1 * (1.0 + 1e-12)


def test_gradients_below_their_noise_are_shrunk_to_zero():
    large = 1e9  # much larger than the noise
    assert _shrink(0.0, 1.0, large) == 0.0
    assert _shrink(4.0, 2.0, 1.0) == pytest.approx(4.0 * (1.0 - 0.25) * (1.0 / 5.0))  # both factors
    assert _shrink(0.9, 1.0, large) == 0.0
    assert _shrink(-1.0, 1.0, large) == 0.0
    assert _shrink(2.0, 1.0, large) == pytest.approx(1.5)
    assert _shrink(-2.0, 1.0, large) == pytest.approx(-1.5)
    assert _shrink(2.0, 0.0, large) == 2.0
    assert _shrink(5e-324, 1.0, large) == 0.0
    assert _shrink(2.0, 1.0, 1.0) == pytest.approx(0.75)
    assert abs(_shrink(300.0, 100.0, 1.0)) < 0.03


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize(("n", "n_features", "intercept"), [(1, 1, 0.0), (1, 1, 1.0), (2, 3, 1.0)])
@pytest.mark.parametrize("neighbours", list(Neighbours), ids=str)
def test_few_rows_give_finite_weights(loss, n, n_features, intercept, neighbours):
    data = problem(loss, n, n_features, intercept)
    for budget in (Budget(0.01, 1e-6), Budget(20.0, 1e-6)):
        weights, _ = run(SparsePursuit(n_steps=2), objective_of(data, loss, L2(0.1)), data, budget, 0, neighbours)
        assert np.isfinite(weights).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"n_steps": v}, "n_steps must be") for v in (0, 1.5, math.nan, "4", True)]
    + [({"clip": v}, "clip must be") for v in (0.0, -1.0, math.inf)]
    + [({"box": v}, "box must be") for v in (0.0, -1.0, math.inf)]
    + [({"selection_share": v}, "selection_share must be") for v in (0.0, 1.0, math.nan)]
    + [({"target_share": 0.6, "deviation_share": 0.5}, "less than a tenth")],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(InvalidInput, match=words):
        SparsePursuit(**options)


def test_unsupported_problems_are_refused_in_the_plan():
    facts = Facts(n=10, n_features=2, d=2)
    with pytest.raises(Unsupported, match="no constraint"):
        SparsePursuit().plan(Objective(Logistic(), NoPenalty(), constraint=L1Ball(1.0)), facts)
    with pytest.raises(Unsupported, match="two classes"):
        SparsePursuit().plan(Objective(Multinomial(3)), facts)


@pytest.mark.parametrize("labels", [False, True])
def test_without_a_significant_column_predictions_are_constant_and_the_fit_warns(labels):
    for relevant, size in ((False, 0.0), (True, 1.5)):
        constant, warned = 0, 0
        for seed in range(5):
            rng = np.random.default_rng([seed, 41])
            X = rng.normal(size=(1000, 300))
            scores = size * (X[:, 0] - X[:, 1]) + (0.8 if labels else 0.0)
            if labels:
                y = (rng.random(1000) < 1.0 / (1.0 + np.exp(-scores))).astype(int)
                model = DPLogisticRegression(penalty="l1", bounds=Bounds(centre=0.0, scale=1.0, clip=3.0))
            else:
                y = np.clip(scores + rng.normal(size=1000), -8.0, 8.0)
                model = DPLasso(bounds=Bounds(centre=0.0, scale=1.0, clip=3.0, target=(-8.0, 8.0)))
            solver = SparsePursuit(n_steps=10, target_share=0.08)
            model.set_params(insecure_seed=seed, neighbours="zero-out", solver=solver).fit(X, y)
            constant += np.abs(model.coef_).max() < (1e-12 if labels else 0.15)
            warned += any("distinguished from noise" in text for text in model.privacy_report_.public["warnings"])
        assert constant == warned
        assert warned >= 4 if not relevant else warned == 0


def test_a_significant_move_of_the_intercept_is_not_evidence_for_columns():
    """Clipped slopes of a skewed target move the intercept; the fit still warns about uninformative columns."""
    for seed in range(3):
        rng = np.random.default_rng([seed, 43])
        X, y = rng.uniform(-1.0, 1.0, (1000, 1500)), np.minimum(rng.exponential(size=1000), 20.0)
        bounds = Bounds(features=(-1.0, 1.0), target=(0.0, 20.0))
        model = DPLasso(4.0, solver="pursuit", bounds=bounds, neighbours="zero-out", insecure_seed=seed).fit(X, y)
        assert np.abs(model.coef_).max() < 0.15
        assert any("distinguished from noise" in text for text in model.privacy_report_.public["warnings"])
