"""Reservations: how a plan is checked, charged and written to the ledger, and how its releases are recorded.

Everything here is decided inside the transaction that writes the rows: which data set is charged, whether the plan
fits its cap, and whether the settled releases are the reserved ones.
"""

from __future__ import annotations

import getpass
import itertools
import json
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dperm.errors import BudgetRefused, DataSetRenamed, DataSetResembles, InvalidInput, LedgerError, PlanViolation
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import Event, event_from_dict, event_to_dict, restate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import chain
from dperm.privacy.ledger.cap import Cap, admit, charge
from dperm.privacy.ledger.recognition import Comparison, dataset_to_charge, refusal, resembling
from dperm.privacy.ledger.state import FORMAT, Account, LedgerState, ReservationEntry

if TYPE_CHECKING:
    from dperm.privacy.ledger.ledger import Ledger

__all__ = [
    "DataOrigin",
    "Decision",
    "Payload",
    "ReleaseRecord",
    "Reservation",
    "alias_row",
    "as_stored",
    "cap_row",
    "check_dataset_name",
    "check_releases",
    "created_row",
    "now",
    "reservation_decision",
    "settle_rows",
    "unsettled_reservation",
]

Payload = dict[str, Any]
#: turns the newest state into the rows to write and the reservation they describe
Decision = Callable[[LedgerState], tuple[list[Payload], ReservationEntry]]


# ------------------------------------------------------------------------------------------ what callers handle
@dataclass(frozen=True)
class ReleaseRecord:
    """One release that was made, or that was planned and forfeited; ``count`` of them if they are identical.

    A forfeited release was reserved but never made. It stays charged.
    """

    query: str
    event: Event
    forfeited: bool = False
    count: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not isinstance(self.event, Event):
            raise InvalidInput("a release record needs the name of its query and its event.")
        if self.count != int(self.count) or self.count < 1:
            raise InvalidInput(f"count of a release record must be a whole number >= 1, not {self.count!r}.")


@dataclass(frozen=True)
class Reservation:
    """A plan that is charged and may now be carried out.

    Attributes
    ----------
    id
        Name under which :meth:`Ledger.resume` finds it after a crash.
    dataset
        The data set that was charged. It differs from the requested one if the ledger knows the data by another name.
    event
        What was reserved, under ``neighbours``.
    charge
        What the cap was charged; None without a cap.
    """

    id: str
    dataset: str
    event: Event
    neighbours: Neighbours
    purpose: str
    charge: float | None
    time: str
    ledger: Ledger = field(repr=False, compare=False)

    def settle(self, releases: Iterable[ReleaseRecord]) -> None:
        """Record every release of the plan, in order, in one committed transaction.

        Raises
        ------
        PlanViolation
            The releases are not exactly those that were reserved; nothing is written.
        LedgerError
            The reservation is settled already.
        """
        self.ledger._settle(self, releases)


@dataclass(frozen=True)
class DataOrigin:
    """By which fingerprints and name the data of a ledger handle are known.

    Attributes
    ----------
    fingerprints
        Fingerprints in addition to that of the rows, such as that of the file.
    given_as
        The name by which the caller gave the data, if the handle charges another one. The cap of this name applies
        too.
    reservation_ids
        Collects the id of each reservation before it is written, so that after an interruption at any point the
        ledger's rows show whether it was made. None collects nothing.
    """

    fingerprints: tuple[str, ...] = ()
    given_as: str | None = None
    reservation_ids: list[str] | None = None


# ------------------------------------------------------------------------------------------ deciding
def reservation_decision(
    dataset: str,
    origin: DataOrigin,
    fingerprint: str | None,
    event: Event,
    neighbours: str | Neighbours,
    ledger_neighbours: Neighbours,
    purpose: str,
    requested: Budget | None,
    comparison: Comparison,
) -> Decision:
    """Return the function that decides, inside the transaction, on a reservation of ``event`` for ``dataset``."""
    stated = Neighbours.parse(neighbours)
    event = as_stored(event)
    if stated is Neighbours.REPLACE_ONE:
        restate(event, Neighbours.ZERO_OUT, stated)  # refuses events that have no replace-one proof at all
    charged = restate(event, stated, ledger_neighbours)
    unbounded = composition.is_unbounded(charged)
    # the file's fingerprint comes first: the name under which it is known is the one the handle was opened with
    fingerprints = [*origin.fingerprints, *(() if fingerprint is None else (fingerprint,))]
    given = [dataset] if origin.given_as is None else [origin.given_as, dataset]

    def decide(state: LedgerState) -> tuple[list[Payload], ReservationEntry]:
        name = dataset_to_charge(state, given, fingerprints)
        account = state.account(name)
        alike = resembling(state, name, fingerprints, comparison.key)
        if alike and comparison.refuse:
            raise refusal(alike, given[0], name)
        try:
            cost = None if account.cap is None else admit(account.cap, charged, account.past_charges())
        except BudgetRefused as error:
            error.renamed = None if name == given[0] else (given[0], name)
            raise
        entry = ReservationEntry(uuid.uuid4().hex, name, event, charged, stated, str(purpose), cost, unbounded, now())
        new = [alias_row(name, one, entry.time) for one in fingerprints if state.owner(one) is None]
        if name != dataset:
            # inside the transaction: where warnings are errors, nothing is written
            warnings.warn(
                f"the data given as {dataset!r} are known to the ledger as {name!r}, which is charged.",
                DataSetRenamed,
                stacklevel=4,
            )
        for one in alike:
            warnings.warn(DataSetResembles(one.sentence(given[0], name), one.dataset), stacklevel=4)
        if origin.reservation_ids is not None:
            origin.reservation_ids.append(entry.id)
        return [*new, reserve_row(entry, requested, given[0])], entry

    return decide


def unsettled_reservation(state: LedgerState, reservation_id: str) -> ReservationEntry:
    """Return a reservation that is not settled yet; refuse any other."""
    entry = state.reservations.get(reservation_id)
    if entry is None:
        raise LedgerError(f"the ledger has no reservation {reservation_id!r}.")
    if entry.id not in state.account(entry.dataset).unsettled:
        raise LedgerError(f"reservation {entry.id} of data set {entry.dataset!r} is settled already.")
    return entry


def check_releases(reserved: Event, records: Sequence[ReleaseRecord]) -> None:
    """Refuse records whose leaf events are not exactly the reserved ones.

    The counts of the records are added here, not by the fold of :mod:`~dperm.privacy.accounting.composition`, so that a
    fold that loses a count is noticed.
    """
    made: Counter[Event] = Counter()
    for record in records:
        for leaf, times in composition.leaves(record.event).items():
            made[leaf] += times * record.count
    planned = Counter(composition.leaves(reserved))
    if made != planned:
        extra, missing = (made - planned).total(), (planned - made).total()
        raise PlanViolation(
            f"the releases are not those that were reserved ({extra} not planned, {missing} planned but neither made "
            "nor forfeited): nothing was settled, and the whole reservation stays spent."
        )


def check_dataset_name(dataset: str) -> str:
    """Return the name of a data set if it is a valid one."""
    if not isinstance(dataset, str) or not dataset.strip() or not dataset.isprintable() or len(dataset) > 200:
        raise InvalidInput("the name of a data set must be printable text of 1 to 200 characters.")
    return dataset


def as_stored(event: Event) -> Event:
    """Return the event as it will be read back, so that the charge is that of the written event."""
    if not isinstance(event, Event):
        raise InvalidInput(f"a ledger records events, not {type(event).__name__}.")
    return event_from_dict(json.loads(chain.canonical(event_to_dict(event))))


# ------------------------------------------------------------------------------------------ rows
def now() -> str:
    """Time of a row: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def created_row(ledger_id: str, neighbours: Neighbours) -> Payload:
    """First row of a ledger."""
    return {
        "kind": "created",
        "format": FORMAT,
        "ledger": ledger_id,
        "neighbours": str(neighbours),
        "time": now(),
    }


def alias_row(dataset: str, fingerprint: str, time: str) -> Payload:
    """Row of a fingerprint seen with a data set for the first time, with the table's sealed sketch if there is one."""
    row = {"kind": "alias", "dataset": dataset, "fingerprint": str(fingerprint), "time": time}
    sealed = getattr(fingerprint, "sealed", None)
    return row if sealed is None else {**row, "sketch": sealed}


def reserve_row(entry: ReservationEntry, requested: Budget | None, given_as: str) -> Payload:
    """Row of a reservation; ``by``, ``requested`` and ``given_as`` inform the owner and change no figure.

    The name by which the data were given is written only where another one is charged.
    """
    renamed = {} if given_as == entry.dataset else {"given_as": given_as}
    return {
        "kind": "reserve",
        "id": entry.id,
        "dataset": entry.dataset,
        "event": event_to_dict(entry.event),
        "neighbours": str(entry.neighbours),
        "purpose": entry.purpose,
        "by": _user(),
        "requested": None if requested is None else {"epsilon": requested.epsilon, "delta": requested.delta},
        "charge": entry.charge.amount if entry.charge else None,
        "delta": entry.charge.delta if entry.charge else None,
        "closes": entry.charge.closes if entry.charge else False,
        "unbounded": entry.unbounded,
        "time": entry.time,
        **renamed,
    }


def _user() -> str:
    """Login name of the current user, as the operating system reports it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


def settle_rows(entry: ReservationEntry, records: Sequence[ReleaseRecord]) -> list[Payload]:
    """One row per release (consecutive identical ones share a row with their count), and the settling row."""
    common = {"dataset": entry.dataset, "reservation": entry.id, "time": now()}
    rows = [
        {
            "kind": "release",
            "query": query,
            "event": event_to_dict(event),
            "forfeited": forfeited,
            "count": sum(one.count for one in group),
            **common,
        }
        for (query, event, forfeited), group in itertools.groupby(
            records, key=lambda one: (one.query, one.event, one.forfeited)
        )
    ]
    return [*rows, {"kind": "settle", **common}]


def cap_row(cap: Cap, account: Account) -> Payload:
    """Row of a cap, with the charge of what was spent before it; refuses a cap that is exceeded already."""
    return {
        "kind": "cap",
        "dataset": account.dataset,
        "time": now(),
        **cap.to_dict(),
        **_charge_before_cap(cap, account),
    }


def _charge_before_cap(cap: Cap, account: Account) -> Payload:
    """Charge a new cap with what was spent before it."""
    name = account.dataset
    if account.unbounded:
        raise BudgetRefused(f"data set {name!r} has releases without a finite guarantee: no cap can hold them", name)
    cost = charge(cap, account.total_event())
    if cost is None:
        raise BudgetRefused(f"data set {name!r} has releases that are not Gaussian: set a mixed cap", name)
    if cost.amount > cap.limit or cost.delta > cap.delta_reserve:
        raise BudgetRefused(
            f"data set {name!r} has spent more than epsilon={cap.budget.epsilon:g} at "
            f"delta={cap.budget.delta:g} already: set a larger cap",
            dataset=name,
        )
    return {"carried": cost.amount, "carried_delta": cost.delta}
