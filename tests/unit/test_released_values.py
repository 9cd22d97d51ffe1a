"""A seeded fit of every estimator and solver releases what it did before; ``released_values.json`` is the record.

Moving and renaming code must not change what is released. When a change means to, look at the difference, then run
``DPERM_RECORD=1 python -m pytest -n 0 tests/unit/test_released_values.py`` and commit the new record with the change.

Values are compared bit for bit. Processors round linear algebra differently, and noise that is rotated into a slightly
different metric is different noise: on a processor other than the one of the record these tests skip. Record there at
the commit before a change to compare with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import dperm
from dperm import Bounds
from dperm.privacy.accounting.budget import Budget
from dperm.solvers import SOLVERS, GreedyCoordinateDescent
from dperm.solvers.vertical import TASKS
from dperm.testing.vertical import VERTICAL_EXAMPLES, facts_of, run_vertical, vertical_problem

RECORD = Path(__file__).with_name("released_values.json")
RECORDING = bool(os.environ.get("DPERM_RECORD"))


def table(n=400, n_features=6, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, n_features))
    score = X @ np.linspace(2.0, -1.0, n_features)
    return X, score, rng


def classes(n_classes=2):
    X, score, rng = table()
    ends = np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1])
    return X, np.searchsorted(ends, score + 0.3 * rng.normal(size=len(score)))


def numbers():
    X, score, rng = table()
    return X, np.clip(score + 0.3 * rng.normal(size=len(score)), -5.0, 5.0)


CLASSES = Bounds(features=(-1, 1), classes=[0, 1])
NUMBERS = Bounds(features=(-1, 1), target=(-5, 5))
SEED = {"insecure_seed": 5}


def values_of(model):
    found = {name: getattr(model, name) for name in ("coef_", "intercept_") if hasattr(model, name)}
    found["epsilon"] = model.privacy_report_.planned.epsilon
    return {name: np.asarray(value, float).ravel().tolist() for name, value in found.items()}


def fits():
    yield "auto two classes", lambda: dperm.DPLogisticRegression(2.0, bounds=CLASSES, **SEED).fit(*classes())
    yield (
        "auto three classes",
        lambda: dperm.DPLogisticRegression(2.0, bounds=Bounds(features=(-1, 1), classes=[0, 1, 2]), **SEED).fit(
            *classes(3)
        ),
    )
    three = Bounds(features=(-1, 1), classes=[0, 1, 2])
    yield (
        "wide three classes",
        lambda: dperm.DPLogisticRegression(2.0, bounds=three, solver="wide", **SEED).fit(*classes(3)),
    )
    yield "bought bounds", lambda: dperm.DPLogisticRegression(5.0, bounds=None, **SEED).fit(*classes())
    yield (
        "zero-out",
        lambda: dperm.DPLogisticRegression(1.0, bounds=CLASSES, neighbours="zero-out", **SEED).fit(*classes()),
    )
    yield "svc", lambda: dperm.DPLinearSVC(2.0, bounds=CLASSES, **SEED).fit(*classes())
    for kind in (dperm.DPLinearRegression, dperm.DPRidge, dperm.DPLasso, dperm.DPElasticNet, dperm.DPHuberRegressor):
        yield kind.__name__, lambda kind=kind: kind(2.0, bounds=NUMBERS, **SEED).fit(*numbers())
    yield "no intercept", lambda: dperm.DPRidge(2.0, bounds=NUMBERS, fit_intercept=False, **SEED).fit(*numbers())
    yield "bought target", lambda: dperm.DPRidge(20.0, bounds=None, **SEED).fit(*numbers())
    yield "sparse many columns", many_columns
    for name in SOLVERS:
        yield f"solver {name}", lambda name=name: by_solver(name)
    yield (
        "paper greedy",
        lambda: dperm.DPLogisticRegression(
            1.0, bounds=CLASSES, solver=GreedyCoordinateDescent(rule="GS-s"), calibration="paper", **SEED
        ).fit(*classes()),
    )
    yield (
        "tuner",
        lambda: (
            dperm.DPTuner(dperm.DPLogisticRegression(bounds=CLASSES), {"strength": [1e-3, 1e-1]}, epsilon=3.0, **SEED)
            .fit(*classes())
            .best_estimator_
        ),
    )


def many_columns():
    rng = np.random.default_rng(3)
    X = sp.random_array((500, 900), density=0.01, rng=rng, format="csr")
    y = (np.asarray(X[:, :20].sum(axis=1)).ravel() > 0.02).astype(int)
    bounds = Bounds(features=(0, 1), classes=[0, 1])
    return dperm.DPLogisticRegression(4.0, bounds=bounds, penalty="l1", **SEED).fit(X, y)


def by_solver(name):
    penalty = "none" if name in ("frank-wolfe", "peel") else "l2"
    neighbours = "zero-out" if name in ("sgd", "svrg", "objective") else "replace-one"
    options = {"penalty": penalty, "strength": 0.05, "neighbours": neighbours}
    bounds = Bounds(features=(-1, 1), classes=[0, 1], row_norm=1.0)
    return dperm.DPLogisticRegression(4.0, bounds=bounds, solver=name, **options, **SEED).fit(*classes())


def local():
    rng = np.random.default_rng(4)
    X = rng.uniform(-0.5, 0.5, (3000, 2))
    y = (X[:, 0] + 0.2 * rng.normal(size=3000) > 0).astype(int)
    bounds = Bounds(features=(-0.5, 0.5), classes=[0, 1])
    yield "local logistic", lambda: dperm.LocalLogisticRegression(3.0, bounds=bounds, **SEED).fit(X, y)
    numbers = Bounds(features=(-0.5, 0.5), target=(-1, 1))
    yield "local linear", lambda: dperm.LocalLinearRegression(3.0, bounds=numbers, **SEED).fit(X, X[:, 0])


FITS = dict([*fits(), *local()])


def processor():
    """How this machine rounds: bits of an eigendecomposition, a solution and a product of fixed matrices."""
    matrix = np.random.default_rng(0).normal(size=(40, 40))
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    parts = (values, vectors, np.linalg.solve(matrix, vectors), matrix @ vectors)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


@pytest.fixture(scope="module")
def record():
    if RECORDING:
        return {}
    kept = json.loads(RECORD.read_text())
    if kept["processor"] != processor():
        pytest.skip("recorded on a processor that rounds differently; DPERM_RECORD=1 records on this one")
    return kept["values"]


def compare(record, name, found):
    if RECORDING:
        kept = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        same = kept.get("processor") == processor()
        values = {**(kept["values"] if same else {}), name: found}
        RECORD.write_text(json.dumps({"processor": processor(), "values": values}, sort_keys=True, indent=1) + "\n")
        return
    assert found == record.get(name), "if this is meant: DPERM_RECORD=1 python -m pytest -n 0 " + __file__


def test_the_record_is_of_these_fits(record):
    known = {*FITS, *(f"vertical {name}" for name in TASKS)}
    if RECORDING:
        kept = json.loads(RECORD.read_text()) if RECORD.exists() else {"values": {}}
        kept["values"] = {name: value for name, value in kept["values"].items() if name in known}
        RECORD.write_text(json.dumps(kept, sort_keys=True, indent=1) + "\n")
    else:
        assert set(record) == known


@pytest.mark.parametrize("name", FITS)
def test_fits_release_what_they_did(record, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(record, name, values_of(FITS[name]()))


@pytest.mark.parametrize("name", sorted(TASKS))
def test_vertical_runs_release_what_they_did(record, name):
    designs, target = vertical_problem(7)
    task = VERTICAL_EXAMPLES[name](facts_of(designs), Budget(2.0, 1e-6))
    run = run_vertical(task, designs, target, seed=5)
    found = {key: np.asarray(value).ravel().tolist() for key, value in run.result.weights.items()}
    compare(record, f"vertical {name}", found)
