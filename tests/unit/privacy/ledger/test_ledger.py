"""What a user of the ledger sees, on every kind of storage."""

from __future__ import annotations

import copy
import json
import math
import pickle
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

from dperm.errors import (
    BudgetRefused,
    DataSetRenamed,
    InvalidInput,
    LedgerError,
    LedgerUnreadable,
    PlanViolation,
    Unsupported,
)
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.events import (
    ApproximateDP,
    Composed,
    Event,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Repeat,
    RepeatAndSelect,
    Selection,
    Unbounded,
)
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Cap, Ledger, ReleaseRecord

BUDGET = Budget(2.0, 1e-6)
SMALL = Repeat(Gaussian(60.0), 10)
SMALL_RELEASES = [ReleaseRecord("gradient", Gaussian(60.0))] * 10


def small(ledger: Ledger, n: int = 1) -> None:
    for _ in range(n):
        ledger.reserve(SMALL, "replace-one", "fit").settle(SMALL_RELEASES)


# ---------------------------------------------------------------------------------------- reserve and settle
def test_a_fit_from_reserve_to_settle(any_address: str | None) -> None:
    ledger = Ledger(any_address, dataset="patients")
    cap = ledger.set_cap(BUDGET)
    assert ledger.cap == cap
    assert ledger.spent().epsilon == 0.0
    assert ledger.spent().remaining == 2.0
    plan = Composed((Repeat(Selection(30.0), 3), Repeat(Gaussian(40.0), 2)))
    reservation = ledger.reserve(plan, neighbours="replace-one", purpose="greedy")
    assert reservation.dataset == "patients"
    assert reservation.event == plan
    assert reservation.charge == pytest.approx(composition.renyi(plan, cap.order))
    before = ledger.spent()
    assert (before.reserved_unsettled, before.n_fits) == (1, 1)
    assert [one.id for one in ledger.unsettled()] == [reservation.id]
    reservation.settle(
        [
            ReleaseRecord("choice", Selection(30.0)),
            ReleaseRecord("choice", Selection(30.0)),
            ReleaseRecord("step", Gaussian(40.0), count=2),
            ReleaseRecord("choice", Selection(30.0), forfeited=True),
        ]
    )
    after = ledger.spent()
    assert after.reserved_unsettled == 0
    assert after.epsilon == before.epsilon > 0.0
    assert after.epsilon + after.remaining == pytest.approx(2.0)
    rows = [row for row in ledger.entries("patients") if row["kind"] == "release"]
    assert [(r["query"], r["count"], r["forfeited"]) for r in rows] == [
        ("choice", 2, False),
        ("step", 2, False),
        ("choice", 1, True),
    ]
    assert ledger.unsettled() == []
    assert ledger.verify(ledger.head) == ledger.head


def test_settle_exactly_once(any_address: str | None) -> None:
    ledger = Ledger(any_address)
    reservation = ledger.reserve(SMALL, "replace-one")
    reservation.settle(SMALL_RELEASES)
    head = ledger.head
    with pytest.raises(LedgerError, match="settled already"):
        reservation.settle(SMALL_RELEASES)
    with pytest.raises(LedgerError, match="settled already"):
        ledger.resume(reservation.id)
    with pytest.raises(LedgerError, match="no reservation"):
        ledger.resume("0" * 32)
    assert ledger.head == head


@pytest.mark.parametrize(
    "releases",
    [
        [],
        SMALL_RELEASES[:-1],
        [*SMALL_RELEASES, SMALL_RELEASES[0]],
        [*SMALL_RELEASES[:-1], ReleaseRecord("gradient", Gaussian(59.0))],
        [*SMALL_RELEASES[:-1], ReleaseRecord("gradient", Laplace(60.0))],
    ],
)
def test_settle_must_equal_the_plan(releases: list[ReleaseRecord], any_address: str | None) -> None:
    ledger = Ledger(any_address)
    reservation = ledger.reserve(SMALL, "replace-one")
    head = ledger.head
    with pytest.raises(PlanViolation, match="not those that were reserved"):
        reservation.settle(releases)
    assert ledger.head == head
    reservation.settle(SMALL_RELEASES)  # still open


def test_a_fold_that_drops_counts_is_caught_by_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: with a fold that forgets Repeat counts, no way of writing the releases settles."""

    def forgetful(event: Event) -> dict[Event, int]:
        if isinstance(event, Repeat):
            return forgetful(event.event)
        if isinstance(event, Composed):
            return {leaf: 1 for part in event.events for leaf in forgetful(part)}
        return {event: 1}

    monkeypatch.setattr(composition, "leaves", forgetful)
    ledger = Ledger()
    for releases in (SMALL_RELEASES, [ReleaseRecord("gradient", Gaussian(60.0), count=10)]):
        with pytest.raises(PlanViolation):
            ledger.reserve(SMALL, "replace-one").settle(releases)


def test_resume_after_a_lost_handle(address: str) -> None:
    made = Ledger(address, dataset="a").reserve(SMALL, "zero-out", "first try")
    again = Ledger(address, dataset="b").resume(made.id)
    assert again == made
    assert again.dataset == "a"
    again.settle(SMALL_RELEASES)
    assert Ledger(address, dataset="a").spent().reserved_unsettled == 0


def test_numpy_numbers_are_written_as_plain_ones() -> None:
    ledger = Ledger()
    event = Repeat(Gaussian(np.float64(60.1)), np.int64(3))
    ledger.reserve(event, "replace-one").settle([ReleaseRecord("g", Gaussian(np.float64(60.1)), count=np.int64(3))])
    assert ledger.entries()[-2]["count"] == 3


def test_wrong_arguments() -> None:
    ledger = Ledger()
    with pytest.raises(InvalidInput, match="records events"):
        ledger.reserve("gaussian", "replace-one")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="neighbours must be"):
        ledger.reserve(SMALL, "add-remove")
    for name in ("", "  ", "a\nb", "x" * 201, None):
        with pytest.raises(InvalidInput, match="name of a data set"):
            Ledger(dataset=name)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="release record"):
        ReleaseRecord(3, Gaussian(1.0))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="count"):
        ReleaseRecord("a", Gaussian(1.0), count=0)


# ---------------------------------------------------------------------------------------- caps
def test_a_cap_never_changes(any_address: str | None) -> None:
    ledger = Ledger(any_address, dataset="patients")
    ledger.set_cap(BUDGET)
    with pytest.raises(InvalidInput, match="never changes"):
        ledger.set_cap(Budget(3.0, 1e-6))
    assert ledger.for_dataset("other").cap is None


def test_nothing_is_written_beyond_the_cap(any_address: str | None) -> None:
    ledger = Ledger(any_address, dataset="my patients")
    ledger.set_cap(BUDGET)
    ledger.reserve(Gaussian(4.0), "replace-one")
    head = ledger.head
    with pytest.raises(BudgetRefused) as refused:
        ledger.reserve(Gaussian(2.0), "replace-one", fingerprint="f")
    named = None if any_address is None else shlex.join(["dperm", "ledger", "show", "--ledger", ledger.address])
    assert refused.value.command == (None if named is None else f"{named} 'my patients'")
    with pytest.raises(BudgetRefused) as checked:
        ledger.check(Gaussian(2.0), "replace-one")
    assert checked.value.command == refused.value.command
    assert "is left" in str(refused.value)
    assert refused.value.exit_code == 3
    assert ledger.head == head
    spent = ledger.spent()
    assert spent.epsilon <= 2.0
    # what the ledger says still fits does fit, and just a little more does not
    fits = calibrate(Plan((PlannedRelease("g", "gaussian", 5),)), Budget(spent.fits_epsilon * (1 - 1e-9), 1e-6))
    more = calibrate(Plan((PlannedRelease("g", "gaussian", 5),)), Budget(spent.fits_epsilon * 1.001, 1e-6))
    with pytest.raises(BudgetRefused):
        ledger.reserve(more.event, "replace-one")
    ledger.reserve(fits.event, "replace-one")


@pytest.mark.parametrize("mode", ["mixed", "gaussian-only"])
def test_one_plan_takes_the_whole_cap(mode: str, any_address: str | None) -> None:
    ledger = Ledger(any_address, dataset="patients")
    ledger.set_cap(BUDGET, mode=mode)
    plan = calibrate(Plan((PlannedRelease("g", "gaussian", 100),)), BUDGET)
    assert ledger.spent().fits_epsilon == 2.0
    reservation = ledger.reserve(plan.event, "replace-one")
    spent = ledger.spent()
    assert spent.epsilon == pytest.approx(2.0)
    assert spent.epsilon <= 2.0
    assert reservation.charge == ledger.cap.limit
    assert spent.closed
    assert (spent.remaining, spent.fits_epsilon) == (0.0, 0.0)
    with pytest.raises(BudgetRefused, match="closed"):
        ledger.reserve(Gaussian(1e6), "replace-one")
    reservation.settle([ReleaseRecord("g", plan.plan.releases[0].event(plan.scale), forfeited=True, count=100)])
    with pytest.raises(BudgetRefused, match="closed"):  # forfeiting gives nothing back
        ledger.reserve(Gaussian(1e6), "replace-one")


def test_the_whole_cap_only_on_an_empty_data_set() -> None:
    whole = calibrate(Plan((PlannedRelease("g", "gaussian", 1),)), Budget(1.9, 1e-6)).event
    ledger = Ledger()
    ledger.set_cap(BUDGET)
    ledger.reserve(Gaussian(1e4), "replace-one")
    with pytest.raises(BudgetRefused):
        ledger.reserve(whole, "replace-one")
    before_the_cap = ledger.for_dataset("b")
    before_the_cap.reserve(Gaussian(1e4), "replace-one")
    before_the_cap.set_cap(BUDGET)
    with pytest.raises(BudgetRefused):
        before_the_cap.reserve(whole, "replace-one")
    too_much = ledger.for_dataset("c")
    too_much.set_cap(BUDGET)
    with pytest.raises(BudgetRefused):
        too_much.reserve(calibrate(Plan((PlannedRelease("g", "gaussian", 1),)), Budget(2.01, 1e-6)).event, "zero-out")


def test_gaussian_only_refuses_everything_else(any_address: str | None) -> None:
    ledger = Ledger(any_address, neighbours="zero-out")
    cap = ledger.set_cap(BUDGET, mode="gaussian-only")
    assert cap.order is None
    assert cap.limit == pytest.approx(BUDGET.mu**2)
    for event in (Laplace(1e3), Selection(1e3), PoissonGaussian(1e3, 0.1), RepeatAndSelect(Gaussian(1e3), 3.0)):
        with pytest.raises(BudgetRefused, match="not Gaussian"):
            ledger.reserve(Composed((Gaussian(1e3), event)), "zero-out")
    ledger.reserve(Gaussian(4.0), "zero-out")
    assert ledger.spent().epsilon == pytest.approx(composition.upper_epsilon(Gaussian(4.0), 1e-6)[0])
    other = ledger.for_dataset("b")
    other.reserve(Laplace(1e3), "zero-out")
    with pytest.raises(BudgetRefused, match="set a mixed cap"):
        other.set_cap(BUDGET, mode="gaussian-only")


def test_what_was_spent_before_counts(any_address: str | None) -> None:
    ledger = Ledger(any_address)
    ledger.reserve(Gaussian(4.0), "replace-one")
    with pytest.raises(BudgetRefused, match="has spent more than"):
        ledger.set_cap(Budget(0.5, 1e-6))
    assert ledger.cap is None
    cap = ledger.set_cap(BUDGET)
    assert ledger.spent().epsilon == pytest.approx(cap.epsilon(composition.renyi(Gaussian(4.0), cap.order)))
    ledger.reserve(Gaussian(5.0), "replace-one")
    both = Composed((Gaussian(4.0), Gaussian(5.0)))
    assert ledger.spent().epsilon == pytest.approx(cap.epsilon(composition.renyi(both, cap.order)))


def test_unbounded_events(any_address: str | None) -> None:
    ledger = Ledger(any_address)
    ledger.reserve(Composed((Gaussian(4.0), Unbounded("seeded noise"))), "replace-one")
    assert ledger.spent().unbounded
    assert ledger.spent().epsilon == math.inf
    json.dumps(ledger.export(), allow_nan=False)
    with pytest.raises(BudgetRefused, match="without a finite guarantee"):
        ledger.set_cap(BUDGET)
    capped = ledger.for_dataset("capped")
    capped.set_cap(BUDGET)
    for event in (Unbounded("paper"), RepeatAndSelect(Unbounded("x"), 2.0), Gaussian(1e-200), Selection(1e-200)):
        with pytest.raises(BudgetRefused, match="without a finite guarantee"):
            capped.reserve(event, "replace-one")
    assert not capped.spent().unbounded


def test_delta_reserve(any_address: str | None) -> None:
    ledger = Ledger(any_address)
    ledger.set_cap(BUDGET, delta_reserve=4e-7)
    ledger.reserve(ApproximateDP(0.05, 3e-7), "replace-one")
    with pytest.raises(BudgetRefused, match="delta reserve"):
        ledger.reserve(ApproximateDP(0.05, 2e-7), "replace-one")
    ledger.reserve(ApproximateDP(0.05, 0.9e-7), "replace-one")
    assert ledger.spent().epsilon <= 2.0
    none = ledger.for_dataset("b")
    none.set_cap(BUDGET)
    none.reserve(Gaussian(1e3), "replace-one")
    with pytest.raises(BudgetRefused, match="delta reserve"):
        none.reserve(ApproximateDP(0.05, 1e-12), "replace-one")


# ---------------------------------------------------------------------------------------- neighbours
def test_zero_out_is_restated_on_a_replace_one_ledger(any_address: str | None) -> None:
    ledger = Ledger(any_address)
    cap = ledger.set_cap(BUDGET)
    stated = Composed((Gaussian(40.0, 2.0), Gaussian(40.0, 1.0)))
    made = ledger.reserve(stated, "zero-out")
    charged = Composed((Gaussian(20.0), Gaussian(40.0)))
    assert made.charge == pytest.approx(composition.renyi(charged, cap.order))
    made.settle([ReleaseRecord("sum", Gaussian(40.0, 2.0)), ReleaseRecord("count", Gaussian(40.0, 1.0))])
    with pytest.raises(Unsupported, match="zero-out only"):
        ledger.reserve(PoissonGaussian(10.0, 0.1), "zero-out")
    with pytest.raises(Unsupported, match="zero-out only"):  # saying so does not make it true
        ledger.reserve(Repeat(PoissonGaussian(10.0, 0.1), 2), "replace-one")


def test_replace_one_is_charged_as_it_is_on_a_zero_out_ledger(any_address: str | None) -> None:
    ledger = Ledger(any_address, neighbours="zero-out")
    cap = ledger.set_cap(BUDGET)
    assert ledger.reserve(Gaussian(40.0), "replace-one").charge == pytest.approx(cap.order / 3200.0)
    made = ledger.reserve(Repeat(PoissonGaussian(10.0, 0.01), 100), "zero-out")
    # the amplified cost, far below that of the same noise without sampling
    assert made.charge < 0.1 * composition.renyi(Repeat(Gaussian(10.0), 100), cap.order)


def test_the_relation_is_fixed_at_creation(address: str) -> None:
    assert Ledger(address, neighbours="zero-out").neighbours is Neighbours.ZERO_OUT
    assert Ledger(address).neighbours is Neighbours.ZERO_OUT
    assert Ledger(address, neighbours="zero-out").spent().neighbours is Neighbours.ZERO_OUT
    with pytest.raises(InvalidInput, match="created for 'zero-out'"):
        Ledger(address, neighbours="replace-one")


# ---------------------------------------------------------------------------------------- what is in it
def test_spent_without_a_cap(any_address: str | None) -> None:
    ledger = Ledger(any_address)
    assert ledger.spent().epsilon == 0.0
    small(ledger, 2)
    everything = Repeat(Gaussian(60.0), 20)
    spent = ledger.spent()
    assert spent.epsilon == pytest.approx(composition.upper_epsilon(everything, 1e-6)[0])
    assert ledger.spent(delta=1e-3).epsilon == pytest.approx(composition.upper_epsilon(everything, 1e-3)[0])
    assert (spent.cap, spent.remaining, spent.fits_epsilon, spent.delta) == (None, None, None, 1e-6)
    assert (spent.n_fits, spent.reserved_unsettled, spent.closed) == (2, 0, False)


def test_spent_at_another_delta_than_the_cap() -> None:
    ledger = Ledger()
    ledger.set_cap(BUDGET, delta_reserve=1e-7)
    small(ledger)
    assert ledger.spent(delta=1e-5).epsilon < ledger.spent().epsilon < ledger.spent(delta=5e-7).epsilon
    assert ledger.spent(delta=1e-7).epsilon == math.inf


def test_data_sets_are_apart(any_address: str | None) -> None:
    ledger = Ledger(any_address, dataset="b")
    small(ledger)
    small(ledger.for_dataset("a"), 2)
    assert ledger.datasets() == ["a", "b"]
    assert ledger.for_dataset("a").dataset == "a"
    assert (ledger.spent().n_fits, ledger.for_dataset("a").spent().n_fits) == (1, 2)
    assert len(ledger.entries()) == 1 + 3 * 3
    assert len(ledger.entries("b")) == 3
    ledger.for_dataset("a").reserve(SMALL, "replace-one")
    assert len(ledger.unsettled("a")) == 1
    assert ledger.unsettled("b") == []


def test_export_is_plain_json(any_address: str | None) -> None:
    ledger = Ledger(any_address, dataset="a")
    ledger.set_cap(BUDGET)
    small(ledger)
    exported = json.loads(json.dumps(ledger.export(), allow_nan=False))
    assert exported["head"] == ledger.head
    assert exported["datasets"][0]["epsilon"] == ledger.spent().epsilon
    assert [row["kind"] for row in exported["entries"]] == ["created", "cap", "reserve", "release", "settle"]


# ---------------------------------------------------------------------------------------- recognised data
def test_a_renamed_copy_is_charged_where_it_is_known(any_address: str | None) -> None:
    data = (np.arange(12.0).reshape(4, 3), [1.0, 0.0, 1.0, 0.0])
    ledger = Ledger(any_address, dataset="a")
    mark = ledger.fingerprint(*data)
    ledger.set_cap(BUDGET)
    ledger.reserve(SMALL, "replace-one", fingerprint=mark)
    other = ledger.for_dataset("b")
    with pytest.warns(DataSetRenamed) as caught:
        made = other.reserve(SMALL, "replace-one", fingerprint=other.fingerprint(*data))
    assert mark not in str(caught[0].message)
    assert made.dataset == "a"
    assert (ledger.spent().n_fits, other.spent().n_fits) == (2, 0)
    made.settle(SMALL_RELEASES)
    # data sets grow: a new fingerprint under a known name is fine, and both are known from then on
    grown = ledger.fingerprint(np.arange(15.0).reshape(5, 3))
    assert ledger.reserve(SMALL, "replace-one", fingerprint=grown).dataset == "a"
    with pytest.raises(InvalidInput, match="rows and columns"):
        ledger.fingerprint(np.arange(3.0))
    for known in (mark, grown):
        with pytest.warns(DataSetRenamed):
            assert other.reserve(SMALL, "replace-one", fingerprint=known).dataset == "a"
    for text in (json.dumps(ledger.export()), repr(ledger), repr(ledger.entries()), repr(made)):
        assert mark not in text
        assert grown not in text


def test_an_uncapped_name_does_not_bypass_a_cap() -> None:
    ledger = Ledger(dataset="a")
    ledger.reserve(SMALL, "replace-one", fingerprint="f")
    other = ledger.for_dataset("b")
    other.set_cap(BUDGET)
    with pytest.raises(BudgetRefused, match="set the cap on 'a'"):
        other.reserve(SMALL, "replace-one", fingerprint="f")
    ledger.set_cap(BUDGET)
    with pytest.raises(BudgetRefused, match="would bypass the cap of 'b': give them as 'a'"):
        other.reserve(SMALL, "replace-one", fingerprint="f")
    assert ledger.reserve(SMALL, "replace-one", fingerprint="f").dataset == "a"


def test_a_cap_that_another_process_sets_holds_for_a_handle_that_was_made_before(
    address: str, child: Callable[..., subprocess.Popen[str]]
) -> None:
    ledger = Ledger(address, dataset="a")
    ledger.recognising("f").reserve(SMALL, "replace-one")
    book = ledger.for_dataset("b").recognising("f").for_dataset("a")
    script = "import sys; from dperm import *; Ledger(sys.argv[1], dataset='b').set_cap(Budget(0.5, 1e-6))"
    assert child(script, address).wait(timeout=60) == 0
    with pytest.raises(BudgetRefused, match="set the cap on 'a'"):
        book.reserve(SMALL, "replace-one", fingerprint="g")
    assert ledger.spent().n_fits == 1
    assert ledger.known_as("g") is None


# ---------------------------------------------------------------------------------------- shared, never copied
class _Estimator(BaseEstimator):
    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger


def test_copies_are_the_same_ledger(any_address: str | None) -> None:
    ledger = Ledger(any_address)
    assert copy.copy(ledger) is ledger
    assert copy.deepcopy({"a": [ledger]})["a"][0] is ledger
    assert clone(_Estimator(ledger)).ledger is ledger


def test_pickles_as_its_address(address: str) -> None:
    ledger = Ledger(address, dataset="patients")
    small(ledger)
    again = pickle.loads(pickle.dumps(ledger))
    assert (again.dataset, again.head, again.neighbours) == ("patients", ledger.head, ledger.neighbours)
    small(again)
    assert ledger.spent().n_fits == 2
    open_reservation = pickle.loads(pickle.dumps(ledger.reserve(SMALL, "replace-one")))
    open_reservation.settle(SMALL_RELEASES)
    assert ledger.spent().reserved_unsettled == 0


def test_a_ledger_in_memory_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="in memory cannot be pickled"):
        pickle.dumps(Ledger())


def test_unpickling_never_starts_a_second_ledger(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    frozen = pickle.dumps(Ledger(path))
    path.unlink()
    with pytest.raises(LedgerUnreadable, match="no ledger at"):
        pickle.loads(frozen)
    assert not path.exists()


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = Ledger("budget.db")
    for same in (
        tmp_path / "budget.db",
        str(tmp_path / "budget.db"),
        f"sqlite:///{tmp_path}/budget.db",
        "sqlite:///budget.db",
    ):
        assert Ledger(same).head == one.head
    monkeypatch.chdir("/")
    small(one)  # a change of folder does not lead to another file
    assert Ledger(tmp_path / "budget.db").head == one.head
    for wrong in ("mysql://host/db", "sqlite://", "", 3):
        with pytest.raises(InvalidInput):
            Ledger(wrong)  # type: ignore[arg-type]


def test_repr_and_defaults(own_home: Path) -> None:
    assert repr(Ledger(dataset="a")) == "<Ledger 'the ledger in memory', dataset='a', neighbours='replace-one'>"
    assert Ledger.default_path() == own_home / "ledger.db"
    assert not Ledger.default_path().exists()
    assert Ledger(Ledger.default_path(), dataset="a").address == str(own_home / "ledger.db")
    assert isinstance(Ledger().set_cap(BUDGET), Cap)
