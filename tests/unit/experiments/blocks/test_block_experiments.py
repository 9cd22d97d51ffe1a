"""The experiments of the DP-SkGD paper: the problem's constants, and what the runs show."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.experiments.blocks.importance import EXPERIMENT as IMPORTANCE
from dperm.experiments.blocks.importance import best_of
from dperm.experiments.blocks.problem import ImbalancedSquares, fit
from dperm.experiments.blocks.table1 import EXPERIMENT as TABLE
from dperm.experiments.blocks.table1 import solvers_of
from dperm.experiments.datasets import DataFolder
from dperm.experiments.running import run
from dperm.solvers import BlockDescent
from dperm.solvers.theory.block_descent import table1


def result_of(experiment, tmp_path):
    return run(experiment, tmp_path, DataFolder(None), fast=True, force=False, show=lambda *_: None)[0]


def test_the_constants_are_those_of_the_problem():
    """M_j bounds the curvature of the fitted loss along j, L_j a person's derivative, mu its curvature anywhere."""
    problem = ImbalancedSquares(25.0, 3, 3_000, 8)
    constants = problem.constants
    curvature = np.array([2.0 * problem.excess(problem.optimum + row) for row in np.eye(8)])
    assert curvature == pytest.approx(np.array(constants.smoothness), rel=0.1)
    assert constants.smoothness[0] == pytest.approx(25.0 * constants.smoothness[1])
    for _ in range(20):
        step = np.random.default_rng(4).normal(size=8)
        curved = 2.0 * problem.excess(problem.optimum + step)
        assert curved >= constants.strong_convexity * (step @ step) - 1e-12
        assert curved >= constants.relative_convexity * (np.array(constants.smoothness) @ step**2) - 1e-12
    assert problem.excess(problem.optimum) == 0.0
    baseline = problem.baseline()
    assert baseline.null - baseline.non_private == pytest.approx(problem.excess(np.zeros(8)))


def test_data_are_the_same_every_time():
    one, other = (ImbalancedSquares(4.0, 3, 200, 4) for _ in range(2))
    assert one.optimum.tolist() == other.optimum.tolist()
    assert one.optimum.tolist() != ImbalancedSquares(4.0, 5, 200, 4).optimum.tolist()


def test_a_fit_without_much_noise_comes_near_the_optimum():
    """As many people as make the noise small: the excess is far below that of weights 0."""
    problem = ImbalancedSquares(1.0, 3, 200_000, 4)
    solver = BlockDescent(1, 200, 4, "uniform", problem.limits, 0.5, problem.smoothness, averaging=False)
    assert fit(problem, solver) < 0.02 * problem.excess(np.zeros(4))


def test_the_number_of_steps_is_chosen_on_other_fits():
    found = best_of([[1.0, 1.0, 9.0, 9.0], [2.0, 2.0, 0.0, 0.0]])
    assert found.mean == 9.0


def test_every_row_of_the_table_has_its_method():
    problem, settings = ImbalancedSquares(4.0, 3, 500, 8), TABLE.fast
    methods = [
        (row.method, name) for row in table1(problem.constants, 4) for name in solvers_of(row, problem, settings)
    ]
    assert [name for _, name in methods] == ["DP-SkGD"] * 4 + ["DP-CD", "DP-SkGD", "DP-SGD", "DP-SVRG"]


def test_importance_sampling_gains_where_one_coordinate_matters(tmp_path):
    result = result_of(IMPORTANCE, tmp_path)
    gains = {row.what: row.certified for row in result.rows if row.what.endswith("gain")}
    gain, error = map(float, gains["imbalance 100, last step: gain"].split(" +- "))
    assert gain > 4.0
    assert error > 0.0
    measured = result.panels[0].curves[0]
    assert all(low < at < high for low, (_, at), high in zip(measured.low, measured.points, measured.high, strict=True))
    labels = result.panels[0].labels
    assert "sqrt(d)" in labels
    assert next(line.at for line in result.panels[0].lines if line.label == "sqrt(d)") == 4.0


def test_the_table_has_both_rates_of_every_row(tmp_path):
    rows = result_of(TABLE, tmp_path).rows
    assert len(rows) == 16
    assert all(row.paper.startswith("formula, constants 1: ") for row in rows)  # the paper prints no numbers
    rates = {row.what: float(row.paper.rsplit(" ", 1)[1]) for row in rows}
    assert min(rates.values()) > 0.0
    assert rates["DP-SkGD, b = 16, importance: convex"] < rates["DP-SkGD, b = 16, uniform: convex"]
