"""Problems over several parties: made data, optima, and runs that leave the ledgers as planned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from dperm.experiments.datasets import DataFolder
from dperm.experiments.vertical_problems import STRENGTH, ShareSize, a9a, digits, whole
from dperm.objective import L2, Logistic, Objective
from dperm.privacy.accounting.budget import Budget
from dperm.solvers.vertical import AdmmSharing

SMALL = ShareSize(200, 60)
MAKERS = {"a9a": a9a, "digits": digits}


@pytest.fixture(params=MAKERS)
def problem(request):
    return MAKERS[request.param](DataFolder(None), SMALL)


def test_the_optimum_has_no_gradient(problem):
    value, w = problem.pooled_optimum
    X = problem.pooled[: problem.n]
    gradient = X.T @ (expit(X @ w) - problem.y) / problem.n + STRENGTH * np.append(w[:-1], 0.0)
    assert np.abs(gradient).max() < 1e-5
    assert value == pytest.approx(problem.objective(w))
    assert value < problem.objective(np.zeros(problem.d + 1)) - 0.05


def test_more_columns_help_and_the_null_model_knows_nothing(problem):
    assert problem.null_loss() == pytest.approx(np.log(2.0))
    assert problem.baseline().null == problem.null_loss()
    alone = problem.optimum(columns=problem.own_columns)[0]
    assert problem.pooled_optimum[0] < alone - 0.01


def test_made_data_are_the_same_every_time(problem):
    again = MAKERS[problem.name](DataFolder(None), SMALL)
    np.testing.assert_array_equal(again.pooled_optimum[1], problem.pooled_optimum[1])
    assert problem.data.origin.startswith("made")
    assert problem.n == 200
    assert len(problem.y_test) == 200


def test_parties_are_cut_as_in_the_paper():
    adult = a9a(DataFolder(None), SMALL)
    assert adult.edges == [(0, 66), (66, 123)]
    for start, stop, most in ((0, 66, 8), (66, 123, 6)):  # the bound on the length of rows is true
        assert adult.data.X[:, start:stop].sum(axis=1).max() <= most
    pixels = digits(DataFolder(None), SMALL)
    assert pixels.edges == [(0, 24), (24, 48), (48, 60)]  # 2 : 2 : 1


def test_files_are_cut_to_their_first_rows(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(500, 20)), np.where(rng.random(500) < 0.5, 1, -1)
    np.savez(tmp_path / "mnist49.npz", X=X, y=y, n_train=400)
    problem = digits(DataFolder(tmp_path), ShareSize(50, 10))
    assert (problem.n, problem.d, len(problem.y_test)) == (50, 10, 50)
    np.testing.assert_array_equal(problem.y_test, (y[400:450] > 0).astype(float))
    assert problem.data.origin.startswith("stand-in for gisette")
    assert problem.data.origin.endswith("cut to its first rows")
    np.savez(tmp_path / "a9a.npz", y=y, n_train=400, **_stored(sp.csr_matrix(rng.random((500, 123)) < 0.1)))
    adult = a9a(DataFolder(tmp_path), ShareSize(1000, 123))
    assert (adult.n, adult.d, len(adult.y_test)) == (400, 123, 100)
    assert adult.data.origin == "real, a9a.npz"


def _stored(X):
    return {"format": b"csr", "shape": X.shape, "data": X.data, "indices": X.indices, "indptr": X.indptr}


def test_a_certified_run_has_fresh_noise_and_a_guarantee(problem):
    task = AdmmSharing(Objective(Logistic(), L2(STRENGTH)), problem.facts, Budget(1.0, 1e-6), n_rounds=3)
    one, other = (problem.run(task)[0] for _ in range(2))
    assert one.report.guarantee.epsilon == pytest.approx(1.0, rel=1e-4)
    assert len(whole(one.weights)) == problem.d + 1
    assert not np.array_equal(whole(one.weights), whole(other.weights))


def test_an_intercept_can_be_left_out(problem):
    bare = replace(problem, intercept=False)
    assert sum(facts.d for facts in bare.facts.values()) == problem.d
    assert sum(facts.d for facts in problem.facts.values()) == problem.d + 1
