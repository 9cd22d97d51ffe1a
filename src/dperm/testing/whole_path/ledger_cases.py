"""Paths that are charged to a ledger with a history, also one that knows the table by another name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dperm
from dperm.data.design.bounds import Bounds
from dperm.estimators.central.scoring import paid_score
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.ledger import Ledger
from dperm.testing.whole_path.artefacts import everything_about
from dperm.testing.whole_path.case import Case
from dperm.testing.whole_path.tables import TARGET, Table, number_tables

__all__ = ["ledger_cases"]

EPSILON = 4.0
BOUNDS = Bounds(features=(-1, 1), target=TARGET)
#: what is for the owner of the data alone: the ledger, in its file and as the model's handle, and some warnings
FOR_THE_OWNER = ("ledgers", "warnings for the owner", "result['attributes']['ledger']")

#: fits a table and charges the ledger
Fit = Callable[[Ledger, Table], Any]


def ledger_cases() -> Iterator[Case]:
    """Yield all cases about ledgers."""
    # whether the table resembles an earlier one is for the owner
    yield Case("ledger with a history", number_tables, _after_others, owner_only=("warnings for the owner",))
    for name, fit in _FITS.items():
        run = partial(_known_by_another_name, fit)
        yield Case(f"known table, {name}", number_tables, run, owner_only=FOR_THE_OWNER)


def _after_others(table: Table, folder: Path) -> Any:
    """Fit twice, with a cap, in a ledger that knows other tables."""
    address = folder / "ledger.db"
    for rows, name in ((50, "census 2022"), (60, "census 2023")):
        _ridge(Ledger(address, dataset=name), number_tables(rows)["usual"])
    ledger = Ledger(address, dataset="census 2024")
    ledger.set_cap(Budget(20.0, 1e-5))
    return [everything_about(_ridge(ledger, table), folder) for _ in range(2)]


def _known_by_another_name(fit: Fit, table: Table, folder: Path) -> Any:
    """Fit a table that may be one which the ledger knows by another name.

    That it was recognised is for the owner, who sees it in a warning and in the ledger. Nothing that is published may
    depend on it: whether two tables are equal is a fact about every person in them.
    """
    address = folder / "ledger.db"
    fit(Ledger(address, dataset="census 2023"), number_tables()["usual"])
    return everything_about(fit(Ledger(address, dataset="census 2024"), table), folder)


def _ridge(ledger: Ledger, table: Table) -> dperm.DPRidge:
    return dperm.DPRidge(EPSILON, bounds=BOUNDS, ledger=ledger).fit(*table)


def _search(ledger: Ledger, table: Table) -> dperm.DPTuner:
    parameters = {"strength": [1e-3, 1e-1]}
    return dperm.DPTuner(dperm.DPRidge(bounds=BOUNDS), parameters, epsilon=EPSILON, ledger=ledger).fit(*table)


def _local(ledger: Ledger, table: Table) -> dperm.LocalLinearRegression:
    return dperm.LocalLinearRegression(8.0, bounds=BOUNDS, refuse_hopeless=False, ledger=ledger).fit(*table)


def _scored(ledger: Ledger, table: Table) -> dperm.DPRidge:
    model = _ridge(ledger, table)
    model.score_ = paid_score(model.saved_model(), *table, epsilon=1.0, ledger=ledger)
    return model


_FITS: dict[str, Fit] = {"fit": _ridge, "search": _search, "local fit": _local, "paid score": _scored}
