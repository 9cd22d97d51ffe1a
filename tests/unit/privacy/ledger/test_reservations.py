"""Data known by more than one fingerprint, and the share of a cap that is used."""

from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest

from dperm import Budget, Ledger
from dperm.errors import BudgetRefused, DataSetRenamed
from dperm.privacy.accounting.events import Composed, Gaussian


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("DPERM_HOME", str(tmp_path / "home"))
    return Ledger(tmp_path / "ledger.db", dataset="people")


def test_a_charge_records_its_fingerprints_under_the_first_name(ledger):
    file, table = (ledger.fingerprint([np.arange(k)]) for k in (3, 4))
    assert ledger.known_as(file) is None
    ledger.recognising(file).reserve(Gaussian(20.0), "replace-one")
    with pytest.warns(DataSetRenamed):
        ledger.for_dataset("others").recognising(file).reserve(Gaussian(20.0), "replace-one")  # the first name stays
    assert ledger.known_as(file) == "people"
    assert ledger.known_as(table) is None
    assert ledger.spent().n_fits == 2
    assert file not in str(ledger.export())
    assert ledger.verify() == ledger.head


def test_shares_of_a_cap_add_up(ledger):
    assert ledger.spent().used is None
    ledger.set_cap(Budget(2.0, 1e-6))
    assert ledger.spent().used == 0.0
    ledger.reserve(Gaussian(20.0), "replace-one")
    once = ledger.spent().used
    ledger.reserve(Gaussian(20.0), "replace-one")
    assert ledger.spent().used == pytest.approx(2.0 * once)
    assert ledger.spent().to_dict()["used"] == ledger.spent().used
    closed = ledger.for_dataset("closed")
    closed.set_cap(Budget(1.0, 1e-6))
    closed.reserve(Gaussian(1.0 / Budget(1.0, 1e-6).mu), "replace-one")
    assert closed.spent().used == 1.0


def test_a_reservation_writes_all_fingerprints_of_its_data_at_once(ledger):
    file, table, other = (ledger.fingerprint([np.arange(k)]) for k in (3, 4, 5))
    book = pickle.loads(pickle.dumps(ledger.recognising(file)))
    book.check(Gaussian(20.0), "replace-one", table)
    assert ledger.known_as(file) is None  # a check writes nothing
    book.reserve(Gaussian(20.0), "replace-one", fingerprint=table)
    assert (ledger.known_as(file), ledger.known_as(table)) == ("people", "people")
    copy = ledger.for_dataset("copy").recognising(file)
    with pytest.warns(DataSetRenamed, match="known to the ledger as 'people'"):
        copy.reserve(Gaussian(20.0), "replace-one", fingerprint=other)  # the same file, encoded in another way
    assert ledger.known_as(other) == "people"
    assert ledger.spent().n_fits == 2


def test_plans_that_follow_are_checked_as_they_would_be_reserved(ledger):
    half = Gaussian(1.41422 / Budget(1.0, 1e-6).mu)  # two of them are within (1, 1e-6), in one plan only
    ledger.set_cap(Budget(1.0, 1e-6))
    ledger.check(half, "replace-one")
    ledger.check(Composed((half, half)), "replace-one")
    with pytest.raises(BudgetRefused):
        ledger.check(half, "replace-one", then=[(half, None)])
    small = Gaussian(20.0 / Budget(1.0, 1e-6).mu)
    ledger.check(half, "replace-one", then=[(small, None)])
    assert ledger.spent().n_fits == 0


def test_plans_that_follow_are_checked_where_their_data_are_known(ledger):
    file, rows, held_out = (ledger.fingerprint([np.arange(k)]) for k in (3, 4, 5))
    ledger.reserve(Gaussian(20.0), "replace-one", fingerprint=rows)
    ledger.for_dataset("other").reserve(Gaussian(20.0), "replace-one", fingerprint=held_out)
    book, plan = ledger.for_dataset("copy").recognising(file), Gaussian(20.0)
    with pytest.warns(DataSetRenamed):
        assert book.check(plan, "replace-one", rows, then=[(plan, held_out)]) == "people"
    for name in ("people", "other"):
        ledger.for_dataset(name).set_cap(Budget(5.0, 1e-6))
    head = ledger.head
    with pytest.warns(DataSetRenamed), pytest.raises(BudgetRefused, match="would bypass the cap of 'other'"):
        book.check(plan, "replace-one", rows, then=[(plan, held_out)])
    assert ledger.head == head
    assert [ledger.for_dataset(name).spent().n_fits for name in ("people", "other", "copy")] == [1, 1, 0]


def test_a_refusal_names_shares_of_the_cap(ledger):
    cap = ledger.set_cap(Budget(1.0, 1e-6))
    ledger.reserve(Gaussian(1.5 / Budget(1.0, 1e-6).mu), "replace-one")
    with pytest.raises(BudgetRefused) as refused:
        ledger.reserve(Gaussian(1.2 / Budget(1.0, 1e-6).mu), "replace-one")
    asked, left = map(float, re.findall(r"([\d.]+)%", str(refused.value)))
    used = ledger.spent().used
    assert left == pytest.approx(100.0 * (1.0 - used), abs=0.1)
    assert asked > left
    assert "of the cap of data set 'people' (epsilon=1 at delta=1e-06)" in str(refused.value)
    assert "charge" not in str(refused.value)
    with pytest.raises(BudgetRefused):  # a plan that hardly does not fit does not read as if it did
        ledger.reserve(Gaussian(math.sqrt(cap.order / (2.0 * cap.limit * (1.0 - used))) * (1 - 1e-9)), "replace-one")


def test_the_cap_of_the_name_that_data_were_given_by_holds_where_they_are_known(ledger):
    """Also if it is set by somebody else after the name was looked up: the rule is part of the transaction."""
    file = ledger.fingerprint([np.arange(3)])
    ledger.recognising(file).reserve(Gaussian(20.0), "replace-one")
    book = ledger.for_dataset("patients").recognising(file).for_dataset("people")
    book.reserve(Gaussian(20.0), "replace-one")
    Ledger(ledger.address, dataset="patients").set_cap(Budget(1.0, 1e-6))
    for handle in (book, pickle.loads(pickle.dumps(book))):
        with pytest.raises(BudgetRefused, match="'people', which has no cap, while 'patients' has one"):
            handle.reserve(Gaussian(20.0), "replace-one")
        with pytest.raises(BudgetRefused):
            handle.check(Gaussian(20.0), "replace-one")
    ledger.recognising(file).reserve(Gaussian(20.0), "replace-one")  # given by the name that is charged
    assert ledger.spent().n_fits == 3


def twice_known(ledger):
    """Handles on A and B, and a table whose rows are known as A and whose file is known as B."""
    rows, file = (ledger.fingerprint([np.arange(k)]) for k in (3, 4))
    a, b = ledger.for_dataset("A"), ledger.for_dataset("B")
    a.reserve(Gaussian(20.0), "replace-one", fingerprint=rows)
    b.recognising(file).reserve(Gaussian(20.0), "replace-one")
    return a, b, rows, file


@pytest.mark.parametrize("given", ["A", "B", "other"])
def test_data_under_two_caps_are_charged_to_neither(ledger, given):
    a, b, rows, file = twice_known(ledger)
    a.set_cap(Budget(10.0, 1e-6))
    b.set_cap(Budget(0.6, 1e-6))
    book = ledger.for_dataset(given).recognising(file)
    with pytest.raises(BudgetRefused, match=r"known as 'B' and as 'A', .* read the table with the same columns"):
        book.reserve(Gaussian(20.0), "replace-one", fingerprint=rows)
    assert (a.spent().n_fits, b.spent().n_fits) == (1, 1)
    assert book.made_here() == []


@pytest.mark.parametrize("capped", ["A", "B"])
def test_of_two_names_the_one_with_a_cap_is_charged(ledger, capped):
    _, _, rows, file = twice_known(ledger)
    ledger.for_dataset(capped).set_cap(Budget(1.0, 1e-6))
    book = ledger.for_dataset(capped).recognising(file)
    assert book.reserve(Gaussian(20.0), "replace-one", fingerprint=rows).dataset == capped
    other = ledger.for_dataset("A" if capped == "B" else "B").recognising(file)
    with pytest.warns(DataSetRenamed, match=f"as '{capped}'"):
        assert other.reserve(Gaussian(20.0), "replace-one", fingerprint=rows).dataset == capped


def test_a_handle_distinguishes_its_own_reservations_from_others(ledger):
    mine, theirs = ledger.recognising("f"), Ledger(ledger.address, dataset="people").recognising("f")
    theirs.reserve(Gaussian(20.0), "replace-one", "same purpose")
    assert mine.made_here() == []
    mine.check(Gaussian(20.0), "replace-one")
    made = mine.for_dataset("people").reserve(Gaussian(20.0), "replace-one", "same purpose")
    assert [row["id"] for row in mine.made_here()] == [made.id]
