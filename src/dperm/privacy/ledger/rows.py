"""The rows a ledger writes, and what is checked before it writes them."""

from __future__ import annotations

import getpass
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dperm.errors import BudgetRefused, InvalidInput, LedgerError, PlanViolation
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import Event, event_from_dict, event_to_dict
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import chain
from dperm.privacy.ledger.cap import Cap, charge
from dperm.privacy.ledger.records import ReleaseRecord
from dperm.privacy.ledger.state import FORMAT, Account, LedgerState, Reserved

__all__ = [
    "Payload",
    "alias_row",
    "as_stored",
    "cap_row",
    "check_plan",
    "checked_name",
    "created_row",
    "now",
    "open_reservation",
    "reserve_row",
    "settle_rows",
]

Payload = dict[str, Any]


def now() -> str:
    """Time of a row: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def checked_name(dataset: str) -> str:
    """Return the name of a data set if it can be one."""
    if not isinstance(dataset, str) or not dataset.strip() or not dataset.isprintable() or len(dataset) > 200:
        raise InvalidInput("the name of a data set must be printable text of 1 to 200 characters.")
    return dataset


def as_stored(event: Event) -> Event:
    """Return the event as it will be read back, so that what is charged is what is written."""
    if not isinstance(event, Event):
        raise InvalidInput(f"a ledger records events, not {type(event).__name__}.")
    return event_from_dict(json.loads(chain.canonical(event_to_dict(event))))


def reserve_row(made: Reserved, requested: Budget | None) -> Payload:
    """Row of a reservation; who made it, and for which budget, is for people and changes no figure."""
    return {
        "kind": "reserve",
        "id": made.id,
        "dataset": made.dataset,
        "event": event_to_dict(made.event),
        "neighbours": str(made.neighbours),
        "purpose": made.purpose,
        "by": _user(),
        "requested": None if requested is None else {"epsilon": requested.epsilon, "delta": requested.delta},
        "charge": made.charge.amount if made.charge else None,
        "delta": made.charge.delta if made.charge else None,
        "closes": made.charge.closes if made.charge else False,
        "unbounded": made.unbounded,
        "time": made.time,
    }


def _user() -> str:
    """Name under which somebody is logged in, as the machine tells it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


def _carried(cap: Cap, account: Account) -> Payload:
    """Charge to a new cap what was spent before it."""
    name = account.dataset
    if account.unbounded:
        raise BudgetRefused(f"data set {name!r} has releases without a finite guarantee: no cap can hold them", name)
    cost = charge(cap, account.event())
    if cost is None:
        raise BudgetRefused(f"data set {name!r} has releases that are not Gaussian: set a mixed cap", name)
    if cost.amount > cap.limit or cost.delta > cap.delta_reserve:
        raise BudgetRefused(
            f"data set {name!r} has spent more than epsilon={cap.budget.epsilon:g} at delta={cap.budget.delta:g} "
            "already: set a larger cap",
            dataset=name,
        )
    return {"carried": cost.amount, "carried_delta": cost.delta}


def open_reservation(state: LedgerState, reservation_id: str) -> Reserved:
    """Return a reservation that is not settled yet."""
    made = state.reservations.get(reservation_id)
    if made is None:
        raise LedgerError(f"the ledger has no reservation {reservation_id!r}.")
    if made.id not in state.account(made.dataset).unsettled:
        raise LedgerError(f"reservation {made.id} of data set {made.dataset!r} is settled already.")
    return made


def check_plan(reserved: Event, records: Sequence[ReleaseRecord]) -> None:
    """Compare leaf by leaf. The records' own counts are added here, so a fold that loses a count shows."""
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


def created_row(ledger_id: str, neighbours: Neighbours) -> Payload:
    """First row of a ledger."""
    return {
        "kind": "created",
        "format": FORMAT,
        "ledger": ledger_id,
        "neighbours": str(neighbours),
        "time": now(),
    }


def cap_row(cap: Cap, account: Account) -> Payload:
    """Row of a cap, with the charge of what was spent before it; refuses a cap that is passed already."""
    return {
        "kind": "cap",
        "dataset": account.dataset,
        "time": now(),
        **cap.to_dict(),
        **_carried(cap, account),
    }


def alias_row(dataset: str, fingerprint: str, time: str) -> Payload:
    """Row of a fingerprint seen with a data set for the first time."""
    return {"kind": "alias", "dataset": dataset, "fingerprint": fingerprint, "time": time}


def settle_rows(made: Reserved, records: Sequence[ReleaseRecord]) -> list[Payload]:
    """One row per release, identical neighbours with their count, and the row that settles the reservation."""
    common = {"dataset": made.dataset, "reservation": made.id, "time": now()}
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
