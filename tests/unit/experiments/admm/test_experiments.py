"""The experiments of the ADMM sharing paper: traces, printed noise, and what the figures show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm.experiments.admm.figure3 import EXPERIMENT as FIGURE3
from dperm.experiments.admm.traces import DELTA, MODERATE, objective, printed_noise, theorem_2, trace
from dperm.experiments.datasets import DataFolder
from dperm.experiments.registry import EXPERIMENTS
from dperm.experiments.running import run
from dperm.experiments.vertical_problems import STRENGTH, ShareSize, a9a, digits
from dperm.privacy.accounting.budget import Budget
from dperm.solvers.vertical import ExactSharing
from dperm.solvers.vertical.exact_admm import printed_round_epsilon

SMALL = ShareSize(200, 60)


def result_of(name, tmp_path):
    return run(EXPERIMENTS[name], tmp_path, DataFolder(None), fast=True, force=False, show=lambda *_: None)[0]


def test_a_trace_starts_at_the_null_model_and_reaches_the_optimum():
    problem = a9a(DataFolder(None), SMALL)
    task = ExactSharing(objective(), problem.facts, Budget(1.0, DELTA), n_rounds=150, rho=0.1)
    found = trace(problem, task)
    assert len(found["objective"]) == len(found["loss"]) == 151
    assert found["loss"][0] == problem.null_loss()
    assert found["objective"][-1] == pytest.approx(problem.pooled_optimum[0], rel=0.02)
    assert len(trace(problem, ExactSharing(objective(), problem.facts, Budget(1.0, DELTA), n_rounds=6), 3)["loss"]) == 3


def test_printed_noise_is_that_of_lemma_1_theorem_3_and_corollary_1():
    problem = a9a(DataFolder(None), SMALL)
    task = printed_noise(problem, 10.0, 5, 0.3)
    assert task.damping == 0.0
    assert task.report().guarantee is None
    each = printed_round_epsilon(10.0, DELTA / 2, 5)
    assert math.sqrt(10 * math.log(2 / DELTA)) * each + 5 * each * math.expm1(each) == pytest.approx(10.0)
    sensitivity = 3 / (66 * 0.3) * (200 * STRENGTH + 1 + 2 * 0.3)
    deviation = math.sqrt(2 * math.log(1.25 * 10 / DELTA)) * sensitivity / each
    assert task.printed_deviation("party 1") == pytest.approx(deviation)


@pytest.mark.parametrize(("make", "damping", "bounded"), [(a9a, 0.0, True), (digits, 2.0, True), (digits, 0.0, False)])
def test_theorem_2_along_a_run(make, damping, bounded):
    found = theorem_2(make(DataFolder(None), SMALL), 12, damping)
    assert found["rho"] > math.sqrt(2) / 4
    assert (found["bound"] > 0.0) == bounded
    if bounded:
        assert found["worst"] <= found["bound"]


@pytest.mark.parametrize(("name", "parties"), [("admm-figure1", 2), ("admm-figure2", 3)])
def test_figures_1_and_2_draw_objective_and_test_loss(name, parties, tmp_path):
    result = result_of(name, tmp_path)
    epochs = EXPERIMENTS[name].fast.epochs
    training, test = result.panels
    assert training.labels[:3] == test.labels[:3] == ["ADMM, averaged step", "ADMM, printed step", "SGD"]
    assert sum(label.startswith("printed noise") for label in test.labels) == len(MODERATE)
    for panel in result.panels:
        for curve in panel.curves:
            assert [x for x, _ in curve.points] == list(range(epochs + 1))
            assert curve.points[0][1] == pytest.approx(panel.lines[-1].at)  # the null model
    for curve in training.curves:
        assert min(y for _, y in curve.points) >= -1e-6  # nothing is below the optimum
    assert sum("Theorem 2" in row.what for row in result.rows) == 2
    for row in result.rows:  # nothing here is certified: it has no noise, or the printed one
        assert row.certified is None
        assert (row.printed is None) != (row.without_noise is None)
    unbounded = [row for row in result.rows if "Theorem 2" in row.what and row.difference.startswith("no bound")]
    assert len(unbounded) == (parties == 3)


def test_figure_3_shows_printed_noise_next_to_certified_noise(tmp_path):
    result = result_of("admm-figure3", tmp_path)
    rows = {row.what: row for row in result.rows}
    for name in ("a9a", "digits"):
        losses = {}
        for epsilon in FIGURE3.fast.levels:
            row = rows[f"{name}, epsilon {epsilon:g}: test log loss"]
            assert row.certified.runs == row.printed.runs == FIGURE3.fast.runs
            losses[epsilon] = row.printed.mean
            certified = rows[f"{name}, epsilon {epsilon:g}: what is certified"]
            assert certified.certified.startswith(f"epsilon {epsilon:g}")
            assert certified.printed.startswith("none: delta is 1")
        low, high = FIGURE3.fast.levels
        assert losses[low] > 2.0 * losses[high]  # more printed epsilon, less noise
    against = [panel for panel in result.panels if panel.x_label == "epsilon"]
    assert len(against) == 2
    for panel in against:
        assert [line.label for line in panel.lines] == ["party 1 alone, no privacy", "null model"]
        assert 0.0 < panel.lines[0].at < panel.lines[1].at
        assert np.isfinite([y for curve in panel.curves for _, y in curve.points]).all()
