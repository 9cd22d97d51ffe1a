"""The comparison with peers: AdaSSP computes what its paper says, and a peer that cannot be had does not end a run."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import numpy as np
import pytest

from dperm.privacy.accounting import gdp

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(_BENCHMARKS))
    try:
        import peers
        import peers_data
        import peers_dperm
        import peers_environments
        import peers_methods
        import peers_worker
    finally:
        sys.path.remove(str(_BENCHMARKS))
    return SimpleNamespace(
        run=peers,
        data=peers_data,
        dperm=peers_dperm,
        environments=peers_environments,
        methods=peers_methods,
        worker=peers_worker,
    )


def problem_of(benchmark, task, n=5000, p=5):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (2 * n, p))
    signal = X @ np.linspace(-1.0, 2.0, p)
    y = 20.0 + signal + 0.5 * rng.standard_normal(2 * n)
    if task == "logistic":
        y = (signal + rng.logistic(size=2 * n) * 0.3 > 0).astype(int)
    rows = np.arange(2 * n)[None, :]
    unit, target = float(np.sqrt(p + 1)), (15.0, 25.0) if task == "squared" else (0.0, 1.0)
    return benchmark.data.Problem(
        "simulated", task, X, y, rows[:, :n], rows[:, n:], False, 1.0, np.inf, unit, target
    )  # fmt: skip


def adassp(benchmark, problem, epsilon):
    X, y, X_test, y_test = problem.split(0)
    order = benchmark.worker.Order("adassp", epsilon, problem.delta, 0, {})
    outcome = benchmark.dperm.fit(problem, X, y, order)
    return outcome, problem.score(y_test, outcome.predict(X_test))


def test_adassp_without_noise_is_least_squares(benchmark):
    problem = problem_of(benchmark, "squared")
    X, y, X_test, _ = problem.split(0)
    outcome, _ = adassp(benchmark, problem, 1e8)
    with_constant = np.column_stack([X, np.ones(len(X))])
    weights = np.linalg.lstsq(with_constant, y, rcond=None)[0]
    assert outcome.predict(X_test) == pytest.approx(X_test @ weights[:-1] + weights[-1], abs=0.01)


@pytest.mark.parametrize(("task", "least", "most"), [("squared", 0.85, 0.95), ("logistic", 0.85, 1.0)])
def test_adassp_predicts_well_at_epsilon_4_and_says_what_it_spent(benchmark, task, least, most):
    problem = problem_of(benchmark, task)
    outcome, score = adassp(benchmark, problem, 4.0)
    assert least < score < most
    assert outcome.mu == gdp.mu_of(4.0, problem.delta)


def test_noise_of_adassp_grows_as_epsilon_falls(benchmark):
    problem = problem_of(benchmark, "squared")
    scores = [adassp(benchmark, problem, epsilon)[1] for epsilon in (4.0, 0.1, 0.001)]
    assert sorted(scores, reverse=True) == scores
    assert scores[2] < 0.3


def test_a_peer_that_cannot_be_had_is_skipped_with_its_reason(benchmark, monkeypatch, tmp_path, capsys):
    def unavailable(*arguments):
        raise benchmark.environments.Unavailable("the environment of interpret could not be built")

    monkeypatch.setattr(benchmark.run, "run_worker", unavailable)
    methods = [method for method in benchmark.methods.all_methods("auto") if method.key == "ebm"]
    asked = Namespace(fast=True, splits=None, seeds=None, seed=0, epsilons=[1.0], cache=tmp_path)
    run = benchmark.run.new_run(0)
    benchmark.run.compare("breast_cancer", methods, asked, run, tmp_path)
    assert run["skipped"] == {
        "DP-EBM (interpret), default, breast_cancer": "the environment of interpret could not be built"
    }
    assert "Skipped DP-EBM (interpret), default, breast_cancer: the environment" in capsys.readouterr().out


def test_pip_is_asked_once_for_an_environment_that_cannot_be_built(benchmark, monkeypatch, tmp_path):
    asked = []

    def fails(command, **options):
        asked.append(command)
        return CompletedProcess(command, 1, "", "no such version")

    monkeypatch.setattr(benchmark.environments.subprocess, "run", fails)
    for _ in range(2):
        with pytest.raises(benchmark.environments.Unavailable, match=r"interpret could not be built .* interpret\.log"):
            benchmark.environments.python_of("interpret", tmp_path)
    assert len(asked) == 1
    assert (tmp_path / "interpret.log").read_text() == "no such version"
