"""Distributed Frank-Wolfe as published: what it computes, its noise, and what the noise really costs."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import Logistic, Objective, Squared
from dperm.privacy import Budget
from dperm.privacy.accounting.gdp import epsilon_of
from dperm.solvers.theory.curvature import gap_bound
from dperm.solvers.theory.distributed_frank_wolfe import (
    printed_feature_deviation,
    printed_gradient_inexactness,
    printed_index_scale,
    printed_oracle_inexactness,
    printed_utility,
)
from dperm.solvers.vertical import PrintedFrankWolfe
from dperm.solvers.vertical.frank_wolfe import choice_group
from dperm.testing.vertical import facts_of, run_vertical

OBJECTIVE = Objective(Squared(residual_clip=6.0))


def problem(cuts, n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 8))
    y = np.clip(X @ np.array([1.0, 0, 0, -0.8, 0, 0, 0, 0.4]) + 0.1 * rng.normal(size=n), -3.0, 3.0)
    edges = [0, *cuts, 8]
    designs = {}
    for k, (start, stop) in enumerate(pairwise(edges)):
        scaling = Scaling(np.zeros(stop - start), np.ones(stop - start), 1.0)
        designs[f"party {k + 1}"] = DesignMatrix.from_array(X[:, start:stop], scaling, 0.0)
    return X, y, designs


def made(designs, **options):
    budget = options.pop("budget", Budget(1.0, 1e-6))
    chosen = {"n_steps": 20, "radius": 2.0, "n_sketch": 64, "target_low": -3.0, "target_high": 3.0, **options}
    return PrintedFrankWolfe(OBJECTIVE, facts_of(designs), budget, **chosen)


def test_one_party_without_noise_solves_the_lasso_up_to_the_error_of_the_sketch():
    X, y, designs = problem(())
    task = made(designs, calibration="none", n_steps=200, n_sketch=300)
    (w,) = run_vertical(task, designs, y).result.weights.values()
    assert np.abs(w).sum() <= 2.0 + 1e-12
    assert OBJECTIVE.value(X, y, w) < 0.1 * OBJECTIVE.value(X, y, np.zeros(8))


def test_two_parties_leave_the_ball_and_follow_the_printed_update():
    X, y, designs = problem((4,))
    run = run_vertical(made(designs, calibration="none", n_steps=3), designs, y)
    x, radius = np.zeros(8), 2.0
    task = made(designs, calibration="none")
    q = np.zeros(64)
    for t in range(3):
        residual = np.clip(400 * task.projection.T @ q - y, -6.0, 6.0)
        gradient = X.T @ residual / 400
        atoms, moved = np.zeros(8), np.zeros(64)
        for part in (slice(0, 4), slice(4, 8)):
            j = part.start + int(np.argmax(np.abs(gradient[part])))
            atoms[j] = -np.sign(gradient[j])
            moved += atoms[j] * (task.projection @ X[:, j])
        gamma = 2.0 / (t + 2.0)
        x = (1.0 - gamma) * x + gamma * radius * atoms
        q = (1.0 - gamma) * q + gamma * radius / 400 * moved
        if t == 0:
            assert np.abs(x).sum() == 2.0 * radius
    np.testing.assert_allclose(np.concatenate(list(run.result.weights.values())), x, atol=1e-9)


def test_the_noise_is_as_printed():
    _, _, designs = problem((4,))
    task = made(designs)
    assert task.projection.shape == (64, 400)
    np.testing.assert_allclose(np.linalg.norm(task.projection, axis=0).mean(), 1.0, rtol=0.02)
    assert task.singular_value == pytest.approx(np.linalg.norm(task.projection, 2))
    scale = printed_index_scale(n=400, n_steps=20, gradient_bound=6.0, radius=2.0, epsilon=1.0, delta=1e-6)
    assert scale == pytest.approx(8 * 6 * 2 * math.sqrt(40 * math.log(2e6)) / 400)
    name = choice_group("party 1")
    assert task.multipliers[name] * 2 * 6.0 / 400 == pytest.approx(scale)  # a mean gradient moves by 2 G / n
    assert task.calibrated.noise_multiplier(name) == pytest.approx(task.multipliers[name])
    deviation = printed_feature_deviation(
        n=400, n_parties=2, n_steps=20, singular_value=task.singular_value, epsilon=1.0, delta=1e-6
    )
    longest = float(np.linalg.norm(task.projection, axis=0).max())
    sketch = task.multipliers["normal sketches of columns of party 2"]
    assert sketch * 2 * longest == pytest.approx(deviation)


def test_a_run_adds_the_printed_noise_to_projections():
    _, y, designs = problem((4,))
    task = made(designs, n_steps=60)
    run = run_vertical(task, designs, y)
    X = {name: np.concatenate([b * d.spacing for _, b in d.row_chunks()]) for name, d in designs.items()}
    errors = []
    for replies in run.messages.replies:
        for name, message in replies.items():
            column = X[name][:, int(message.arrays["place"][0]) % 4]
            errors.append(message.arrays["sketch"] - task.projection @ column)
    deviation = printed_feature_deviation(
        n=400, n_parties=2, n_steps=60, singular_value=task.singular_value, epsilon=1.0, delta=1e-6
    )
    assert np.std(errors) == pytest.approx(deviation, rel=0.05)


def test_the_report_has_no_guarantee_and_the_certified_cost_of_the_printed_noise():
    _, y, designs = problem((4,))
    report = run_vertical(made(designs), designs, y).result.report
    assert report.guarantee is None
    assert "divided by the number of people" in report.reason
    multiplier = made(designs).multipliers["normal sketches of columns of party 1"]
    sketches_alone = epsilon_of(math.sqrt(40) / multiplier, 1e-6)
    assert report.planned.epsilon >= 0.99 * sketches_alone
    assert report.planned.epsilon > 400.0


@pytest.mark.parametrize("epsilon", [1e200, 1e-200])
def test_a_budget_whose_printed_noise_is_out_of_range_gets_one_sentence(epsilon):
    _, y, designs = problem((4,))
    with pytest.raises(Unsupported, match=r"out of range: choose an epsilon nearer 1\.$"):
        run_vertical(made(designs, budget=Budget(epsilon, 1e-6)), designs, y)


def test_the_report_says_that_parties_learn_the_labels():
    """The published parties get residuals; partial scores do not travel here, so the model view's sentence is wrong."""
    _, y, designs = problem((4,))
    run = run_vertical(made(designs), designs, y)
    first = run.messages.requests[0]["party 1"].arrays["residual"]
    np.testing.assert_array_equal(first, -y)  # which is why
    told = " ".join(run.result.report.not_covered)
    assert "residuals reach them without noise and reveal every label" in told
    assert "the certified epsilon covers who sees only what parties send" in told
    assert "partial scores" not in told


def test_what_it_does_not_take():
    _, _, designs = problem((4,))
    with pytest.raises(Unsupported, match="squared loss only"):
        PrintedFrankWolfe(Objective(Logistic()), facts_of(designs), Budget(1.0, 1e-6))
    with pytest.raises(Unsupported, match="leave product out"):
        made(designs, product=True)
    with pytest.raises(Unsupported, match="replace-one"):
        made(designs, neighbours="zero-out")
    with pytest.raises(InvalidInput, match="'paper' or 'none'"):
        made(designs, calibration="exact")


# ---------------------------------------------------------------------------------------------- Theorem 3, Table 2
@pytest.mark.parametrize("n", [10**5, 10**6, 10**7])
def test_equation_16_is_theorem_1_with_the_inexactness_of_table_2(n):
    """At the printed number of steps the two agree up to the constant and the logarithm, at every n."""
    constants = {"gradient_constant": 40.0, "oracle_constant": 60.0}
    curvature, p, drawn, epsilon = 3.0, 0.5, 10, 1.0
    steps = (curvature * n * epsilon / 100.0) ** (2.0 / 3.0)
    common = {"n_steps": steps, "n": n, "epsilon": epsilon, "curvature": curvature, "probability": p}
    rho = printed_gradient_inexactness(gradient_constant=40.0, reach=1.0, **common)
    rho += printed_oracle_inexactness(oracle_constant=60.0, n_drawn=drawn, gradient_bound=1.0, radius=1.0, **common)
    theorem = gap_bound(0.0, curvature, p, steps, rho)
    printed = printed_utility(
        curvature=curvature,
        n=n,
        epsilon=epsilon,
        n_drawn=drawn,
        probability=p,
        gradient_bound=1.0,
        radius=1.0,
        **constants,
    )
    log = math.log(2.0 * drawn * n)
    assert 0.5 < theorem / (printed / log) < 4.0


def test_the_inexactness_is_that_of_assumption_1():
    """An error of C_g reach sqrt(T) / (2 n epsilon) in the gradient is rho_g times gamma C_f / 2."""
    rho = printed_gradient_inexactness(
        gradient_constant=7.0, n_steps=98, n=1000, epsilon=0.5, curvature=2.0, reach=3.0, probability=0.5
    )
    gamma = 2.0 / (0.5 * 98 + 2.0)
    assert rho * gamma * 2.0 / 2.0 == pytest.approx(7.0 * 3.0 * math.sqrt(98) / (2 * 1000 * 0.5))


def test_more_budget_means_less_printed_noise():
    _, _, designs = problem((4,))
    small, large = (replace(made(designs), budget=Budget(e, 1e-6)).multipliers for e in (0.5, 2.0))
    for group in small:
        assert small[group] > 1.8 * large[group]
