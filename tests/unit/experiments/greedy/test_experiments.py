"""The experiments of the DP-GCD paper: problems and optima, and the fast runs."""

from __future__ import annotations

import json
import math
from pathlib import Path as File

import numpy as np
import pytest

from dperm.experiments.datasets import DataFolder
from dperm.experiments.greedy.figure1 import compared, has_other_data, reason
from dperm.experiments.greedy.methods import Fit, Path, calibrated_for, fit, passes_per_step, replace_one_part
from dperm.experiments.greedy.problems import L1_PROBLEMS, L2_PROBLEMS, Problems, Size
from dperm.experiments.greedy.settings import RULE, TUNED_OTHERWISE, setting
from dperm.experiments.greedy.table3 import why_error, why_support
from dperm.experiments.greedy.table4 import CHOSEN, as_printed, our_options
from dperm.experiments.registry import EXPERIMENTS
from dperm.experiments.result import Measured
from dperm.experiments.running import run
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.mechanisms.printed import greedy_epsilon
from dperm.queries.gradients import GradientCoordinate
from dperm.solvers import CoordinateDescent, GreedyCoordinateDescent, StochasticGradientDescent

SMALL = Size(300, 60)
KEPT = File(__file__).parents[4] / "benchmarks" / "results" / "experiments"


@pytest.mark.parametrize("name", [*L1_PROBLEMS, *L2_PROBLEMS])
def test_the_optimum_satisfies_its_conditions(name):
    problem = Problems(DataFolder(None), SMALL)[name]
    w, X, y = problem.optimum, problem.data.X, problem.data.y
    z = X @ w
    slope = z - y if problem.residual_clip is not None else 1.0 / (1.0 + np.exp(-z)) - y
    gradient = X.T @ slope / problem.n
    if problem.penalty == "l2":
        np.testing.assert_allclose(gradient + problem.strength * w, 0.0, atol=1e-5)
    else:
        used = w != 0.0
        np.testing.assert_allclose(gradient[used], -problem.strength * np.sign(w[used]), atol=1e-5)
        assert np.abs(gradient[~used]).max(initial=0.0) <= problem.strength + 1e-5
    assert problem.relative_error(w) == 0.0
    assert problem.relative_error(np.zeros(problem.p)) == pytest.approx(problem.baseline().null_error)


def test_made_data_are_the_same_every_time():
    one, other = (Problems(DataFolder(None), SMALL)["square"] for _ in range(2))
    np.testing.assert_array_equal(one.data.X, other.data.X)
    assert one.best == other.best


def test_square_meets_both_printed_facts():
    problem = Problems(DataFolder(None), Size(1000, 1000))["square"]
    assert len(problem.support) == 7
    assert problem.baseline().null_error == pytest.approx(0.75, abs=0.005)


def test_other_data_like_square_have_the_printed_null_error():
    problems = Problems(DataFolder(None), SMALL)
    problem = problems.square(101)
    assert problem.data.seed == 101
    assert problem.baseline().null_error == pytest.approx(0.75, rel=0.01)
    assert problem.strength != problems.square(102).strength


# ------------------------------------------------------------------------------------------------- fits
def test_group_privacy_leaves_the_right_budget():
    whole = Budget(1.0, 1e-6)
    part = replace_one_part(whole)
    assert 2.0 * part.epsilon == whole.epsilon
    assert (1.0 + math.exp(part.epsilon)) * part.delta == pytest.approx(whole.delta)


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("rule", ["GS-s", "GS-r", "GS-q"])
def test_every_rule_fits_with_both_kinds_of_noise(rule, printed):
    problem = Problems(DataFolder(None), SMALL)["square"]
    path = Path(problem)
    how = Fit(GreedyCoordinateDescent(n_steps=3, rule=rule, limit=1.0), printed=printed)
    weights = fit(problem, how, path)
    assert [done for done, _, _ in path.points] == [1, 2, 3]
    assert path.points[-1][1] == problem.relative_error(weights)
    assert 0.0 < path.points[0][2] < path.points[-1][2]


def test_printed_noise_is_that_of_the_paper():
    problem = Problems(DataFolder(None), SMALL)["square"]
    calibrated = calibrated_for(problem, GreedyCoordinateDescent(n_steps=3), printed=True)
    epsilon = greedy_epsilon(3, Budget(1.0, 1.0 / problem.n**2))
    for query in ("greedy gradients", GradientCoordinate.name):
        assert calibrated.noise_multiplier(query) == pytest.approx(1.0 / epsilon)


def test_dp_sgd_is_replace_one_only_with_the_smaller_budget():
    problem = Problems(DataFolder(None), SMALL)["square"]
    solver = StochasticGradientDescent(n_steps=4, rate=0.1)
    alone, group = (calibrated_for(problem, solver, group=group) for group in (False, True))
    assert group.budget == replace_one_part(alone.budget)
    assert group.scale > 1.5 * alone.scale
    assert Fit(solver).neighbours == "zero-out"
    assert Fit(GreedyCoordinateDescent()).neighbours == "replace-one"


def test_a_path_keeps_few_points_and_the_last_one():
    problem = Problems(DataFolder(None), SMALL)["square"]
    path = Path(problem, most=4)
    for done in range(1, 11):
        path.weights(done, 10, lambda: np.zeros(problem.p))
    assert len(path.points) <= 4
    assert path.points[-1][0] == 10


def test_passes_are_counted_as_in_the_paper():
    problem = Problems(DataFolder(None), SMALL)["square"]
    assert passes_per_step(problem, GreedyCoordinateDescent()) == 1.0
    assert passes_per_step(problem, CoordinateDescent()) == 1.0 / problem.p
    assert passes_per_step(problem, StochasticGradientDescent(rate=0.1)) == 0.1


# ------------------------------------------------------------------------------------------------- what runs show
@pytest.mark.parametrize("method", ["DP-GCD GS-r", "DP-GCD GS-s", "DP-GCD GS-q, printed", "DP-CD", "DP-SGD"])
@pytest.mark.parametrize("name", [*L1_PROBLEMS, *L2_PROBLEMS])
def test_every_method_has_options_on_every_problem(name, method):
    how = setting(name, method)
    assert how.printed == method.endswith("printed")
    if method.startswith("DP-GCD") and name in L1_PROBLEMS:
        assert how.solver.rule == method[7:11]


def result_of(name, tmp_path):
    return run(EXPERIMENTS[name], tmp_path, DataFolder(None), fast=True, force=False, show=lambda *_: None)[0]


def test_figure_2_draws_the_alpha_that_leaves_five_weights(tmp_path):
    result = result_of("gcd-figure2", tmp_path)
    problems = Problems(DataFolder(None), SMALL)
    for panel, (name, row) in zip(
        result.panels, zip((*L2_PROBLEMS, *L1_PROBLEMS), result.rows[::2], strict=True), strict=True
    ):
        alpha = panel.lines[0].at
        assert row.certified is None
        assert row.without_noise == alpha
        sizes = np.abs(problems[name].optimum)
        assert (sizes > alpha).sum() <= 5
        if alpha > 0.0:  # no smaller one will do
            assert (sizes > 0.999 * alpha).sum() > 5
        assert sum(max(height - 1.0, 0.0) for height in panel.bars[0].heights) == len(sizes)


def test_figure_1_starts_every_curve_at_the_null_model(tmp_path):
    result = result_of("gcd-figure1", tmp_path)
    nulls = {one.problem: one.null_error for one in result.baselines}
    assert len(result.panels) == 16
    for panel, name in zip(result.panels, [name for name in nulls for _ in range(2)], strict=True):
        assert panel.lines[0].at == nulls[name]
        assert {curve.points[0] for curve in panel.curves} == {(0.0, nulls[name])}
        for curve in panel.curves:
            assert all(low <= y <= high for low, (_, y), high in zip(curve.low, curve.points, curve.high, strict=True))


@pytest.mark.parametrize(
    ("name", "word", "best_other", "says"),
    [
        ("california", "on par", "DP-CD", "as the paper says"),
        ("california", "behind", "DP-SGD, replace-one", "our DP-SGD averages"),
        ("california", "ahead", "DP-CD", "dperm charges DP-GCD exactly"),
        ("mtp", "behind", "DP-CD", "as the paper says"),
        ("mtp", "on par", "DP-CD", "as the paper says"),
        ("mtp", "ahead", "DP-CD", "dperm charges DP-GCD exactly"),
        ("log1", "ahead", "DP-CD", "as the paper says"),
        ("log1", "behind", "DP-CD", "not explained"),
        ("log1", "behind", "DP-SGD, replace-one", "our DP-SGD averages"),
        ("log1", "on par", "DP-SGD, replace-one", "the difference is below two standard errors"),
    ],
)
def test_figure_1_explains_its_verdicts(name, word, best_other, says):
    assert reason(name, word, best_other, other_data=False).startswith(says)
    on_other_data = reason(name, word, best_other, other_data=True)
    assert on_other_data.endswith("other data than the paper's")
    assert on_other_data.startswith("as the paper says") == (says == "as the paper says")


def test_figure_1_compares_with_the_best_of_the_others():
    ours = Measured(1.0, 0.1, 0.9, 1.1, 2)
    others = {"DP-CD": Measured(0.5, 0.1, 0.4, 0.6, 2), "DP-SGD": Measured(2.0, 0.1, 1.9, 2.1, 2)}
    assert compared(ours, others) == ("behind", "DP-CD", "behind (1, next DP-CD 0.5)")
    assert compared(ours, others | {"DP-CD": Measured(0.8, 0.1, 0.7, 0.9, 2)})[0] == "on par"
    assert compared(ours, {"DP-SGD": others["DP-SGD"]})[0] == "ahead"


def test_figure_1_says_that_cut_and_made_data_are_not_the_papers(tmp_path):
    rows = [row for row in result_of("gcd-figure1", tmp_path).rows if "next to the others" in row.what]
    assert len(rows) == len(L1_PROBLEMS) + len(L2_PROBLEMS)
    assert all(row.difference.endswith("other data than the paper's") for row in rows)


def test_log1_of_full_size_is_the_data_of_the_paper():
    small, whole = (Problems(DataFolder(None), size)["log1"] for size in (SMALL, Size(100_000, 100_000)))
    assert has_other_data("log1", small)
    assert not has_other_data("log1", whole)


#: as printed: right / wrong and relative error of each method; nonzero weights of the optimum, error of the null model
TABLE_3 = {
    "square": {"DP-CD": ("0 / 0", 0.75), "DP-SGD": ("0 / 3", 0.75), "DP-GCD": ("2 / 0", 0.35)},
    "california": {"DP-CD": ("3 / 2", 0.0024), "DP-SGD": ("3 / 5", 0.020), "DP-GCD": ("2 / 0", 0.00056)},
    "dorothea": {"DP-CD": ("1 / 1", 0.77), "DP-SGD": ("0 / 0", 0.78), "DP-GCD": ("1 / 0", 0.64)},
    "madelon": {"DP-CD": ("0 / 0", 0.0085), "DP-SGD": ("0 / 0", 0.012), "DP-GCD": ("1 / 0", 0.0015)},
}
OPTIMA_OF_TABLE_3 = {"square": (7, 0.75), "california": (3, None), "dorothea": (72, 0.78), "madelon": (3, 0.012)}


def test_table_3_shows_every_number_of_the_paper(tmp_path):
    rows = {row.what: row for row in result_of("gcd-table3", tmp_path).rows}
    for name, methods in TABLE_3.items():
        for method, (support, error) in methods.items():
            assert rows[f"{name}, {method}: error"].paper == error
            assert rows[f"{name}, {method}: right / wrong"].paper == support
        count, null = OPTIMA_OF_TABLE_3[name]
        assert rows[f"{name}: nonzero weights of the optimum"].paper == count
        assert rows[f"{name}: error of the null model"].paper == null
    for name in L1_PROBLEMS:
        row = rows[f"{name}, DP-GCD: error"]
        assert row.certified.runs == row.printed.runs == 2
        right, wrong = map(float, rows[f"{name}, DP-GCD: right / wrong"].certified.split(" / "))
        assert right + wrong <= setting(name, "DP-GCD GS-r").solver.n_steps


def test_the_kept_table_4_shows_the_options_of_the_code():
    stored = json.loads((KEPT / "gcd-table4.json").read_text("utf-8"))
    shown = {row["what"]: row["certified"] for row in stored["rows"]}
    page = (KEPT / "gcd-table4.md").read_text("utf-8")
    for name, method in CHOSEN:
        options = our_options(setting(name, f"DP-GCD {RULE}" if method == "DP-GCD" else method))
        assert shown[f"{name}, {method}: passes, clip, step"] == options
        assert f"| {name}, {method}: passes, clip, step | {options} |" in page


def test_reasons_name_unequal_tuning_and_the_weaker_promise():
    low, high = Measured(0.1, 0.001, 0.1, 0.1, 9), Measured(0.2, 0.001, 0.2, 0.2, 9)
    assert "336 settings" in why_error("california", "DP-GCD", low, low)
    assert "eight choices by hand" in why_error("dorothea", "DP-CD", high, low)
    assert why_error("california", "DP-SGD", low, high).startswith("ahead of DP-GCD, under zero-out")
    assert "ahead" not in why_error("california", "DP-SGD", high, low)
    assert "threshold of the l1 penalty" in why_support("dorothea", "DP-SGD, replace-one", 30)
    for name in ("gcd-table2", "gcd-table3", "gcd-table4"):
        page = (KEPT / f"{name}.md").read_text("utf-8")
        assert all(how in page for how in TUNED_OTHERWISE.values())


def test_table_4_runs_the_printed_options():
    problem = Problems(DataFolder(None), SMALL)["square"]
    how = as_printed(problem, "DP-GCD", CHOSEN["square", "DP-GCD"])
    assert how.printed
    assert (how.solver.n_steps, how.solver.step) == (2, 2.15)
    assert how.solver.limit == pytest.approx(1.46e4 / math.sqrt(problem.p))
    one_each = as_printed(problem, "DP-SGD", CHOSEN["square", "DP-SGD"]).solver
    assert (one_each.n_steps, one_each.rate * problem.n, one_each.clip) == (3, 1.0, 4.94)
    assert as_printed(problem, "DP-CD", CHOSEN["square", "DP-CD"]).solver.clip == 9.10e3
