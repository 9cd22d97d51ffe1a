"""Paths of the local and the vertical setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dperm
from dperm.data.design.bounds import Bounds
from dperm.data.design.matrix import DesignMatrix
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.ledger import Ledger
from dperm.solvers.vertical import VerticalTask
from dperm.testing.data import Layout
from dperm.testing.vertical import (
    VERTICAL_EXAMPLES,
    facts_of,
    message_form,
    public_part,
    run_vertical,
    short_task,
    vertical_problem,
)
from dperm.testing.whole_path.artefacts import everything_about
from dperm.testing.whole_path.case import Case
from dperm.testing.whole_path.seeing import Run, SharedValues
from dperm.testing.whole_path.tables import TARGET, class_tables, number_tables, record_tables

__all__ = ["local_cases", "vertical_cases"]

#: people of a simulated collection
N_PEOPLE = 1000
#: of a report: large enough that the shrinkage of so few people's noise leaves some weights
EPSILON = 8.0


# ------------------------------------------------------------------------------------------------------------ local
def local_cases() -> Iterator[Case]:
    """Yield simulated collections of every local estimator."""
    classes, numbers = Bounds(features=(-1, 1), classes=[0, 1]), Bounds(features=(-1, 1), target=TARGET)
    two, three = partial(class_tables, n=N_PEOPLE), partial(class_tables, 3, n=N_PEOPLE)
    numeric = partial(number_tables, n=N_PEOPLE)
    logistic, linear = dperm.LocalLogisticRegression, dperm.LocalLinearRegression
    yield Case("local classes", two, _fit(logistic, bounds=classes), "LocalLogisticRegression")
    labels = Bounds(features=(-1, 1), classes=[0, 1, 2])
    yield Case("local, three classes", three, _fit(logistic, bounds=labels))
    yield Case("local classes in rounds", two, _fit(logistic, bounds=classes, solver="sgd", n_rounds=4))
    yield Case("local, four levels", two, _fit(logistic, bounds=classes, n_levels=4))
    yield Case("local numbers", numeric, _fit(linear, bounds=numbers), "LocalLinearRegression")
    yield Case("local numbers in rounds", numeric, _fit(linear, bounds=numbers, solver="sgd"))

    def marginals(table: Any, folder: Path) -> Any:
        ledger = Ledger(folder / "ledger.db", dataset="people")
        model = dperm.Marginals(EPSILON, n_bits=4, k=2, n_people=N_PEOPLE, ledger=ledger).fit(table)
        return everything_about(model, folder), model.query([0, 2])

    yield Case("marginals", partial(record_tables, N_PEOPLE, bits=True), marginals, "Marginals")

    def smooth(table: Any, folder: Path) -> Any:
        model = dperm.SmoothQueries(EPSILON, low=[-1, -1], high=[1, 1]).fit(table)
        return everything_about(model, folder), model.query(lambda x: np.cos(x[:, 0]))

    yield Case("smooth queries", partial(record_tables, N_PEOPLE, 2), smooth, "SmoothQueries")


def _fit(cls: Any, **options: Any) -> Run:
    def run(table: Any, folder: Path) -> Any:
        ledger = Ledger(folder / "ledger.db", dataset="people")
        model = cls(EPSILON, refuse_hopeless=False, ledger=ledger, **options).fit(*table)
        return everything_about(model, folder)

    return run


# --------------------------------------------------------------------------------------------------------- vertical
def vertical_cases() -> Iterator[Case]:
    """Yield a run of every vertical method that claims a guarantee."""
    for name, make in VERTICAL_EXAMPLES.items():
        run, refused = partial(_vertical, make), partial(_claims_nothing, make)
        yield Case(f"vertical {name}", vertical_tables, run, refused=refused, fields_are_public=False)


def vertical_tables() -> Mapping[str, Any]:
    """Return the columns of several parties and the target; in the strange table every value lies at an end."""
    designs, target = vertical_problem(11)
    strange = {}
    for name, design in designs.items():
        n, width = design.n_rows, design.n_features
        rows = np.where(np.arange(n)[:, None] % 7 == 0, 1.0, -1.0) * np.ones((n, width))
        height = design.intercept_height
        strange[name] = DesignMatrix.from_array(rows, Layout(n=n, n_features=width).scaling(), height)
    return {
        "usual": (designs, target),
        "other": vertical_problem(12),
        "strange": (strange, (np.arange(len(target)) == 0).astype(float)),
    }


def _task(make: Callable[..., VerticalTask], designs: Any) -> VerticalTask:
    return short_task(make(facts_of(designs), Budget(1.0, 1e-6)))


def _claims_nothing(make: Callable[..., VerticalTask]) -> bool:
    return _task(make, vertical_problem(11)[0]).no_guarantee is not None


def _vertical(make: Callable[..., VerticalTask], table: Any, folder: Path) -> Any:
    designs, target = table
    task, holders = _task(make, designs), list[Any]()
    run = run_vertical(task, designs, target, prepare=lambda program: holders.append(program.holder))
    messages = [m for batch in zip(run.messages.requests, run.messages.replies, strict=True) for m in batch]
    seen = {
        "forms of messages": [{name: message_form(one) for name, one in batch.items()} for batch in messages],
        "messages": [{name: public_part(one, task) for name, one in batch.items()} for batch in messages],
        "weights": dict(run.result.weights),
        "rounds": run.result.n_rounds,
        "report": (run.result.report.to_dict(), run.result.report.summary()),
        "ledgers": {name: scope.ledger for name, scope in run.scopes.items()},
    }
    return SharedValues(seen, sum(len(holder.shared) for holder in holders))
