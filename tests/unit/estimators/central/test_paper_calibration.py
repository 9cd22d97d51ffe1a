"""calibration="paper": never a guarantee, always the reason and the epsilon that can be certified."""

from __future__ import annotations

import numpy as np
import pytest

from dperm import Bounds, Budget, DPLogisticRegression, Ledger
from dperm.errors import BudgetRefused, Unsupported
from dperm.solvers import CoordinateDescent, GreedyCoordinateDescent

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 5))
Y = (X[:, 0] + 0.2 * RNG.normal(size=400) > 0).astype(int)
DECLARED = Bounds(features=(-1, 1), classes=[0, 1])


@pytest.mark.parametrize(
    "solver",
    [
        GreedyCoordinateDescent(n_steps=3, rule="GS-s"),
        GreedyCoordinateDescent(n_steps=3, rule="GS-s", printed_form="closed"),
        CoordinateDescent(n_passes=1),
    ],
)
def test_no_guarantee_but_a_reason_and_a_certified_epsilon(solver):
    model = DPLogisticRegression(epsilon=1.0, bounds=DECLARED, solver=solver, calibration="paper").fit(X, Y)
    report = model.privacy_report_
    assert report.guarantee is None
    assert report.epsilon == np.inf
    assert "can be certified" in report.reason
    assert 0.0 < report.planned.epsilon < np.inf
    assert model.coef_.shape == (1, 5)


def test_the_printed_greedy_noise_is_certified_for_another_epsilon_than_stated():
    solver = GreedyCoordinateDescent(n_steps=50, rule="GS-s", printed_form="closed")
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds=DECLARED, solver=solver, calibration="paper").fit(X, Y)
    assert model.privacy_report_.planned.epsilon != pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"solver": "gradient"}, "no published calibration"),
        ({"solver": GreedyCoordinateDescent(n_steps=2)}, "GS-s"),
        ({"solver": "coordinate", "bounds": None}, "declare"),
        ({"solver": "coordinate", "neighbours": "zero-out"}, "replace-one"),
    ],
)
def test_what_has_no_printed_calibration_is_refused_before_anything_is_written(options, says):
    ledger = Ledger()
    before = len(ledger.entries())
    with pytest.raises(Unsupported, match=says):
        DPLogisticRegression(**{"bounds": DECLARED, "ledger": ledger, "calibration": "paper", **options}).fit(X, Y)
    assert len(ledger.entries()) == before


def test_a_capped_ledger_refuses_it():
    ledger = Ledger(dataset="people")
    ledger.set_cap(Budget(10.0, 1e-5))
    with pytest.raises(BudgetRefused):
        DPLogisticRegression(bounds=DECLARED, ledger=ledger, solver="coordinate", calibration="paper").fit(X, Y)
    free = Ledger(dataset="people")
    DPLogisticRegression(bounds=DECLARED, ledger=free, solver="coordinate", calibration="paper").fit(X, Y)
    assert free.spent().unbounded
