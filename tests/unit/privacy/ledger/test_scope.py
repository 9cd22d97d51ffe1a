"""A reservation is resumed by one scope at a time, in its own ledger, with the count of what was released."""

from __future__ import annotations

import pytest

from dperm.errors import LedgerError, PlanViolation
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.events import Gaussian, Selection
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.accounting.units import gaussian_in_units, selection_in_units
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import InnerScope, Scope
from dperm.privacy.mechanisms.standard import GaussianNoise

PLAN = calibrate(Plan((PlannedRelease("q", "gaussian", 2),)), Budget(1.0, 1e-6))
EVENT = PLAN.plan.releases[0].event(PLAN.scale)
REPLACE_ONE = Neighbours.REPLACE_ONE


def _resumed(ledger, made, **how):
    return Scope(PLAN, ledger, REPLACE_ONE, "fit", resumed=made, **how)


def test_a_reservation_continues_where_it_stopped():
    ledger = Ledger()
    first = Scope(PLAN, ledger, REPLACE_ONE, "fit")
    first.charge("q", EVENT)
    first.suspend()
    with pytest.raises(PlanViolation, match="after the fit had been settled"):
        first.charge("q", EVENT)
    first.settle()  # writes nothing: it is another's now
    second = _resumed(ledger, first.reservation, used=first.used)
    second.charge("q", EVENT)
    with pytest.raises(PlanViolation, match="release 3 of 'q'"):
        second.charge("q", EVENT)
    second.settle()
    spent = ledger.spent()
    assert (spent.n_fits, spent.reserved_unsettled) == (1, 0)


def test_one_in_use_settled_or_of_another_ledger_is_refused():
    ledger = Ledger()
    scope = Scope(PLAN, ledger, REPLACE_ONE, "fit")
    scope.charge("q", EVENT)
    with pytest.raises(PlanViolation, match="in use"):
        _resumed(ledger, scope.reservation, used={})
    with pytest.raises(LedgerError, match="has no reservation"):
        _resumed(Ledger(), scope.reservation, used={"q": 1})
    scope.suspend()
    with pytest.raises(PlanViolation, match="without saying how many"):
        _resumed(ledger, scope.reservation)
    with pytest.raises(PlanViolation, match="3 releases of 'q' were made before"):
        _resumed(ledger, scope.reservation, used={"q": 3})
    again = _resumed(ledger, scope.reservation, used={"q": 1})
    with pytest.raises(PlanViolation, match="in use"):
        _resumed(ledger, scope.reservation, used={"q": 1})
    again.settle()
    with pytest.raises(LedgerError, match="settled already"):
        _resumed(ledger, scope.reservation, used={"q": 1})


def test_a_scope_that_is_gone_with_its_fit_is_not_in_use():
    ledger = Ledger()
    scope = Scope(PLAN, ledger, REPLACE_ONE, "fit")
    made = scope.reservation
    del scope
    _resumed(ledger, made, used={}).settle()


def test_one_release_may_take_the_place_of_several():
    plan = Plan((PlannedRelease("q", "gaussian", 10),))
    calibrated = calibrate(plan, Budget(1.0, 1e-6))
    unit = calibrated.noise_multiplier("q")
    scope = InnerScope(calibrated, Neighbours.REPLACE_ONE, binding=False)
    scope.charge("q", Selection(selection_in_units(unit, 6)), 6)
    with pytest.raises(PlanViolation, match="cost differs"):
        scope.charge("q", Gaussian(gaussian_in_units(unit, 3)), 2)
    with pytest.raises(PlanViolation, match="cost differs"):
        scope.charge("q", Gaussian(gaussian_in_units(unit, 2)))
    with pytest.raises(PlanViolation, match="release 11 of 'q' was attempted; 10 are planned"):
        scope.charge("q", Gaussian(gaussian_in_units(unit, 5)), 5)
    with pytest.raises(PlanViolation, match="was attempted"):
        scope.charge("q", Gaussian(gaussian_in_units(unit, 1)), 0)
    scope.charge("q", Gaussian(gaussian_in_units(unit, 3)), 3)
    assert scope.used == {"q": 9}
    scope.settle()
    assert [record.event for record in scope.records] == [Gaussian(unit)] * 10
    assert [record.forfeited for record in scope.records] == [False] * 9 + [True]


def test_numbers_that_lie_about_themselves_are_refused():
    """A subclass of int may compare as many and add up as few: units, and noise for that matter, are plain numbers."""

    class Many(int):
        def __radd__(self, other):
            return other + 1

        def __rmul__(self, other):
            return other

    unit = EVENT.noise_multiplier
    scope = InnerScope(PLAN, REPLACE_ONE, binding=False)
    with pytest.raises(PlanViolation, match="in the place of"):
        scope.charge("q", Gaussian(gaussian_in_units(unit, 10**8)), Many(10**8))
    assert not scope.used

    class Equal(float):
        def __eq__(self, other):
            return True

        __hash__ = float.__hash__

    assert Gaussian(Equal(0.5)) != Gaussian(30.0)
    assert type(GaussianNoise(Equal(0.5)).noise_multiplier) is float
