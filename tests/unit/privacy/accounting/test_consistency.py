"""A lower bound above its upper bound is an error and never a figure."""

from __future__ import annotations

import math

import pytest

from dperm.errors import AccountingContradiction, DpermError
from dperm.privacy.accounting import composition, curves, gdp, objective_perturbation, pld, profiles
from dperm.privacy.accounting.composition import EpsilonBound
from dperm.privacy.accounting.consistency import refuse_contradiction
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
from dperm.privacy.accounting.guarantee import Accounting
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.local.shuffle import Shuffled

MIXED = Composed((Repeat(Gaussian(30.0), 10), Repeat(Selection(40.0), 30)))


def half(function):
    def halved(*args, **options):
        found = function(*args, **options)
        return (found[0] / 2.0, *found[1:]) if isinstance(found, tuple) else found / 2.0

    return halved


#: a figure that is half as large as it must be, and an event whose upper bound rests on it
PLANTED = [
    (composition, "mu", Repeat(Gaussian(20.0), 50)),
    (curves, "renyi", MIXED),
    (curves, "renyi", Repeat(ZCDP(0.01), 5)),
    (composition, "renyi_epsilon", Repeat(Selection(20.0, 1.0), 40)),
    (profiles, "upper_epsilon", Composed((Gaussian(3.0), Laplace(4.0)))),
    (profiles, "upper_epsilon", Repeat(RandomizedResponse(0.7, 3), 4)),
    (pld, "upper_epsilon", Repeat(PoissonGaussian(1.5, 0.2), 60)),
    (objective_perturbation, "upper_epsilon", ObjectivePerturbation(4.0, 1e-9)),
    (curves, "pure", Repeat(ApproximateDP(0.5), 2)),
]


@pytest.mark.parametrize(("module", "name", "event"), PLANTED, ids=lambda x: x if isinstance(x, str) else "")
def test_a_wrong_upper_curve_is_an_error(monkeypatch, module, name, event):
    right = composition.epsilon(event, 1e-6)
    assert 0.0 < right.lower <= right.epsilon
    monkeypatch.setattr(module, name, half(getattr(module, name)))
    for account in (lambda: composition.epsilon(event, 1e-6), lambda: Accounting.of(event, 1e-6)):
        with pytest.raises(AccountingContradiction, match=r"contradicts itself.*report it"):
            account()


@pytest.mark.parametrize(
    "event", [Repeat(Gaussian(20.0), 50), MIXED, Repeat(RandomizedResponse(0.7, 3), 4), Repeat(Laplace(8.0), 6)]
)
def test_a_wrong_lower_curve_is_an_error(monkeypatch, event):
    honest = composition.lower_epsilon
    monkeypatch.setattr(composition, "lower_epsilon", lambda e, d: 1.5 * honest(e, d) + 0.5)
    with pytest.raises(AccountingContradiction):
        composition.epsilon(event, 1e-6)
    with pytest.raises(AccountingContradiction):
        composition.delta(event, 0.9 * honest(event, 1e-6))


def test_a_delta_that_is_too_small_is_an_error(monkeypatch):
    assert composition.delta(Repeat(Gaussian(20.0), 50), 1.0) > 0.0
    honest = gdp.delta_of
    monkeypatch.setattr(
        gdp, "delta_of", lambda mu, e, lower=False: honest(mu, e, lower=lower) * (1.0 if lower else 0.01)
    )
    with pytest.raises(AccountingContradiction, match="delta is"):
        composition.delta(Repeat(Gaussian(20.0), 50), 1.0)


def test_a_shuffled_bound_that_is_too_small_is_an_error(monkeypatch):
    mixed = Shuffled(OneBit(1.0), n=10_000, shuffler="a mixer", collector="us")
    bound = mixed.epsilon(1e-6)
    assert bound.looseness == bound.epsilon - bound.lower > 0.0
    monkeypatch.setattr(Shuffled, "delta", lambda self, e: 0.0)
    with pytest.raises(AccountingContradiction, match="shuffled"):
        mixed.epsilon(1e-6)


def test_the_error_is_one_sentence_of_dperm():
    with pytest.raises(DpermError) as caught:
        EpsilonBound(1.0, 1.0 + 1e-12, 1e-6, "planted")
    assert caught.value.exit_code == 1
    assert str(caught.value).count("\n") == 0
    assert "1.000000000001" in str(caught.value)
    with pytest.raises(AccountingContradiction):
        refuse_contradiction("epsilon", math.nan, 1.0)


EVENTS = [
    Gaussian(2.0),
    Repeat(Gaussian(1e4), 10_000),
    Laplace(2.0),
    Repeat(Laplace(1e3), 300),
    Selection(3.0, 1.0),
    Repeat(Selection(1e3, 1.0), 4),
    RandomizedResponse(1.0, 4),
    Repeat(RandomizedResponse(1e-3, 2), 5000),
    ZCDP(0.1),
    ZCDP(1e-9),
    ApproximateDP(1.0, 1e-10),
    ApproximateDP(1e-4),
    PoissonGaussian(1.0, 0.1),
    Repeat(PoissonGaussian(20.0, 0.01), 1000),
    RepeatAndSelect(Gaussian(5.0), 1.0001),
    RepeatAndSelect(OneOf((Gaussian(5.0), Selection(9.0))), 4.0),
    OneOf((Gaussian(5.0), Composed((Gaussian(8.0), Selection(9.0, 1.0))))),
    ObjectivePerturbation(3.0, 0.0),
    ObjectivePerturbation(1e3, 1e-12),
    MIXED,
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_correct_bounds_need_no_tolerance(event):
    for delta in (1e-12, 1e-6, 1e-2, 0.3):
        bound = composition.epsilon(event, delta)  # refuses a contradiction
        assert bound.looseness >= 0.0
        if math.isfinite(bound.epsilon):
            composition.delta(event, bound.epsilon)
