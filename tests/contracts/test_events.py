"""Every kind of event has consistent curves."""

from __future__ import annotations

import pytest

from dperm.privacy.accounting import composition, curves
from dperm.privacy.accounting.events import (
    ZCDP,
    ApproximateDP,
    Composed,
    Gaussian,
    Laplace,
    ObjectivePerturbation,
    OneOf,
    PoissonGaussian,
    RandomizedResponse,
    Repeat,
    RepeatAndSelect,
    Selection,
)
from dperm.testing import ContractViolation, check_event

EVENTS = [
    Gaussian(2.0),
    Laplace(2.0),
    Selection(3.0, 1.0),
    RandomizedResponse(1.0, 4),
    ZCDP(0.1),
    ApproximateDP(1.0, 1e-10),
    PoissonGaussian(1.0, 0.1),
    RepeatAndSelect(Gaussian(5.0), 10.0),
    OneOf((Gaussian(5.0), Composed((Gaussian(8.0), Selection(9.0, 1.0))))),
    RepeatAndSelect(OneOf((Gaussian(5.0), Selection(9.0))), 4.0),
    ObjectivePerturbation(3.0, 0.2),
    Composed((Repeat(Gaussian(30.0), 10), Repeat(Selection(40.0), 10))),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_curves_are_consistent(event):
    check_event(event)


def test_a_fold_that_forgets_counts_is_caught(monkeypatch):
    honest = composition.leaves
    monkeypatch.setattr(composition, "leaves", lambda event: dict.fromkeys(honest(event), 1))
    with pytest.raises(ContractViolation, match="three uses"):
        check_event(Gaussian(2.0))


def test_a_curve_that_falls_with_its_order_is_caught(monkeypatch):
    honest = curves.renyi
    monkeypatch.setattr(curves, "renyi", lambda event, order: honest(event, order) / order**2)
    with pytest.raises(ContractViolation, match="falls with its order"):
        check_event(Gaussian(2.0))
