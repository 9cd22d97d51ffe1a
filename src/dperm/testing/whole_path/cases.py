"""All paths of dperm that are checked as a whole; see the ``..._cases.py`` beside this file."""

from __future__ import annotations

from functools import cache

from dperm.testing.whole_path.case import Case
from dperm.testing.whole_path.central_cases import central_cases
from dperm.testing.whole_path.ledger_cases import ledger_cases
from dperm.testing.whole_path.local_and_vertical_cases import local_cases, vertical_cases

__all__ = ["QUICK", "whole_path_cases"]

#: one case or two of every kind, for the tests that run with every change; the contract suite runs all
QUICK = (
    "DPLogisticRegression by newton",  # a solver by name
    "DPLogisticRegression by greedy",  # one that selects
    "DPLogisticRegression",  # the automatic rule: few columns, sparse ones, many dense ones
    "many sparse columns",
    "many dense columns",
    "three classes",
    "DPRidge",
    "bought features",
    "search of a classifier",
    "paid accuracy",
    "local classes",
    "marginals",
    "vertical admm-sharing",
    "vertical distributed-frank-wolfe",
    "many rows, classes",  # a leak may begin with the size of a table
    "ledger with a history",
    "known table, fit",
)


@cache
def whole_path_cases() -> dict[str, Case]:
    """Return all cases by name.

    A new central estimator, solver or vertical method has its case without a change here. A new local estimator needs
    one in ``local_and_vertical_cases.py``: what its records and settings are cannot be derived. A test asks for it.
    """
    cases = (*central_cases(), *ledger_cases(), *local_cases(), *vertical_cases())
    return {case.name: case for case in cases}
