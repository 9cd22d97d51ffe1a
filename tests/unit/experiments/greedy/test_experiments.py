"""The experiments of the DP-GCD paper: problems and optima, and the fast runs."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.experiments.datasets import DataFolder
from dperm.experiments.greedy.problems import L1_PROBLEMS, L2_PROBLEMS, Problems, Size

SMALL = Size(300, 60)


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
