"""Descent in a released metric: its prox, its start, its forecast of noise, and what it releases."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from dperm import Bounds, DPLogisticRegression, Ledger
from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.holder import DataHolder, DesignData
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.exact import Grids
from dperm.objective import (
    L1,
    L2,
    BoxPenalty,
    ElasticNet,
    Huber,
    L1Ball,
    Logistic,
    Multinomial,
    NoPenalty,
    Objective,
    SmoothedHinge,
    Squared,
)
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import WhitenedDescent
from dperm.solvers.central.auto.metric import Metric, MetricProx, handed_on
from dperm.solvers.central.auto.recipes import recipe_for
from dperm.solvers.central.auto.shrinkage import ClippedResponse, Descent, KnownNoise, _mean_shift, shrinkage
from dperm.solvers.central.auto.starting_point import BestConstant, StartingPoint, best_constant
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


# ----------------------------------------------------------------------------------------------- prox
PENALTIES = [NoPenalty(), L2(0.7), L1(0.3), ElasticNet(0.5, 0.4)]


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: p.name)
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("free", [(), (3,)], ids=["all", "intercept free"])
def test_prox_in_the_metric(penalty, n_outputs, free):
    """The point is the minimum of distance plus penalty: nothing near it is lower, and a generic solver agrees."""
    rng = np.random.default_rng(0)
    loss = Logistic() if n_outputs == 1 else Multinomial(n_outputs)
    shape = (4,) if n_outputs == 1 else (4, n_outputs)
    objective = Objective(loss, penalty, unpenalised=free)
    matrix = rng.normal(size=(4, 4)) + 2.0 * np.eye(4)
    start, v, before = (rng.normal(size=shape) for _ in range(3))
    step = 0.8
    point = MetricProx(objective, matrix, start)(v, before, step)

    def cost(u):
        u = u.reshape(shape)
        w = start + matrix @ u
        kept = np.delete(w, list(free), axis=0)
        return float(((u - v) ** 2).sum() / (2.0 * step) + penalty.value(kept))

    least = cost(point)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(200):
            assert cost(point + size * rng.normal(size=shape)) >= least - 1e-9
    smooth = penalty.name in ("none", "l2")
    found = minimize(cost, np.zeros(np.prod(shape)), method="BFGS" if smooth else "Powell", tol=1e-9)
    assert least <= found.fun + 1e-9
    if smooth:
        np.testing.assert_allclose(point.ravel(), found.x, atol=1e-4)
    if penalty.name == "none":
        assert np.array_equal(point, v)


def test_prox_finds_zeros():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(6, 6)) + 2.0 * np.eye(6)
    prox = MetricProx(Objective(Logistic(), L1(50.0), unpenalised=(5,)), matrix, np.zeros(6))
    w = matrix @ prox(rng.normal(size=6), np.zeros(6), 1.0)
    np.testing.assert_allclose(w[:5], 0.0, atol=1e-12)
    assert abs(w[5]) > 1e-3


@pytest.mark.parametrize(
    "objective", [Objective(Logistic(), BoxPenalty(-1.0, 1.0)), Objective(Logistic(), constraint=L1Ball(1.0))]
)
def test_penalties_without_a_prox_here(objective):
    with pytest.raises(Unsupported, match="none, l1, l2 and elastic-net"):
        WhitenedDescent().plan(objective, Facts(n=10, n_features=2, d=2))


# -------------------------------------------------------------------------------------- noise of the output
@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("n_averaged", [1, 7, 20])
@pytest.mark.parametrize("penalised", [0.0, 3.0])
def test_output_noise_is_what_a_simulation_shows(momentum, n_averaged, penalised):
    rng = np.random.default_rng(0)
    curvature = np.array([0.0, 0.1, 0.5, 1.0])
    steps = 0.9 / (1.0 + 0.2 * np.arange(20))
    x = previous = total = np.zeros((20_000, 4))
    for t, step in enumerate(steps):
        gradient = curvature * x + rng.normal(size=x.shape)
        previous, x = x, (x + momentum * (x - previous) - step * gradient) / (1.0 + step * penalised)
        if t >= 20 - n_averaged:
            total = total + x / n_averaged
    simulated = (total**2).mean(axis=0)
    # a variance of 20000 normal draws has a standard error of one percent
    anew, common = handed_on(curvature, steps, momentum, n_averaged, penalised)
    np.testing.assert_allclose(anew, simulated, rtol=0.05)
    x = previous = total = np.zeros(4)
    for t, step in enumerate(steps):
        previous, x = x, (x + momentum * (x - previous) - step * (curvature * x - 1.0)) / (1.0 + step * penalised)
        if t >= 20 - n_averaged:
            total = total + x / n_averaged
    np.testing.assert_allclose(common, total, rtol=1e-12)


def test_output_noise_of_one_step():
    anew, common = handed_on(np.array([0.3, 2.0]), np.array([0.5]), 0.0, 1)
    np.testing.assert_allclose(anew, 0.25)
    np.testing.assert_allclose(common, 0.5)


@pytest.mark.parametrize("clip", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("p", [0.5, 0.2, 0.03])
@pytest.mark.parametrize("label_independence", [0.0, 0.5, 1.0])
def test_clipped_slopes_of_two_classes_answer_and_scatter_as_a_query_shows(clip, p, label_independence):
    """One row for each person, all alike: the released sums of the query itself, at the constant and next to it."""
    n = 1000
    best = BestConstant(math.log(p / (1.0 - p)), 0.5, curvature=p * (1.0 - p))
    y = (np.arange(n) < p * n).astype(float)

    def slopes(score):
        chance = 1.0 / (1.0 + np.exp(-score))
        slope = chance - y
        size = label_independence * max(chance, 1.0 - chance) + (1.0 - label_independence) * np.abs(slope)
        return slope * np.minimum(1.0, 0.5 * clip / size)

    answer = ClippedResponse.of(Logistic(), recipe_for(Logistic()), best, clip, label_independence)
    derivative = (slopes(best.constant + 0.2).mean() - slopes(best.constant - 0.2).mean()) / 0.4
    usual = min(1.0, clip) * min(0.15, p * (1.0 - p))
    assert answer.curvature[0] == pytest.approx(max(derivative, 0.01 * usual), rel=1e-9)
    assert answer.cautious[0] == pytest.approx(min(answer.curvature[0], usual), rel=1e-9)
    assert answer.square[0] == pytest.approx((slopes(best.constant) ** 2).mean(), rel=1e-9)


@pytest.mark.parametrize("clip", [0.8, 1.25, 4.0])
def test_clipped_residuals_answer_and_scatter_as_normal_ones_do(clip):
    residuals = np.random.default_rng(0).normal(size=400_000)
    deviation = np.abs(residuals).mean()
    answer = ClippedResponse.of(Squared(), recipe_for(Squared()), BestConstant(0.0, deviation), clip, 0.0)
    assert answer.curvature[0] == pytest.approx((np.abs(residuals) < clip * deviation).mean(), abs=0.005)
    cut = np.clip(residuals, -clip * deviation, clip * deviation)
    assert answer.square[0] == pytest.approx((cut**2).mean(), rel=0.01)


@pytest.mark.parametrize("share", [0.02, 0.125])
def test_residuals_of_a_target_of_two_values_scatter_as_they_do(share):
    deviation = 2.0 * share * (1.0 - share)
    skew = 0.5 / share  # what the crowd on the nearer side leaves to the others
    answer = ClippedResponse.of(Squared(), recipe_for(Squared()), BestConstant(share, skew * deviation, skew), 9.0, 0.0)
    assert answer.square[0] == pytest.approx(share * (1.0 - share), rel=0.2)
    assert answer.curvature[0] == pytest.approx(1.0)
    # with a limit between the few and the others, the few neither answer nor scatter beyond it
    answer = ClippedResponse.of(
        Squared(residual_clip=0.5), recipe_for(Squared()), BestConstant(share, skew * deviation, skew), 9.0, 0.0
    )
    assert answer.curvature[0] == pytest.approx(1.0 - share)
    cut = share * 0.5**2 + (1.0 - share) * share**2
    assert answer.square[0] == pytest.approx(cut, rel=0.3)


@pytest.mark.parametrize("unsure", [0.0, 0.2, 0.5, 7.0])
def test_an_unsure_unit_of_residuals_makes_the_judgement_of_noise_cautious(unsure):
    best = BestConstant(0.0, 1.0, unsure=unsure)
    answer = ClippedResponse.of(Squared(), recipe_for(Squared()), best, 1.25, 0.0)
    assert answer.curvature[0] == pytest.approx(math.erf(1.25 / math.sqrt(math.pi)))
    assert answer.cautious[0] == pytest.approx(math.erf(1.25 / (1.0 + min(unsure, 0.5)) / math.sqrt(math.pi)))


@pytest.mark.parametrize("intercept", [1.0, 0.0])
def test_how_unsure_the_unit_of_residuals_is_follows_from_its_noise(intercept):
    """Twice the noise, twice as unsure, in units as released."""
    data = problem(Squared(), n=2000, intercept=intercept)
    start, found = StartingPoint(0.2, 0.05), []
    plan = Plan(tuple(start.releases(Squared(), data.facts)))
    for multiplier in (1.0, 2.0):
        calibrated = CalibratedPlan(plan, multiplier, Budget(1.0, 1e-6))
        with Scope(calibrated, Ledger(), Neighbours.ZERO_OUT, "test") as scope:
            best = start.release(Squared(), DataHolder(data, scope, RandomSource(0), Neighbours.ZERO_OUT), calibrated)
        found.append(best.unsure * best.slope / best.skew)
    assert found[0] > 0.0
    assert found[1] == pytest.approx(2.0 * found[0], rel=0.05)


def test_noise_that_all_classes_share_is_not_kept():
    """It changes no prediction, no step undoes it, and counted as signal it kept the noise of all columns."""
    rng = np.random.default_rng(0)
    excess, notes = [], 0
    for seed in range(6):
        X, y = np.clip(rng.normal(size=(8000, 10)), -3.0, 3.0), rng.choice(3, 8000, p=[0.7, 0.2, 0.1])
        bounds = Bounds(centre=0.0, scale=1.0, clip=3.0, classes=(0, 1, 2))
        model = DPLogisticRegression(epsilon=1.0, bounds=bounds, neighbours="zero-out", insecure_seed=seed)
        chances = model.fit(X[:4000], y[:4000]).predict_proba(X[4000:])[np.arange(4000), y[4000:]]
        excess.append(np.mean(np.log((np.bincount(y[:4000]) / 4000)[y[4000:]])) - np.mean(np.log(chances)))
        notes += bool(model.privacy_report_.public["warnings"])
    assert np.mean(excess) <= 0.003
    assert notes == 6


# ------------------------------------------------------------------------------------------------ metric
def test_the_metric_makes_the_rows_round():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4)) * [1.0, 0.3, 0.1, 0.05]
    heights = np.array([1.0, 1.0, 1.0, 0.5])
    moments = (X * heights).T @ (X * heights) / 500
    metric = Metric.of(moments, heights, 1e-7, 3.0, Grids(500, 4))
    Z = X @ metric.rows.matrix
    np.testing.assert_allclose(Z.T @ Z / 500, np.eye(4), atol=1e-3)
    np.testing.assert_allclose(metric.seen, 1.0)
    assert metric.length == pytest.approx(2.0)


def test_directions_below_the_noise_are_not_stretched():
    rng = np.random.default_rng(0)
    moments = np.diag([1.0, 1e-6, -1e-3, 0.0])
    noise, d = 0.01, 4
    metric = Metric.of(moments, np.ones(d), noise, 1.0, Grids(500, d))
    assert np.linalg.norm(metric.rows.matrix, 2) <= (noise * math.sqrt(2.0 * d)) ** -0.5 * (1.0 + 1e-6)
    assert (metric.seen >= 0.0).all()
    assert metric.seen.max() == pytest.approx(1.0)
    assert metric.length == pytest.approx(math.sqrt(metric.seen.sum()))
    only_noise = rng.normal(0.0, noise, (d, d))
    wild = Metric.of(only_noise + only_noise.T, np.ones(d), 100.0 * noise, 1.0, Grids(500, d))
    assert np.isfinite(wild.rows.matrix).all()
    # nothing is seen: all directions alike, with the trace of rows about as long as they were clipped
    np.testing.assert_allclose(wild.seen, wild.seen[0])
    assert wild.length**2 == pytest.approx(0.85 / (100.0 * noise * math.sqrt(2.0 * d)), rel=0.02)


def test_second_moments_are_freed_of_their_noise():
    """Along released eigenvectors the data have what the shrunken eigenvalues say, not what the noisy ones say."""
    rng = np.random.default_rng(0)
    d, noise = 60, 0.02
    truth = np.diag(np.concatenate([[0.8, 0.5], np.full(d - 2, 0.005)]))
    found, real, naive = [], [], []
    for _ in range(20):
        drawn = rng.normal(0.0, noise / math.sqrt(2.0), (d, d))
        released = truth + np.triu(drawn, 1) + np.triu(drawn, 1).T + np.diag(rng.normal(0.0, noise, d))
        values, vectors = np.linalg.eigh(released)
        metric = Metric.of(released, np.ones(d), noise, math.sqrt(np.trace(truth) / 0.85), Grids(500, d))
        stretched = np.maximum(1e-300, (metric.rows.matrix**2).sum(axis=0))
        found.append(metric.seen / stretched)
        real.append(np.einsum("ji,jk,ki->i", vectors, truth, vectors))
        naive.append(np.maximum(values, 0.0))
    found, real, naive = np.mean(found, axis=0), np.mean(real, axis=0), np.mean(naive, axis=0)
    np.testing.assert_allclose(found[-2:], real[-2:], rtol=0.05)
    assert np.abs(found - real).sum() < 0.25 * np.abs(naive - real).sum()


# ------------------------------------------------------------------------------------------------- start
@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(0.5), SmoothedHinge(1.5)], ids=repr)
@pytest.mark.parametrize("mean", [0.02, 0.4, 0.5, 0.9])
def test_best_constant(loss, mean):
    """No constant on a fine grid has a lower expected loss."""
    grid = np.linspace(-6.0, 6.0, 4001)

    def cost(z):
        z = np.atleast_1d(z)
        return (1.0 - mean) * loss.value(z, np.zeros(len(z))) + mean * loss.value(z, np.ones(len(z)))

    found = best_constant(loss, mean)
    assert cost(found)[0] <= cost(grid).min() + 1e-6
    if mean != 0.5:
        assert (found > 0.0) == (mean > 0.5)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Squared(residual_clip=1.0), SmoothedHinge(0.5)], ids=repr)
def test_without_steps_worth_the_name_it_stays_at_the_best_constant(loss):
    """With an overwhelming penalty only the intercept is left, and that starts where it should."""
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


# --------------------------------------------------------------------------------------------- releases
def public(holder):
    return [(line.query, line.kind, line.noise_multiplier, line.size) for line in holder.released]


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Huber(0.5)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_what_is_released_does_not_depend_on_the_data(loss, intercept):
    """Other data: the same releases in the same order with the same multipliers."""
    one, two = (problem(loss, intercept=intercept, seed=seed) for seed in (0, 1))
    empty = DesignMatrix.from_array(np.zeros((200, 3)), Layout(n_features=3).scaling(), intercept)
    three = replace(one, design=empty, target=np.zeros(200))
    lists = []
    for seed, data in enumerate((one, two, three)):
        lists.append(public(run(SHORT, objective_of(data, loss), data, Budget(1.0, 1e-6), seed)[1]))
    assert lists[0] == lists[1] == lists[2]
    names = [line[0] for line in lists[0]]
    first = ["target moment" if loss.n_outputs == 1 else "class counts"] * bool(intercept)
    if loss.task == "regression":
        first.append("target deviation")
    assert names == [*first, "row lengths", "mapped second moment", *["mapped gradient"] * 6]


@pytest.mark.parametrize("neighbours", list(Neighbours), ids=str)
def test_gradients_have_the_sensitivity_of_their_clip(neighbours):
    """The clip never exceeds what the public bounds allow, however large a clip is asked for."""
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
def test_hardly_any_data(loss, n, n_features, intercept, neighbours):
    data = problem(loss, n, n_features, intercept)
    for budget in (Budget(0.01, 1e-6), Budget(20.0, 1e-6)):
        for penalty in (L2(0.1), L1(0.1)):
            solution, _ = run(SHORT, objective_of(data, loss, penalty), data, budget, neighbours=neighbours)
            assert np.isfinite(solution.weights).all()


@pytest.mark.parametrize(
    ("loss", "penalty", "dominance"),
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
def test_noise_next_to_none_is_no_reason_to_fail(loss, penalty, dominance, neighbours, intercept):
    """Directions that are not seen, slopes or weights that may hardly be any: variances far apart, or none at all."""
    solver = replace(SHORT, n_steps=8, dominance=dominance, momentum=0.5 * (dominance == 0.5))
    for n in (1, 2, 3, 5, 60):
        data = problem(loss, n, 4, intercept)
        for rows in (None, 0.0, 1.0):
            if rows is not None:
                flat = DesignMatrix.from_array(np.full((n, 4), rows), Layout(n=n, n_features=4).scaling(), intercept)
                data = replace(data, design=flat)
            solution, _ = run(solver, objective_of(data, loss, penalty), data, Budget(1e6, 1e-6), neighbours=neighbours)
            assert np.isfinite(solution.weights).all()


def test_the_result_is_shrunk_by_its_noise():
    """Where noise rules, next to nothing is left; where it does not, nothing is taken away."""
    loss = Logistic()
    data = problem(loss, n=300)
    objective = objective_of(data, loss)
    for budget, dominance, low, high in ((Budget(0.01, 1e-6), 1.0, 0.0, 0.1), (Budget(1e3, 1e-6), 0.0, 0.9, 1.0)):
        solver, kept = WhitenedDescent(n_steps=16, dominance=dominance), []
        for seed in range(5):
            full, shrunk = (
                run(replace(solver, shrink=shrink), objective, data, budget, seed)[0].weights
                for shrink in (False, True)
            )
            kept.append(np.linalg.norm(shrunk[:-1]) / np.linalg.norm(full[:-1]))
        assert low <= np.mean(kept) <= high + 1e-12


def test_kept_counts_only_what_exceeds_the_noise():
    recipe = recipe_for(Logistic())
    parts = np.full(10, 0.1)
    assert recipe.kept(parts, 0.5) == recipe.least_kept
    assert recipe.kept(parts, 0.0) == recipe.least_kept
    assert recipe.kept(0.0 * parts, 0.0) == recipe.least_kept
    assert recipe.kept(0.0 * parts, 1.0) == 1.0
    assert recipe.least_kept < recipe.kept(parts, 3.0) < 1.0
    assert recipe.kept(np.repeat(parts, 3), 5.0) < recipe.kept(parts, 5.0)
    assert recipe_for(Huber(1.0)).kept(parts, 0.5) == 0.0


# --------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("options", "words"),
    [({"n_steps": v}, "n_steps must be") for v in (0, 1.5, math.nan, "4", True)]
    + [({"clip": v}, "clip must be") for v in (0.0, -1.0, math.inf)]
    + [({"momentum": v}, "momentum must be") for v in (-0.1, 1.0, math.nan)]
    + [({"dominance": v}, "dominance must be") for v in (-0.1, 1.1, math.nan)]
    + [({"moment_share": v}, "moment_share must be") for v in (0.0, 1.0, math.nan)]
    + [({"moment_share": 0.8, "target_share": 0.2}, "less than a tenth")],
)
def test_bad_options(options, words):
    with pytest.raises(InvalidInput, match=words):
        WhitenedDescent(**options)


def test_what_it_does_not_take_is_refused_in_the_plan():
    with pytest.raises(InvalidInput, match="unbounded slopes"):
        WhitenedDescent().plan(Objective(Squared()), Facts(n=10, n_features=2, d=2))
    for d in (2001, 10**9):  # without a matrix of that size
        with pytest.raises(Unsupported, match=f"too much for {d} columns"):
            WhitenedDescent().plan(Objective(Logistic()), Facts(n=10, n_features=d - 1, d=d))


def test_the_mean_row_has_a_constant_of_one_whatever_noise_did_to_its_square():
    facts = Facts(1000, 2, 3, intercept_height=1.0)
    for square in (1.0, 0.1, -0.2):
        moments = np.diag([1.0, 1.0, square])
        assert Metric.of(moments, np.ones(3), 0.2, 2.0, facts.grids).middle[-1] == 1.0


def test_noise_of_the_constant_does_not_speak_against_the_columns():
    facts = Facts(1000, 2, 3, intercept_height=1.0)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    basis, v = metric.rows.matrix, np.zeros(3)
    along = np.abs(basis[-1]) > 0.5  # the direction of the constant
    v[~along] = 10.0
    for loud in (1.0, 1e4):
        variances = np.where(along, loud, 1.0)[:, None]
        noise = KnownNoise(variances, variances, np.ones(1), 1.0)
        _, kept = shrinkage(v, metric, noise, recipe_for(Squared()), facts, None, False)
        assert kept == pytest.approx(1.0 - (2.0 + 0.5 * 2.0) / 200.0, abs=0.002)


def test_known_noise_follows_from_the_descent():
    """Chance is in all steps alike, so its move is squared; what is learnt is the share of the way that was gone."""
    facts = Facts(1000, 3, 3)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    descent = Descent(np.full(2, 0.5), 0.0, 1, np.zeros(3))
    for trusted in (1.0, 0.5):
        answer = ClippedResponse(np.array([0.4, 0.2]), np.array([0.6, 0.3]), np.array([2.0, 1.0]), trusted)
        noise = KnownNoise.of(answer, metric, descent, 0.1, 50, 0.5)
        # two steps of 0.5: the noise of the first is undone by the share 0.5 h in the second
        left, slower = 1.0 - 0.5 * answer.cautious, 1.0 - 0.5 * answer.curvature
        # of two classes, what is not common to both is half of either's
        anew = np.mean(0.25 * (1.0 + left**2) * 0.01) / 2.0
        expected = anew + (0.5 * (1.0 + slower)) ** 2 * answer.square * 0.01
        np.testing.assert_allclose(noise.variances, np.tile(expected, (3, 1)), rtol=1e-5)
        more = expected + (0.5 * (1.0 + slower)) ** 2 * answer.square * 0.01  # all of the chance
        np.testing.assert_allclose(noise.alone, np.tile(more, (3, 1)), rtol=1e-5)
        np.testing.assert_allclose(noise.weights, [1.0, 0.5])
        assert noise.learnt == pytest.approx(np.mean(1.0 - left**2) ** trusted, rel=1e-5)


def test_noise_of_several_classes_is_known_without_what_they_have_in_common():
    """As it is in the result, from which that was taken away; chance has none."""
    facts, rng = Facts(1000, 2, 2), np.random.default_rng(0)
    metric = Metric.of(np.eye(2), np.ones(2), 1e-6, math.sqrt(2.0), facts.grids)
    curvature = np.array([0.05, 0.15, 0.2, 0.1])
    descent = Descent(np.full(30, 0.5), 0.0, 1, np.zeros(2))
    noise = KnownNoise.of(ClippedResponse(curvature, curvature, np.zeros(4), 1.0), metric, descent, 0.1, 50, 1.0)
    v = np.zeros((20_000, 4))
    for step in descent.steps:
        v -= step * (curvature * v + 0.1 * rng.normal(size=v.shape))
    centred = v - v.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(noise.alone, np.tile(centred.var(axis=0), (2, 1)), rtol=0.04)


@pytest.mark.parametrize("learnt", [1.0, 0.8, 0.3])
@pytest.mark.parametrize("size", [1.8, 3.0, 10.0])
def test_what_stopping_early_has_shrunk_is_not_shrunk_again(learnt, size):
    facts = Facts(1000, 3, 3)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    v = np.array([size, -size, size])

    def moved(share):
        noise = KnownNoise(np.ones((3, 1)), np.ones((3, 1)), np.ones(1), share)
        return shrinkage(v, metric, noise, recipe, facts, None, False)

    recipe = recipe_for(Squared())
    (full, kept), (out, same) = moved(1.0), moved(learnt)
    assert kept == same
    assert 0.0 < kept < 1.0
    np.testing.assert_allclose(out, full * min(1.0 / kept, learnt**-kept), rtol=1e-9)


@pytest.mark.parametrize("found", [-9.0, -0.1, 0.1, 9.0])
def test_the_mean_prediction_moves_as_far_as_the_guide_says(found):
    known, variance, by_columns = BestConstant(0.0, 2.0, noise=0.3), 0.05, -0.4
    likely, astray = 0.3**2 + 0.2**2, 0.4**2
    trusted = likely / (likely + variance + astray)
    most = (1.0 + trusted) * 0.3 + 0.2
    expected = math.copysign(min(trusted * abs(found), most), found)
    assert _mean_shift(found, variance, by_columns, known, True) == pytest.approx(expected)
    share = (likely + astray) / (likely + astray + variance)
    assert _mean_shift(found, variance, by_columns, known, False) == pytest.approx(share * found)
