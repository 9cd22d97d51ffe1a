"""What the audit of dperm's own releases runs: every solver, the automatic rule, local reports and vertical rounds.

A new solver, vertical task or local report is audited as soon as it is entered in its registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any

import numpy as np

import dperm
from dperm.data.design.bounds import Bounds
from dperm.estimators.central.scoring import paid_score
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.local.public_noise_bit import PublicNoiseBit
from dperm.privacy.randomness import RandomSource
from dperm.solvers import SOLVERS, FrankWolfe, Newton, Peel, StochasticGradientDescent, VarianceReducedDescent
from dperm.solvers.base import Solver
from dperm.solvers.vertical import AdmmSharing
from dperm.testing.local import LOCAL_EXAMPLES, OTHER_LOCAL_EXAMPLES
from dperm.testing.vertical import (
    VERTICAL_EXAMPLES,
    check_vertical_sensitivity,
    facts_of,
    run_vertical,
    short_task,
    vertical_problem,
)
from dperm.types import AnyArray, FloatArray

__all__ = ["FAMILIES", "SPARSE", "AuditCase", "all_cases", "fit_case"]

#: a table with columns of zeros
SPARSE = "gradient, columns of zeros"

FAMILIES = ("central", "automatic", "purchases", "local", "vertical")

#: budget of the audited runs: usual in practice; the power does not depend on it
_EPSILON, _DELTA = 1.0, 1e-5
_ROWS, _COLUMNS = 80, 4
#: columns for a solver that selects each of them once, and rows that suffice to buy the range of a target
_MANY_COLUMNS, _MANY_ROWS = 16, 1000
#: people who report in one run of a local case
_PEOPLE = 3000
#: rounds of a vertical run, and selections of one fit: few runs then give many releases
_ROUNDS = 24
#: limit on one person's slope in a vertical run: below what slopes reach
_LIMIT = 0.3

#: settings of solvers whose default releases too little for an audit, or whose case of interest is another one:
#: samples of people instead of everyone, more selections
_SETTINGS: dict[str, Solver] = {
    "peel": Peel(n_selected=_MANY_COLUMNS, n_steps=4),
    "sgd": StochasticGradientDescent(n_steps=32, rate=0.2),
    "svrg": VarianceReducedDescent(n_steps=32, rate=0.2),
}

#: of a fast audit: noise on values, and a selection
_QUICK_SOLVERS = (Newton, FrankWolfe)


@dataclass(frozen=True)
class AuditCase:
    """Something of dperm that makes releases.

    Attributes
    ----------
    name, family : str
    neighbours : Neighbours
        The relation of its claim.
    run : callable
        Runs it once; the audit looks on.
    fit, table : callable and pair of arrays, or None
        For the check on real neighbours: ``fit(X, y)`` and a table.
    check_sensitivity : callable or None
        A check of its own on real neighbours, where it is not ``fit(X, y)``.
    report_epsilon : float or None
        Claimed epsilon of a person's report, for local cases.
    prepare : callable or None
        What has to happen before, unseen by the audit.
    solver : Solver or None
        For the attack on whole runs.
    quick : bool
        Whether a fast audit runs it: one or two of each family, without purchases, which take longest.
    """

    name: str
    family: str
    neighbours: Neighbours
    run: Callable[[], Any]
    fit: Callable[[Any, Any], Any] | None = None
    table: tuple[Any, Any] | None = None
    check_sensitivity: Callable[[], Any] | None = None
    report_epsilon: float | None = None
    prepare: Callable[[], Any] | None = None
    solver: Solver | None = None
    quick: bool = False


@cache
def _table(n_rows: int, n_columns: int, target: str, n_zero: int = 0) -> tuple[FloatArray, AnyArray]:
    """Return a made-up table; ``target`` is "two classes", "three classes" or "numbers"; the last columns are 0."""
    rng = np.random.default_rng(n_rows + n_columns)
    X = rng.uniform(-1.0, 1.0, (n_rows, n_columns))
    X[:, n_columns - n_zero :] = 0.0
    score = X @ np.linspace(1.0, -0.5, n_columns) + 0.3 * rng.normal(size=n_rows)
    if target == "numbers":
        return X, np.clip(score, -1.0, 1.0)
    return X, np.digitize(score, [0.0] if target == "two classes" else [-0.3, 0.3])


def fit_case(
    name: str,
    family: str,
    model: Any,
    target: str = "two classes",
    *,
    n_rows: int = _ROWS,
    n_columns: int = _COLUMNS,
    n_zero: int = 0,
    solver: Solver | None = None,
    quick: bool = False,
) -> AuditCase:
    """Return the case of an estimator's ``fit``; ``n_zero`` columns are 0 throughout."""
    table = _table(n_rows, n_columns, target, n_zero)
    relation = Neighbours.parse(getattr(model, "neighbours", "replace-one"))
    local = getattr(model, "epsilon", None) if family == "local" else None
    run = partial(model.fit, *table)
    return AuditCase(name, family, relation, run, model.fit, table, report_epsilon=local, solver=solver, quick=quick)


def all_cases() -> list[AuditCase]:
    """Return every case, in the order of :data:`FAMILIES`."""
    return [*_central(), *_automatic(), *_purchases(), *_local(), *_vertical()]


def _central() -> list[AuditCase]:
    """Every registered solver that is not part of the automatic rule."""
    cases = [
        fit_case(
            name,
            "central",
            _classifier(_SETTINGS.get(name, kind())),
            n_columns=_MANY_COLUMNS if name == "peel" else _COLUMNS,
            solver=kind(),
            quick=kind in _QUICK_SOLVERS,
        )
        for name, kind in SOLVERS.items()
        if not kind.__module__.startswith("dperm.solvers.central.auto.")
    ]
    # values of releases that are exactly 0: noise must not be missing there
    return [*cases, fit_case(SPARSE, "central", _classifier("gradient"), n_zero=_COLUMNS // 2)]


def _classifier(solver: Any, classes: tuple[int, ...] = (0, 1), **settings: Any) -> Any:
    relations = getattr(solver, "supported_neighbours", tuple(Neighbours))
    neighbours = Neighbours.REPLACE_ONE if Neighbours.REPLACE_ONE in relations else Neighbours.ZERO_OUT
    bounds = Bounds(features=(-1.0, 1.0), classes=classes)
    return dperm.DPLogisticRegression(
        _EPSILON, _DELTA, bounds=bounds, solver=solver, neighbours=str(neighbours), **settings
    )


def _regression(solver: Any) -> Any:
    bounds = Bounds(features=(-1.0, 1.0), target=(-1.0, 1.0))
    return dperm.DPLinearRegression(_EPSILON, _DELTA, bounds=bounds, solver=solver)


def _automatic() -> list[AuditCase]:
    """The automatic rule: the solvers that it chooses, with every kind of target."""
    return [
        fit_case("whitened, two classes", "automatic", _classifier("whitened"), solver=SOLVERS["whitened"]()),
        fit_case("whitened, three classes", "automatic", _classifier("whitened", (0, 1, 2)), "three classes"),
        fit_case("auto, numbers", "automatic", _regression("auto"), "numbers", quick=True),
        fit_case("wide, two classes", "automatic", _classifier("wide"), solver=SOLVERS["wide"]()),
        fit_case("wide, three classes", "automatic", _classifier("wide", (0, 1, 2)), "three classes"),
        fit_case(
            "wide-or-sparse, two classes",
            "automatic",
            _classifier("wide-or-sparse"),
            solver=SOLVERS["wide-or-sparse"](),
        ),
        fit_case("pursuit, two classes", "automatic", _classifier("pursuit"), solver=SOLVERS["pursuit"]()),
        fit_case("pursuit, numbers", "automatic", _regression("pursuit"), "numbers"),
    ]


def _purchases() -> list[AuditCase]:
    """What is bought besides the model: ranges of columns and of a target, and scores."""
    solver = SOLVERS["coordinate"]()
    classifier = dperm.DPLogisticRegression(_EPSILON, _DELTA, bounds=Bounds(classes=(0, 1)), solver=solver)
    cases = [
        fit_case("bought ranges of columns", "purchases", classifier),
        fit_case("bought range of a target", "purchases", _bought_target(), "numbers", n_rows=_MANY_ROWS),
    ]
    for target in ("two classes", "numbers"):
        score, table = partial(_score, target), _table(_ROWS, _COLUMNS, target)
        name = f"paid score, {target}"
        prepare = partial(_scored_model, target)
        run = partial(score, *table)
        cases.append(AuditCase(name, "purchases", Neighbours.REPLACE_ONE, run, score, table, prepare=prepare))
    return cases


def _bought_target() -> Any:
    return dperm.DPLinearRegression(_EPSILON, _DELTA, bounds=Bounds(features=(-1.0, 1.0)), solver="coordinate")


@cache
def _scored_model(target: str) -> Any:
    model = _classifier("coordinate") if target == "two classes" else _regression("coordinate")
    return model.fit(*_table(_ROWS, _COLUMNS, target)).saved_model()


def _score(target: str, X: Any, y: Any) -> Any:
    return paid_score(_scored_model(target), X, y, epsilon=_EPSILON, delta=_DELTA)


def _local() -> list[AuditCase]:
    """Reports of people's own devices: through the estimators, and every kind of report on its own."""
    classes, numbers = Bounds(features=(-1.0, 1.0), classes=(0, 1)), Bounds(features=(-1.0, 1.0), target=(-1.0, 1.0))
    logistic = partial(dperm.LocalLogisticRegression, bounds=classes, refuse_hopeless=False)
    linear = partial(dperm.LocalLinearRegression, bounds=numbers, refuse_hopeless=False)
    cases = [
        fit_case("LocalLogisticRegression", "local", logistic(epsilon=_EPSILON), n_rows=_PEOPLE, quick=True),
        fit_case("LocalLogisticRegression, few levels", "local", logistic(epsilon=3.0, n_levels=4), n_rows=_PEOPLE),
        fit_case("LocalLinearRegression", "local", linear(epsilon=_EPSILON), "numbers", n_rows=_PEOPLE),
    ]
    for kind, examples in {**LOCAL_EXAMPLES, **OTHER_LOCAL_EXAMPLES}.items():
        report = examples[0]
        values = np.zeros(_PEOPLE, np.int64 if hasattr(report, "n_categories") else np.float64)
        run = partial(_send, report, values)
        name, quick = f"{kind} report", isinstance(report, OneBit)
        cases.append(AuditCase(name, "local", Neighbours.REPLACE_ONE, run, report_epsilon=report.epsilon, quick=quick))
    return cases


def _send(report: Any, values: Any) -> Any:
    # the bit tells most at the ends of its public noise; the guarantee holds for any
    public = (np.ones(len(values)),) if isinstance(report, PublicNoiseBit) else ()
    return report.report(values, *public, RandomSource())


def _vertical() -> list[AuditCase]:
    """A few rounds of every vertical task that claims a guarantee."""
    designs, target = vertical_problem()
    cases = []
    for name, example in VERTICAL_EXAMPLES.items():
        make = partial(_with_active_limit, example)
        task = short_task(make(facts_of(designs), Budget(_EPSILON, _DELTA)), _ROUNDS)
        if task.no_guarantee is None:
            run = partial(run_vertical, task, designs, target)
            check = partial(check_vertical_sensitivity, make)
            quick = type(task) is AdmmSharing  # others derive from it
            cases.append(AuditCase(name, "vertical", task.neighbours, run, check_sensitivity=check, quick=quick))
    return cases


def _with_active_limit(example: Any, parties: Any, budget: Budget) -> Any:
    """Return a task whose limit on one person's slope binds, so that real neighbours reach its sensitivity."""
    task = example(parties, budget)
    limited = any(field.name == "limit" for field in fields(task))
    return replace(task, limit=min(task.limit, _LIMIT)) if limited else task
