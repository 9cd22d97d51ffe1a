"""Paths of the central setting: fits by every solver, purchases of bounds, searches, paid scores and ledgers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_regressor

import dperm
from dperm.data.design.bounds import Bounds
from dperm.errors import InvalidInput
from dperm.estimators.central.base import PrivateLinearModel
from dperm.estimators.central.scoring import paid_score
from dperm.estimators.local.fit import LocalFit
from dperm.privacy.ledger import Ledger
from dperm.solvers import SOLVERS, GreedyCoordinateDescent
from dperm.testing.whole_path.artefacts import everything_about
from dperm.testing.whole_path.case import Case
from dperm.testing.whole_path.seeing import PRIVATE, Run
from dperm.testing.whole_path.tables import (
    MANY_ROWS,
    N_COLUMNS,
    N_ROWS,
    TARGET,
    Table,
    as_bits,
    as_sparse,
    class_tables,
    number_tables,
    sparse_tables,
)

__all__ = ["central_cases", "central_estimators"]

Tables = Callable[[], Mapping[str, Any]]

#: epsilon at which neither noise nor signal rules a small table
EPSILON = 4.0
#: of a search, in the mean: four of five searches then compare several runs
_EXPECTED_RUNS = 5.0
CLASSES = Bounds(features=(-1, 1), classes=[0, 1])
NUMBER = Bounds(features=(-1, 1), target=TARGET)


def central_estimators() -> dict[str, type[PrivateLinearModel]]:
    """Return all public estimators of the central setting."""
    found = {name: getattr(dperm, name) for name in dperm.__all__}
    return {
        name: cls
        for name, cls in found.items()
        if isinstance(cls, type) and issubclass(cls, PrivateLinearModel) and not issubclass(cls, LocalFit)
    }


def central_cases() -> Iterator[Case]:
    """Yield all cases of the central setting."""
    for name, cls in central_estimators().items():
        bounds, tables = (NUMBER, number_tables) if is_regressor(cls()) else (CLASSES, class_tables)
        yield Case(name, tables, _fit(cls, bounds=bounds), name)
        for solver in SOLVERS:
            refused = partial(_refused, cls, solver)
            yield Case(f"{name} by {solver}", tables, partial(_fit_by, cls, solver), name, refused)
        # code may take another branch for what holds the rows, and for the type of columns
        for kind, change in (("sparse rows", as_sparse), ("bits", as_bits)):
            yield Case(f"{name}, {kind}", partial(_changed, tables, change), _fit(cls, bounds=bounds), name)
    yield from _settings()
    yield from _many_rows()
    yield from _searches_and_scores()


def _changed(tables: Tables, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Mapping[str, Any]:
    return change(tables())


def _short_rows(cls: type[PrivateLinearModel]) -> Bounds:
    """Return bounds with a row norm: solvers that sample or perturb need it to be of use, and all accept it."""
    if is_regressor(cls()):
        return Bounds(features=(-1, 1), target=TARGET, row_norm=1.0)
    return Bounds(features=(-1, 1), classes=[0, 1], row_norm=1.0)


def _short_solver(name: str) -> Any:
    """Return a solver with few steps, which are alike, and two rounds where it has rounds.

    ``Solver.shortened`` makes one round of them, which would leave out what happens between two.
    """
    solver: Any = SOLVERS[name]()
    steps = {"n_steps": 8, "n_rounds": 2, "n_passes": 2, "n_inner": 4, "n_columns": 2}
    return replace(solver, **{part: few for part, few in steps.items() if hasattr(solver, part)})


@cache
def _options(cls: Any, solver: str) -> dict[str, Any] | None:
    """Return settings with which an estimator takes a solver, None if it refuses it with all of them."""
    penalties = ("l2", "none", "l1") if "penalty" in inspect.signature(cls).parameters else (None,)
    given: dict[str, Any] = {"bounds": _short_rows(cls), "solver": _short_solver(solver), "strength": 0.05}
    for penalty, neighbours in product(penalties, ("replace-one", "zero-out")):
        options = {**given, "neighbours": neighbours} | ({} if penalty is None else {"penalty": penalty})
        try:
            cls(EPSILON, **options).plan(N_ROWS, N_COLUMNS)
        except InvalidInput:  # refused before anything happens
            continue
        return options
    return None


def _refused(cls: Any, solver: str) -> bool:
    return _options(cls, solver) is None


def _fit_by(cls: Any, solver: str, table: Table, folder: Path) -> Any:
    return everything_about(cls(EPSILON, **(_options(cls, solver) or {})).fit(*table), folder)


def _fit(cls: type[PrivateLinearModel], epsilon: float = EPSILON, **options: Any) -> Run:
    def run(table: Table, folder: Path) -> Any:
        return everything_about(cls(epsilon, **options).fit(*table), folder)

    return run


# ------------------------------------------------------------------------------------------------------- settings
def _settings() -> Iterator[Case]:
    """Yield settings that take other branches than the defaults."""
    logistic, ridge, lasso = dperm.DPLogisticRegression, dperm.DPRidge, dperm.DPLasso
    three = Bounds(features=(-1, 1), classes=[0, 1, 2])
    three_tables = partial(class_tables, 3)
    yield Case("three classes", three_tables, _fit(logistic, bounds=three))
    yield Case("one against the rest", three_tables, _fit(logistic, bounds=three, multi_class="ovr"))
    undeclared: Tables = partial(class_tables, 3, declared=False)
    yield Case("labels not declared", undeclared, _fit(logistic, bounds=Bounds(features=(-1, 1))))
    for penalty in ("l1", "elastic-net", "none"):
        run = _fit(logistic, bounds=CLASSES, penalty=penalty, strength=0.02)
        yield Case(f"penalty {penalty}", class_tables, run)
    yield Case("much noise", class_tables, _fit(logistic, 0.1, bounds=CLASSES))
    yield Case("little noise", number_tables, _fit(ridge, 500.0, bounds=NUMBER))
    yield Case("zero-out neighbours", class_tables, _fit(logistic, bounds=CLASSES, neighbours="zero-out"))
    yield Case("no intercept", number_tables, _fit(ridge, bounds=NUMBER, fit_intercept=False))
    yield Case("progress in words", class_tables, _fit(logistic, bounds=CLASSES, verbose=True))
    yield Case("seeded noise", class_tables, _fit(logistic, bounds=CLASSES, insecure_seed=3))
    printed: dict[str, Any] = {"solver": GreedyCoordinateDescent(rule="GS-s"), "calibration": "paper"}
    yield Case("printed noise", class_tables, _fit(logistic, bounds=CLASSES, **printed))
    # ranges are bought: features, target, both, and with far-away values
    for name, reach in (("", 1.0), (", large values", 3e4)):
        tables: Tables = partial(class_tables, reach=reach)
        yield Case(f"bought features{name}", tables, _fit(logistic, bounds=Bounds(classes=[0, 1])))
        both: Tables = partial(number_tables, reach=reach)
        yield Case(f"bought features and target{name}", both, _fit(ridge, 20.0, bounds=None))
    yield Case("bought target", number_tables, _fit(lasso, 20.0, bounds=Bounds(features=(-1, 1))))
    # many columns: the automatic rule pursues single columns
    wide = Bounds(features=(0, 1), classes=[0, 1])
    yield Case("many sparse columns", sparse_tables, _fit(logistic, bounds=wide, penalty="l1"))
    dense: Tables = partial(number_tables, n_columns=60)
    yield Case("many dense columns", dense, _fit(lasso, bounds=NUMBER))


def _many_rows() -> Iterator[Case]:
    """Yield fits of some thousand people, in memory and on disk."""
    classes: Tables = partial(class_tables, n=MANY_ROWS)
    numbers: Tables = partial(number_tables, n=MANY_ROWS)
    logistic, ridge = dperm.DPLogisticRegression, dperm.DPRidge
    yield Case("many rows, classes", classes, _fit(logistic, bounds=CLASSES))
    yield Case("many rows, numbers", numbers, _fit(ridge, bounds=NUMBER))
    yield Case("many rows, bought features", classes, _fit(logistic, bounds=Bounds(classes=[0, 1])))
    for solver in SOLVERS:
        run, refused = partial(_fit_by, logistic, solver), partial(_refused, logistic, solver)
        # with "zero" the weights stay small: Newton steps on large values end where traces are rounded away
        yield Case(f"many rows, {solver}", classes, run, refused=refused, levels=("zero", "mixed"))

    def on_disk(table: Table, folder: Path) -> Any:
        np.save(folder / PRIVATE / "rows.npy", table.X)
        rows = np.load(folder / PRIVATE / "rows.npy", mmap_mode="r")
        return everything_about(logistic(EPSILON, bounds=CLASSES).fit(rows, table.y), folder)

    yield Case("many rows on disk", classes, on_disk)


# -------------------------------------------------------------------------------------------- searches and scores
def _searches_and_scores() -> Iterator[Case]:
    def search(model: PrivateLinearModel, parameters: Any) -> Run:
        def run(table: Table, folder: Path) -> Any:
            tuner = dperm.DPTuner(model, parameters, epsilon=EPSILON, expected_runs=_EXPECTED_RUNS).fit(*table)
            return everything_about(tuner, folder)

        return run

    strengths = {"strength": [1e-3, 1e-1]}
    logistic, ridge = dperm.DPLogisticRegression(bounds=CLASSES), dperm.DPRidge(bounds=NUMBER)
    yield Case("search of a classifier", class_tables, search(logistic, strengths), "DPTuner")
    yield Case("search of a regression", number_tables, search(ridge, strengths))
    both = {"solver": ["gradient", "newton"], "bounds": [CLASSES, Bounds(classes=[0, 1])]}
    yield Case("search of solvers and bounds", class_tables, search(logistic, both))

    def score(cls: type[PrivateLinearModel], bounds: Bounds) -> Run:
        def run(table: Table, folder: Path) -> Any:
            ledger = Ledger(folder / "ledger.db", dataset="people")
            train, test = (Table(table.X[part], table.y[part]) for part in (slice(60), slice(60, None)))
            model = cls(EPSILON, bounds=bounds, ledger=ledger).fit(*train)
            scored = paid_score(model.saved_model(), *test, epsilon=2.0, ledger=ledger)
            return scored, everything_about(model, folder)

        return run

    yield Case("paid accuracy", class_tables, score(dperm.DPLogisticRegression, CLASSES))
    three = Bounds(features=(-1, 1), classes=[0, 1, 2])
    yield Case("paid accuracy, three classes", partial(class_tables, 3), score(dperm.DPLogisticRegression, three))
    yield Case("paid squared error", number_tables, score(dperm.DPRidge, NUMBER))
