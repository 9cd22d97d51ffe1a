"""Forecasts scale as their theorems say, stay above what is measured, and see public numbers only."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput
from dperm.objective import L1, L2, Huber, Logistic, Multinomial, Objective
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import (
    SOLVERS,
    BlockDescent,
    CoordinateDescent,
    FrankWolfe,
    GradientDescent,
    GreedyCoordinateDescent,
    Newton,
)
from dperm.solvers.theory.forecasts import null_excess, usual_distance
from dperm.testing.data import Layout, design_data

ZERO_OUT, REPLACE_ONE = Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE
FACTS = Facts(n=10_000, n_features=20, d=20, value_bound=1.0, row_bound=4.0)
PLAIN = Objective(Logistic())

#: methods whose forecast is an upper bound; nothing is clipped
BOUNDED = [
    GradientDescent(n_steps=32, clip=1e9, momentum=0.0, step=1.0),
    GreedyCoordinateDescent(n_steps=12),
    BlockDescent(n_rounds=2, n_inner=24, n_blocks=4, clip=1e9, step=0.25),
    BlockDescent(n_rounds=1, n_inner=24, n_blocks=2, clip=1e9, step=0.25, sampling="importance", averaging=False),
    CoordinateDescent(n_passes=3, clip=1e9),
    FrankWolfe(n_steps=24, radius=3.0),
]


def made(solver, objective=PLAIN, facts=FACTS, epsilon=1.0, neighbours=ZERO_OUT, **assumed):
    calibrated = calibrate(solver.plan(objective, facts), Budget(epsilon, 1e-6))
    return solver.forecast(objective, facts, calibrated, neighbours, **assumed)


def excess(solver, n, **others):
    return made(solver, facts=replace(FACTS, n=n), **others).excess


# ------------------------------------------------------------------------------------------------------------- scaling
def test_strongly_convex_greedy_falls_with_the_square_of_n_epsilon():
    """Theorem 4.4: after enough steps only the noise is left, 1 / (n epsilon)^2."""
    solver = GreedyCoordinateDescent(n_steps=4000, smoothness=0.25)
    assumed = {"strong_convexity": 0.8}
    assert excess(solver, 10**7, **assumed) / excess(solver, 10**8, **assumed) == pytest.approx(100.0, rel=1e-3)
    mus = [Budget(epsilon, 1e-6).mu for epsilon in (0.5, 1.0)]
    ratio = excess(solver, 10**8, epsilon=0.5, **assumed) / excess(solver, 10**8, epsilon=1.0, **assumed)
    assert ratio == pytest.approx((mus[1] / mus[0]) ** 2, rel=0.05)
    swap = excess(solver, 10**8, neighbours=REPLACE_ONE, **assumed)
    assert swap / excess(solver, 10**8, **assumed) == pytest.approx(4.0, rel=1e-3)


def test_convex_greedy_with_the_best_count_falls_as_the_theorem_says():
    """Theorem 4.4: (n epsilon)^(-2/3) at the best number of steps."""
    best = []
    for n in (10**6, 10**8):
        found = [excess(GreedyCoordinateDescent(n_steps=2**k), n) for k in range(4, 19)]
        assert 0 < np.argmin(found) < len(found) - 1
        best.append(min(found))
    assert best[0] / best[1] == pytest.approx(100.0 ** (2.0 / 3.0), rel=0.15)


def test_quasi_sparsity_spares_the_dimension():
    """Theorem 4.7: with a sparse optimum the excess grows with the logarithm of the dimension only."""
    solver = GreedyCoordinateDescent(n_steps=20)
    assumed = {"strong_convexity": 0.9, "n_large": 2}
    sizes = [replace(FACTS, n=10**7, n_features=p, d=p) for p in (200, 20_000)]
    small, large = (made(solver, facts=facts, **assumed) for facts in sizes)
    assert "Theorem 4.7" in small.basis
    assert any("at most 2 weights" in line for line in small.assumptions)
    assert large.excess < 1.2 * small.excess
    dense = made(solver, facts=sizes[1], strong_convexity=0.9)
    assert large.excess < 0.8 * dense.excess
    rough = made(solver, facts=sizes[0], tolerance=1e-4, **assumed)
    assert small.excess < rough.excess
    focused = made(solver, facts=sizes[0], sparsity=3, **assumed)
    assert focused.excess < small.excess
    assert "no iterate has more than 3" in focused.assumptions[-1]


@pytest.mark.parametrize(("averaging", "power"), [(True, 1.0), (False, 2.0 / 3.0)])
def test_blocks_with_the_best_count_fall_with_n_epsilon(averaging, power):
    """Table 1, convex: 1 / (n epsilon) for averages; the bound on a last iterate is weaker."""
    best = []
    for n in (10**5, 10**7):
        found = [excess(BlockDescent(1, 2**k, 4, averaging=averaging, step=0.5), n) for k in range(4, 26)]
        assert 0 < np.argmin(found) < len(found) - 1
        best.append(min(found))
    assert best[0] / best[1] == pytest.approx(100.0**power, rel=0.1)


@pytest.mark.parametrize(
    ("solver", "power"),
    [(FrankWolfe(n_steps=16, radius=2.0), 1.0), (GradientDescent(n_steps=16, clip=1.0, momentum=0.0, step=1.0), 2.0)],
    ids=["frank-wolfe", "gradient"],
)
def test_the_noise_part_falls_with_n(solver, power):
    quiet = excess(solver, 10**13)
    parts = [excess(solver, n) - quiet for n in (10**4, 10**5)]
    assert parts[0] / parts[1] == pytest.approx(10.0**power, rel=1e-3)


# ------------------------------------------------------------------------------------------- above what is measured
def simulated(n=4000):
    rng = np.random.default_rng(0)
    layout = Layout(n=n, n_features=6, intercept=0.0)
    X = rng.uniform(-1.0, 1.0, (n, 6))
    margin = X @ [2.0, -1.0, 0.5, 0.0, 0.0, 0.0]
    data = design_data(layout, X, rng.random(n) < 1.0 / (1.0 + np.exp(-margin)))
    rows = np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])
    return data, rows


@pytest.mark.parametrize("solver", BOUNDED, ids=lambda solver: repr(solver)[:24])
@pytest.mark.parametrize("epsilon", [0.05, 4.0])
def test_the_measured_excess_is_below_an_upper_bound(solver, epsilon):
    data, rows = simulated()
    objective = Objective(Logistic(), L2(0.02))
    best = minimize(
        lambda w: objective.value(rows, data.target, w),
        np.zeros(6),
        jac=lambda w: objective.gradient(rows, data.target, w) + objective.penalty_gradient(w),
        method="BFGS",
    )
    distance = float(np.abs(best.x).sum())
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(epsilon, 1e-6))
    known = {} if isinstance(solver, FrankWolfe) else {"distance": distance}
    forecast = solver.forecast(objective, data.facts, calibrated, ZERO_OUT, **known)
    assert forecast.basis.startswith("Upper bound")
    found = []
    for seed in range(10):
        scope = Scope(calibrated, Ledger(neighbours=ZERO_OUT), ZERO_OUT, "test", unbounded="seeded")
        with scope:
            holder = DataHolder(data, scope, RandomSource(seed), ZERO_OUT)
            weights = solver.solve(objective, holder, calibrated).weights
        found.append(objective.value(rows, data.target, weights) - best.fun)
    assert 0.0 < np.mean(found) <= forecast.excess
    assert forecast.null_excess >= objective.value(rows, data.target, np.zeros(6)) - best.fun


def test_a_forecast_tells_a_hopeless_plan_from_a_good_one():
    for solver in BOUNDED:
        hopeless, good = made(solver, epsilon=1e-3, facts=replace(FACTS, n=100)), made(solver, facts=FACTS)
        assert hopeless.excess > hopeless.null_excess
        assert good.excess < hopeless.excess
    for solver in (GradientDescent(clip=1.0, momentum=0.0, step=1.0, n_steps=256), FrankWolfe(n_steps=512, radius=2.0)):
        good = made(solver, facts=replace(FACTS, n=10**7))
        assert good.excess < 0.5 * good.null_excess


# ----------------------------------------------------------------------------------------------- what it says and takes
def test_the_defaults_are_public_and_listed():
    assert usual_distance(PLAIN, FACTS) == 4.0
    regression = Objective(Huber(0.5))
    assert usual_distance(regression, replace(FACTS, target_high=10.0, spread=0.5)) == 10.0
    assert null_excess(PLAIN, FACTS, 100.0) == pytest.approx(math.log(2.0))
    assert null_excess(PLAIN, FACTS, 1e-3, 0.25) == pytest.approx(0.125e-6)
    for solver in BOUNDED[:-1]:
        forecast = made(solver)
        assert any("l1 norm of at most 4 (distance)" in line for line in forecast.assumptions)
        assert "with the noise of this plan." in forecast.basis
        assert made(solver, distance=1.0).excess < forecast.excess
    assert any("clip" in line for line in made(GradientDescent()).assumptions)
    assert "Estimate" in made(GradientDescent(momentum=0.5)).basis
    assert any("limits" in line for line in made(GreedyCoordinateDescent(limit=0.1)).assumptions)


def test_an_l2_penalty_on_every_weight_is_strong_convexity_enough():
    strong = Objective(Logistic(), L2(0.25))
    solver = GreedyCoordinateDescent(n_steps=2000)
    assert "strongly convex" in made(solver, strong, replace(FACTS, n=10**8, n_features=3, d=3)).basis


@pytest.mark.parametrize("solver", BOUNDED[1:5], ids=lambda solver: solver.name)
def test_where_no_theorem_applies_there_is_no_forecast(solver):
    assert made(solver, Objective(Logistic(), L1(0.01))) is None
    assert made(replace(solver, step=2.5)) is None


def test_other_solvers_have_none_and_several_outputs_have_one():
    assert made(Newton()) is None
    assert made(GradientDescent(), Objective(Multinomial(3))).excess > 0.0
    assert made(FrankWolfe(), Objective(Logistic(), L1(0.01))).excess > 0.0
    printed = GreedyCoordinateDescent(n_steps=3, rule="GS-s").printed(PLAIN, FACTS, Budget(1.0, 1e-6))
    assert GreedyCoordinateDescent(n_steps=3).forecast(PLAIN, FACTS, printed.calibrated, REPLACE_ONE) is None


@pytest.mark.parametrize("wrong", [{"distance": 0.0}, {"distance": math.nan}, {"strong_convexity": -1.0}])
def test_bad_assumptions(wrong):
    with pytest.raises(InvalidInput, match=f"^{next(iter(wrong))} must be"):
        made(GreedyCoordinateDescent(), **wrong)
    with pytest.raises(InvalidInput, match=f"^{next(iter(wrong))} must be"):
        made(BlockDescent(), **wrong)


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_every_solver_answers(name):
    solver, objective = SOLVERS[name](), Objective(Logistic(), L2(0.05))
    calibrated = CalibratedPlan(solver.plan(objective, FACTS), 1.0, Budget(1.0, 1e-6))
    forecast = solver.forecast(objective, FACTS, calibrated, ZERO_OUT)
    assert forecast is None or (math.isfinite(forecast.excess) and forecast.excess > 0.0 and forecast.assumptions)
