"""Errors with fields: the sentence follows from them, wherever it is shown."""

from __future__ import annotations

import pickle

import pytest

from dperm import Bounds, Budget, DPRidge, DPTuner, Ledger, LocalLinearRegression
from dperm.errors import BudgetRefused, DpermError, InvalidBounds, InvalidInput, MissingDependency, TooFewPeople

UNIT = Bounds(features=(-1, 1), target=(-1, 1))


def test_places_stand_before_the_sentence_the_outermost_first():
    error = InvalidBounds("lo must be below hi.")
    error.add_place("column 'age'")
    error.add_place("in schema.toml")
    assert error.places == ("in schema.toml", "column 'age'")
    assert str(error) == "in schema.toml: column 'age': lo must be below hi."
    assert error.sentence == "lo must be below hi."
    assert error.clause == "in schema.toml: column 'age': lo must be below hi"


@pytest.mark.parametrize("kind", [DpermError, InvalidInput, MissingDependency, BudgetRefused])
def test_an_error_without_fields_is_its_sentence(kind):
    assert str(kind("one sentence.")) == "one sentence."


def test_a_refused_budget_shows_the_command_for_its_ledger():
    error = BudgetRefused("the plan takes all of the cap: ask for less", dataset="my data")
    assert str(error).endswith("ask for less, and see who spent it with `dperm ledger show 'my data'`.")
    error.ledger = "a ledger.db"
    assert error.command == "dperm ledger show --ledger 'a ledger.db' 'my data'"
    assert f"`{error.command}`." in str(error)
    assert BudgetRefused("the party allows less.").command is None


def test_a_full_ledger_names_the_data_set(tmp_path, monkeypatch):
    monkeypatch.setenv("DPERM_HOME", str(tmp_path))
    ledger = Ledger(Ledger.default_path(), dataset="people")
    ledger.set_cap(Budget(0.1, 1e-6))
    with pytest.raises(BudgetRefused) as refused:
        DPRidge(epsilon=5.0, bounds=UNIT, ledger=ledger).fit([[0.0], [1.0]] * 50, [0.0, 1.0] * 50)
    assert refused.value.dataset == "people"
    assert refused.value.ledger is None
    assert "`dperm ledger show people`" in str(refused.value)


def test_too_few_people_are_refused_with_numbers():
    model = LocalLinearRegression(bounds=UNIT)
    with pytest.raises(TooFewPeople) as refused:
        model.fit([[0.0], [1.0]] * 5, [0.0, 1.0] * 5)
    error = refused.value
    assert (error.n_people, error.n_features, error.epsilon) == (10, 1, 1.0)
    assert error.min_people > 10
    assert str(error).endswith("use fewer columns, or set refuse_hopeless=False.")
    error.option = None
    assert str(error).endswith("ask more people, raise epsilon, use fewer columns.")


def test_a_refused_candidate_is_a_place():
    with pytest.raises(InvalidInput) as refused:
        DPTuner(DPRidge(bounds=UNIT), {"strength": [0.1, -1.0]}).plan(100, 1)
    assert refused.value.places == ("candidate strength=-1.0",)
    assert refused.value.sentence.startswith("strength must be")


@pytest.mark.parametrize(
    "error", [BudgetRefused("ask for less", "people"), TooFewPeople(10, 2, 1.0, 100, 200), InvalidInput("no.")]
)
def test_errors_travel_between_processes(error):
    error.add_place("here")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
