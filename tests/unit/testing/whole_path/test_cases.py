"""No path through dperm shows more of the data than its mechanisms release; cases of every kind, not all."""

from __future__ import annotations

import inspect

import pytest

import dperm
from dperm.solvers import SOLVERS
from dperm.testing import ContractViolation
from dperm.testing.vertical import VERTICAL_EXAMPLES
from dperm.testing.whole_path.cases import QUICK, whole_path_cases
from dperm.testing.whole_path.central_cases import central_estimators

CASES = whole_path_cases()


@pytest.mark.parametrize("name", QUICK)
def test_path_shows_nothing_but_releases(name):
    CASES[name].check()


def test_every_public_estimator_has_a_case():
    public = [getattr(dperm, name) for name in dperm.__all__]
    estimators = {one.__name__ for one in public if inspect.isclass(one) and hasattr(one, "fit")}
    assert {case.estimator for case in CASES.values()} - {None} == estimators


def test_every_solver_and_vertical_method_has_a_case():
    for name in SOLVERS:
        by_solver = [case for case in CASES.values() if case.name.endswith(f" by {name}")]
        assert len(by_solver) == len(central_estimators())
        assert any(not case.refused() for case in by_solver)
    assert {f"vertical {name}" for name in VERTICAL_EXAMPLES} <= CASES.keys()
    claims = [name for name in VERTICAL_EXAMPLES if not CASES[f"vertical {name}"].refused()]
    assert len(claims) >= 5


def test_a_case_that_dperm_refuses_is_not_taken_as_passed():
    refused = next(case for case in CASES.values() if case.refused())
    with pytest.raises(ContractViolation, match="nothing to check"):
        refused.check()
