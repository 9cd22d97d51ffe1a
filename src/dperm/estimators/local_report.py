"""What a collection of one-bit reports costs, written to a ledger and to the report of a fit.

Proof: ``local.proof.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dperm
from dperm.errors import InvalidInput
from dperm.privacy.events import Composed, Event, Unbounded
from dperm.privacy.guarantee import Accounting, Guarantee
from dperm.privacy.ledger import Ledger, ReleaseRecord, Reservation
from dperm.privacy.neighbours import Neighbours
from dperm.privacy.randomness import RandomSource
from dperm.privacy.report import PrivacyReport, ReleaseLine
from dperm.solvers.local import Task

__all__ = ["checked_ledger", "collection_charged", "local_report", "task_charged"]

ONCE = "each person reports once for this task"
HONEST = "every person's device follows the task's schema with good randomness"
NOT_COVERED = (
    "who takes part, and when a report is sent",
    "people who report on the same facts in other tasks: the epsilons add up",
    "an attacker who breaks AES-256 or reads a person's device",
)
_SEEDED = "insecure_seed makes the bits reproducible"


def checked_ledger(ledger: Any) -> Ledger | None:
    """Refuse what is not a ledger."""
    if not isinstance(ledger, Ledger | None):
        raise InvalidInput(f"ledger must be a Ledger or None, not {type(ledger).__name__}.")
    return ledger


@contextmanager
def collection_charged(
    ledger: Ledger | None, task: Task, source: RandomSource, fingerprint: str | None = None
) -> Iterator[dict[str, Any]]:
    """Charge a collection that is about to be simulated, and settle it; yields what a report says of the ledger.

    Every simulation draws new bits, so every one is charged.
    """
    books = Ledger() if ledger is None else ledger
    event: Event = task.bit.event
    records = [ReleaseRecord("reports, one per person", event)]
    if not source.secure:
        event = Composed((event, Unbounded(_SEEDED)))
        records.append(ReleaseRecord("no guarantee", Unbounded(_SEEDED)))
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


def task_charged(ledger: Ledger | None, task: Task) -> dict[str, Any]:
    """Charge a task's reports to the people's data set, once however often they are counted or fitted.

    Reports that are out cannot be called back: charge the task before anybody is asked if the cap is to stop it.
    """
    if ledger is None:
        return {}
    purpose = f"reports of task {task.digest}"
    before = ledger.spent()
    if any(entry.get("purpose") == purpose for entry in ledger.entries(ledger.dataset)):
        return _about(ledger, ledger.dataset, None, before.epsilon)
    reservation = ledger.reserve(task.bit.event, Neighbours.REPLACE_ONE, purpose)
    reservation.settle([ReleaseRecord("reports, one per person", task.bit.event)])
    return _about(ledger, ledger.dataset, reservation, before.epsilon)


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
    source: RandomSource | None,
    ledger: dict[str, Any],
) -> PrivacyReport:
    """Write the report of an estimate from one-bit reports; ``source`` is None if people's devices sent them."""
    bit = task.bit
    secure = source is None or source.secure
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
    if source is None:
        randomness = "that of the people's devices"
    else:
        randomness = "AES-256-CTR keyed by the operating system" if secure else "insecure seed (reproducible)"
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
