"""The experiments of the Frank-Wolfe paper: optima, bounds against gaps, utility, bytes."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.experiments.datasets import DataFolder
from dperm.experiments.frank_wolfe.lasso import constrained_minimum, lasso
from dperm.experiments.frank_wolfe.table1 import SAMPLINGS, existing_bound, gap_problem
from dperm.experiments.frank_wolfe.table2 import printed_constants
from dperm.experiments.frank_wolfe.uplink import FREE
from dperm.experiments.registry import EXPERIMENTS
from dperm.experiments.running import run
from dperm.objective import L1Ball
from dperm.solvers.theory.block_frank_wolfe import duality_gap
from dperm.solvers.theory.curvature import expected_curvature, gap_bound
from dperm.solvers.vertical import DistributedFrankWolfe


def result_of(name, tmp_path):
    return run(EXPERIMENTS[name], tmp_path, DataFolder(None), fast=True, force=False, show=lambda *_: None)[0]


@pytest.fixture(scope="module")
def small():
    return lasso(DataFolder(None), 200)


def test_the_constrained_minimum_has_no_duality_gap(small):
    linear = -np.asarray(small.X.T @ small.y, float) / small.problem.n
    w = constrained_minimum(small.hessian, linear, L1Ball(small.radius).project)
    gradient = small.hessian @ w + linear
    assert np.abs(w).sum() <= small.radius + 1e-9
    assert gradient @ w + small.radius * np.abs(gradient).max() < 1e-6
    assert small.value(w) == small.best


def test_frank_wolfe_without_noise_reaches_the_minimum(small):
    task = DistributedFrankWolfe(small.objective, small.problem.facts, FREE, n_steps=400, **small.options)
    weights, _ = small.run(task)
    assert small.best <= small.value(weights) <= small.best + 0.02


# ------------------------------------------------------------------------------------------------- table 1
@pytest.mark.parametrize("name", ["boxes", "l1 balls"])
def test_the_optimum_of_the_gap_problems_has_no_duality_gap(name):
    problem = gap_problem(name, 100)
    hessian, linear = problem.function.hessian, problem.function.linear
    x = constrained_minimum(hessian, linear, problem.product.project)
    assert duality_gap(problem.function, problem.product, x) < 1e-6
    assert problem.best == pytest.approx(problem.function.value(x))


def test_table_1_bounds_every_sampling(tmp_path):
    result = result_of("fw-table1", tmp_path)
    assert len(result.panels) == 2 * len(SAMPLINGS)
    steps = EXPERIMENTS["fw-table1"].fast.steps
    for panel in result.panels:
        name, label = panel.title.split(", ", 1)
        problem, sampling = gap_problem(name, 100), SAMPLINGS[label]
        measured, bound = panel.curves[0].points, panel.curves[1].points
        assert (measured[0][0], measured[-1][0]) == (1.0, steps)
        assert all(gap <= most for (_, gap), (_, most) in zip(measured, bound, strict=True))
        first = problem.gaps(sampling, 1)[0]
        curvature = expected_curvature(problem.function.hessian, problem.product, sampling)
        assert bound[-1][1] == pytest.approx(gap_bound(first, curvature, sampling.smallest_probability, steps))
        known = existing_bound(problem, sampling, first, steps)
        assert (known is None) == (label in {"(2, 2)-distributed", "arbitrary"})
    assert not any("exceeds" in row.difference for row in result.rows)
    assert all(row.certified is None and row.without_noise is not None for row in result.rows)


# ------------------------------------------------------------------------------------------------- table 2
def test_table_2_shows_the_certified_cost_of_the_printed_noise(tmp_path):
    rows = {row.what: row for row in result_of("fw-table2", tmp_path).rows}
    cost = rows["epsilon 1, Algorithm 2, printed noise: certified epsilon"]
    assert cost.paper == 1.0
    assert cost.certified is None  # a property of the printed noise
    assert cost.printed > 50.0
    assert rows["epsilon 1, Algorithm 2, no noise: objective"].printed is None
    assert rows["epsilon 1, Algorithm 2, no noise: objective"].without_noise.runs == 2
    assert rows["epsilon 1: C_g"].paper.startswith("formula, constants 1: ")
    assert rows["epsilon 1, central: objective"].certified.runs == 2
    assert rows["epsilon 1, Algorithm 2, printed noise: objective"].certified is None
    assert rows["epsilon 1, Algorithm 2, printed noise: objective"].printed.runs == 2
    sketches = rows["epsilon 1, Algorithm 2, printed noise: uplink, MB"].printed
    assert sketches == pytest.approx(4 * 2 * (32 + 1) * 8 / 1e6)  # steps, parties, sketch and choice, bytes
    assert sketches < rows["epsilon 1, one atom per step: uplink, MB"].certified


def test_the_constants_follow_the_problem(small):
    one, more = printed_constants(small, 1.0), printed_constants(small, 8.0)
    assert more["T"] >= one["T"]
    assert more["utility (16), up to its constant"] < one["utility (16), up to its constant"]
    corners = [small.radius * np.eye(small.problem.d)[j] for j in (0, 70)]
    step = corners[0] - corners[1]
    assert step @ small.hessian @ step <= one["curvature bound"]


# ------------------------------------------------------------------------------------------------- uplink
def test_uplink_counts_the_bytes_of_every_method(tmp_path):
    result = result_of("fw-uplink", tmp_path)
    (panel,) = result.panels
    points = {curve.label: curve.points for curve in panel.curves}
    n = result.baselines[0].n
    dense = points["Frank-Wolfe, predictions in every step"]
    assert [sent for sent, _ in dense] == pytest.approx([steps * 2 * n * 8 / 1e6 for steps in (2, 8)])
    at_need = points["Frank-Wolfe, columns at need"]
    assert [value for _, value in at_need] == [value for _, value in dense]  # the same steps
    assert all(one[0] < other[0] for one, other in zip(at_need, dense, strict=True))
    sketches = points["Algorithm 2 without noise, sketches at need"]
    assert [sent for sent, _ in sketches] == pytest.approx([steps * 2 * 33 * 8 / 1e6 for steps in (2, 8)])
    assert all(value >= panel.lines[0].at > 0.0 for curve in panel.curves[:2] for _, value in curve.points)
    assert all(value > 0.0 for curve in panel.curves for _, value in curve.points)  # nothing beats least squares
