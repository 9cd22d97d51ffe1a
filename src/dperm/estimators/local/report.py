"""Charges of local collections to a ledger, and the privacy report of a fit from their counts.

Proof: ``linear_models.proof.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dperm
from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import Composed, Event, Unbounded, event_to_dict
from dperm.privacy.accounting.guarantee import Accounting, Guarantee
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger, ReleaseRecord
from dperm.privacy.randomness import RandomSource
from dperm.reporting.report import PrivacyReport, ReleaseLine
from dperm.solvers.local import Counts, DescentState, LocalDescent, Task
from dperm.validation import whole

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

#: per ledger, data set and task or descent: the collections that this process has seen, none of them part of another
_seen: dict[tuple[str, str, str], list[Counts | DescentState]] = {}


@contextmanager
def charge_simulation(
    ledger: Ledger | None, task: Task, source: RandomSource, fingerprint: str | None = None
) -> Iterator[dict[str, Any]]:
    """Charge a simulated collection before its bits are drawn; yields the ledger's part of the report.

    Every simulation draws new bits, so every simulation is charged.
    """
    charged = Ledger() if ledger is None else ledger
    event, records = _event(task, source.secure)
    reservation = charged.reserve(
        event, Neighbours.REPLACE_ONE, f"simulated reports of task {task.digest[:16]}", fingerprint
    )
    about: dict[str, Any] = {}
    try:
        yield about
    finally:  # after an error too: what was reserved stays spent
        reservation.settle(records)
        about.update(charged.for_report(reservation))


def check_people(ledger: Ledger | None, n_reports: int, n_people: int | None) -> int:
    """Return the number of people behind the reports; refuses more reports than people.

    With a ledger ``n_people`` is required, because one charge covers one report per person and no more.
    """
    if n_people is None:
        if ledger is not None:
            raise InvalidInput(
                "n_people is missing: say how many people were asked, because the ledger is charged for one report per "
                "person."
            )
        return n_reports
    people = whole("n_people", n_people)
    if n_reports > people:
        raise InvalidInput(
            f"there are {n_reports} reports from {people} people, so somebody reported more than once for this task, "
            "which costs epsilon each time: ask again under another version or window, which has a charge of its own."
        )
    return people


def check_collection(ledger: Ledger | None, collected: Counts | DescentState, n_people: int | None) -> int:
    """Return the number of people behind counts or the state of a descent; refuses more reports than people.

    Counts of a task grow by addition, and a descent continues round by round. If of two collections neither contains
    the other, they have different reports. With a ledger, all different reports that this process has seen for the task
    must not exceed one per person (:func:`check_people`).
    """
    people = check_people(ledger, collected.n_people, n_people)
    if ledger is None:
        return people
    asked = collected.task if isinstance(collected, Counts) else collected.descent
    # the identity of the ledger itself, so that two handles on one file count as one ledger
    key = str(ledger.entries()[0]["ledger"]), ledger.dataset, asked
    seen = _seen.get(key, [])
    if any(_contains(before, collected) for before in seen):
        return people
    separate = [*(before for before in seen if not _contains(collected, before)), collected]
    check_people(ledger, sum(part.n_people for part in separate), n_people)
    _seen[key] = separate
    return people


def _contains(larger: Counts | DescentState, part: Counts | DescentState) -> bool:
    """Whether no cell of ``part`` exceeds that of ``larger``, or ``part`` is an earlier state of the same descent."""
    if isinstance(larger, Counts) and isinstance(part, Counts):
        return bool((larger.by_answer >= part.by_answer).all())
    if isinstance(larger, DescentState) and isinstance(part, DescentState):
        return part == larger or part.round == 0 or _continues(part, larger)
    return False


def _continues(earlier: DescentState, later: DescentState) -> bool:
    """Whether a later state includes the rounds of an earlier one; the variances of a round identify its reports."""
    same = later.delay == earlier.delay and later.variances[: earlier.round] == earlier.variances
    return earlier.round < later.round and earlier.n_people <= later.n_people and same


def charge_task(
    ledger: Ledger | None, asked: Task | LocalDescent, n_people: int, *, secure: bool = True
) -> dict[str, Any]:
    """Charge the reports of a task, or of all rounds of a descent, once, however often they are counted or fitted.

    Reports that were sent cannot be withdrawn: to let the cap of the ledger stop a collection, charge before anybody is
    asked.

    Parameters
    ----------
    ledger : Ledger or None
        Where to charge; without a ledger nothing happens.
    asked : Task or LocalDescent
        The task or descent; each person answers once, in a descent in one of its rounds.
    n_people : int
        Upper bound on the number of people; part of the charge, so that another number is charged again.
    secure : bool
        Whether the devices' randomness is secure, ``Counts.secure``; if not, the charge is unbounded.
    """
    if ledger is None:
        return {}
    event, records = _event(asked, secure)
    what = "task" if isinstance(asked, Task) else "descent"
    purpose = f"reports of {what} {asked.digest} from at most {n_people} people"
    same = {"kind": "reserve", "purpose": purpose, "neighbours": str(Neighbours.REPLACE_ONE)}
    stored = json.loads(json.dumps(event_to_dict(event)))
    for entry in ledger.entries(ledger.dataset):
        # the same purpose is not enough: the charged event must be the one that these reports cost
        if entry.get("event") == stored and all(entry.get(key) == value for key, value in same.items()):
            return ledger.for_report()
    reservation = ledger.reserve(event, Neighbours.REPLACE_ONE, purpose)
    reservation.settle(records)
    return ledger.for_report(reservation)


def _event(asked: Task | LocalDescent, secure: bool) -> tuple[Event, list[ReleaseRecord]]:
    """The event of one report per person, and its release records."""
    event: Event = asked.bit.event
    records = [ReleaseRecord(_REPORTS, event)]
    if secure:
        return event, records
    unbounded = Unbounded(_SEEDED)
    return Composed((event, unbounded)), [*records, ReleaseRecord("no guarantee", unbounded)]


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
    """Return the privacy report of an estimate from one-bit reports, ``simulated`` or sent by people's devices."""
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
