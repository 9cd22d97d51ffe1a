"""What a collection of one-bit reports costs, written to a ledger and to the report of a fit.

Proof: ``linear_models.proof.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import dperm
from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import Composed, Event, Unbounded, event_to_dict
from dperm.privacy.accounting.guarantee import Accounting, Guarantee
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger, ReleaseRecord, Reservation
from dperm.privacy.randomness import RandomSource
from dperm.reporting.report import PrivacyReport, ReleaseLine
from dperm.solvers.local import Counts, DescentState, LocalDescent, Task

__all__ = [
    "charge_simulation",
    "charge_task",
    "check_collection",
    "check_people",
    "local_report",
]

ONCE = "each person reports once for this task"
HONEST = "every person's device follows the task's schema with good randomness"
NOT_COVERED = (
    "who takes part, and when a report is sent",
    "people who report on the same facts in other tasks: the epsilons add up",
    "an attacker who breaks AES-256 or reads a person's device",
)
_SEEDED = "insecure_seed makes the bits reproducible"
_REPORTS = "reports, one per person"

#: per ledger, data set and task or descent, what this process has met of it and is no part of one another
_met: dict[tuple[str, str, str], list[Counts | DescentState]] = {}


@contextmanager
def charge_simulation(
    ledger: Ledger | None, task: Task, source: RandomSource, fingerprint: str | None = None
) -> Iterator[dict[str, Any]]:
    """Charge a collection that is about to be simulated, and settle it; yields what a report says of the ledger.

    Every simulation draws new bits, so every one is charged.
    """
    books = Ledger() if ledger is None else ledger
    event, records = _event(task, source.secure)
    before = books.spent()
    reservation = books.reserve(
        event, Neighbours.REPLACE_ONE, f"simulated reports of task {task.digest[:16]}", fingerprint
    )
    about: dict[str, Any] = {}
    try:
        yield about
    finally:  # also after an error: what was reserved stays spent
        reservation.settle(records)
        known = before.dataset == reservation.dataset
        about.update(_about(books, reservation.dataset, reservation, before.epsilon if known else None))


def check_people(ledger: Ledger | None, n_reports: int, n_people: int | None) -> int:
    """Return the number of people behind the reports; refuses more reports than people.

    With a ledger it must be stated: one charge covers one report per person and no more.
    """
    if n_people is None:
        if ledger is not None:
            raise InvalidInput(
                "say how many people were asked, n_people=...: the ledger is charged for one report per person."
            )
        return n_reports
    if isinstance(n_people, bool) or not isinstance(n_people, int | np.integer) or n_people < 1:
        raise InvalidInput(f"n_people must be a whole number of 1 or more, not {n_people!r}.")
    if n_reports > n_people:
        raise InvalidInput(
            f"there are {n_reports} reports of {n_people} people: somebody reported more than once for this task, "
            "which costs epsilon each time; ask again under another version or window, which is charged for itself."
        )
    return int(n_people)


def check_collection(ledger: Ledger | None, found: Counts | DescentState, n_people: int | None) -> int:
    """Return the number of people behind counts or a descent's state, all that was met of the task taken together.

    Counts of a task grow by addition, and a descent goes on round by round. Two of which neither is part of the other
    hold reports of different collections, or of different collectors: with a ledger, all that this process has met must
    not be more than one per person (:func:`check_people`).
    """
    people = check_people(ledger, found.n_people, n_people)
    if ledger is None:
        return people
    asked = found.task if isinstance(found, Counts) else found.descent
    # the number that a ledger was created with: handles on one file are one ledger
    key = str(ledger.entries()[0]["ledger"]), ledger.dataset, asked
    met = _met.get(key, [])
    if any(_holds(before, found) for before in met):
        return people
    apart = [*(before for before in met if not _holds(found, before)), found]
    check_people(ledger, sum(part.n_people for part in apart), n_people)
    _met[key] = apart
    return people


def _holds(whole: Counts | DescentState, part: Counts | DescentState) -> bool:
    """Whether every cell of ``part`` is within that of ``whole``, or a state is an earlier one of the same descent."""
    if isinstance(whole, Counts) and isinstance(part, Counts):
        return bool((whole.by_answer >= part.by_answer).all())
    if isinstance(whole, DescentState) and isinstance(part, DescentState):
        return part == whole or part.round == 0 or _goes_on(part, whole)
    return False


def _goes_on(earlier: DescentState, later: DescentState) -> bool:
    """Whether a later state has the rounds of an earlier one: variances are estimated from every round's reports."""
    same = later.delay == earlier.delay and later.variances[: earlier.round] == earlier.variances
    return earlier.round < later.round and earlier.n_people <= later.n_people and same


def charge_task(
    ledger: Ledger | None, asked: Task | LocalDescent, n_people: int, *, secure: bool = True
) -> dict[str, Any]:
    """Charge the reports of a task, or of all rounds of a descent, once however often they are counted or fitted.

    Reports that are out cannot be called back: charge before anybody is asked if the cap is to stop it.

    Parameters
    ----------
    ledger : Ledger or None
        Where to charge; nothing happens without one.
    asked : Task or LocalDescent
        What people are asked, each of them once: in a descent in one of its rounds.
    n_people : int
        Bound on the number of people; part of the charge, so that another one is charged anew.
    secure : bool
        Whether the devices' randomness is good, ``Counts.secure``; if not, nothing bounds what is charged.
    """
    if ledger is None:
        return {}
    event, records = _event(asked, secure)
    what = "task" if isinstance(asked, Task) else "descent"
    purpose = f"reports of {what} {asked.digest} from at most {n_people} people"
    before = ledger.spent()
    same = {"kind": "reserve", "purpose": purpose, "neighbours": str(Neighbours.REPLACE_ONE)}
    stored = json.loads(json.dumps(event_to_dict(event)))
    for entry in ledger.entries(ledger.dataset):
        # the words alone prove nothing: what was charged must be what these reports cost
        if entry.get("event") == stored and all(entry.get(key) == value for key, value in same.items()):
            return _about(ledger, ledger.dataset, None, before.epsilon)
    reservation = ledger.reserve(event, Neighbours.REPLACE_ONE, purpose)
    reservation.settle(records)
    return _about(ledger, ledger.dataset, reservation, before.epsilon)


def _event(asked: Task | LocalDescent, secure: bool) -> tuple[Event, list[ReleaseRecord]]:
    """What everybody's one report costs, and how it is recorded."""
    event: Event = asked.bit.event
    records = [ReleaseRecord(_REPORTS, event)]
    if secure:
        return event, records
    unbounded = Unbounded(_SEEDED)
    return Composed((event, unbounded)), [*records, ReleaseRecord("no guarantee", unbounded)]


def _about(ledger: Ledger, dataset: str, reservation: Reservation | None, spent_before: float | None) -> dict[str, Any]:
    after = ledger.for_dataset(dataset).spent()
    return {
        "dataset": dataset,
        "reservation": None if reservation is None else reservation.id,
        "neighbours": str(after.neighbours),
        "spent_before": spent_before,
        "spent_after": after.epsilon,
        "delta": after.delta,
        "head": ledger.head,
    }


def local_report(
    task: Task,
    n_people: int,
    public: dict[str, Any],
    assumptions: tuple[str, ...],
    ledger: dict[str, Any],
    *,
    simulated: bool,
    secure: bool,
) -> PrivacyReport:
    """Write the report of an estimate from one-bit reports, ``simulated`` ones or those that people's devices sent."""
    bit = task.bit
    guarantee = Guarantee(
        epsilon=bit.epsilon,
        delta=0.0,
        neighbours=Neighbours.REPLACE_ONE,
        view="transcript",
        assumptions=(ONCE, HONEST, *assumptions),
        looseness=max(0.0, bit.epsilon - bit.epsilon_realised),
    )
    line = ReleaseLine(
        query=f"report for task {task.digest[:12]}, one per person",
        kind=bit.kind,
        count=1,
        forfeited=0,
        noise_multiplier=bit.gain / 2.0,
        sensitivity=None,
        noise_scale=None,
        size=1,
        audience="everyone, the collector included",
    )
    if not secure:
        randomness = "insecure seed (reproducible)"
    else:
        randomness = "AES-256-CTR keyed by the operating system" if simulated else "that of the people's devices"
    return PrivacyReport(
        planned=Accounting(bit.epsilon, 0.0, guarantee.looseness, "likelihood ratio on the lattice of 2^-32"),
        guarantee=guarantee if secure else None,
        reason=None if secure else _SEEDED + ".",
        releases=(line,),
        public={"people": n_people, "statistics": task.sketch.size, "task": task.digest, **public},
        arithmetic="probabilities of bits are whole multiples of 2^-32",
        randomness=randomness,
        ledger=ledger,
        version=dperm.__version__,
        not_covered=NOT_COVERED,
    )
