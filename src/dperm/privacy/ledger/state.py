"""The state of every data set, derived from the ledger's rows and from nothing else, and kept up to date.

:class:`LedgerState` folds rows into accounts; :class:`Journal` reads and writes a storage through it.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dperm.errors import LedgerTampered, LedgerUnreadable
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.events import Composed, Event, event_from_dict, restate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import chain
from dperm.privacy.ledger.cap import Cap, Charge, PastCharges
from dperm.privacy.ledger.chain import Row
from dperm.privacy.ledger.storage import Reader, Storage

__all__ = ["FORMAT", "Account", "Journal", "LedgerState", "Receipt", "ReservationEntry", "Spent"]

T = TypeVar("T")

#: version of the rows' format, written in the first row
FORMAT = 1


@dataclass(frozen=True)
class Spent:
    """How much of a data set's budget is spent.

    Attributes
    ----------
    epsilon
        Upper bound at ``delta``; infinite if a release without a guarantee is recorded. It assumes that the events
        were *not* chosen from earlier results. With a cap it is read at the cap's order and never exceeds the cap,
        which is what holds however plans are chosen.
    remaining
        The cap's epsilon minus ``epsilon``; None without a cap, 0 once the data set is closed.
    fits_epsilon
        Epsilon (at the cap's delta) of the largest plan that still fits: the whole cap while nothing is reserved,
        later a plan of Gaussian releases. None without a cap.
    reserved_unsettled
        Reservations without a settlement: running, crashed or abandoned. They count as spent.
    closed
        One plan took the whole cap by its own exact figure; nothing more is admitted.
    used
        Share of the cap that is charged, between 0 and 1; charges add up, as epsilons do not. None without a cap.
    """

    dataset: str
    neighbours: Neighbours
    epsilon: float
    delta: float
    cap: Cap | None
    remaining: float | None
    fits_epsilon: float | None
    reserved_unsettled: int
    n_fits: int
    unbounded: bool
    closed: bool
    used: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, where an infinite epsilon is null."""
        return {
            "dataset": self.dataset,
            "neighbours": str(self.neighbours),
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "cap": self.cap.to_dict() if self.cap else None,
            "remaining": self.remaining,
            "fits_epsilon": self.fits_epsilon,
            "reserved_unsettled": self.reserved_unsettled,
            "n_fits": self.n_fits,
            "unbounded": self.unbounded,
            "closed": self.closed,
            "used": self.used,
        }


@dataclass(frozen=True)
class Receipt:
    """What the owner is told about one reservation, and nobody else.

    Attributes
    ----------
    reservation
        Id of the reservation; a report has the same one.
    dataset
        The data set that was charged. It depends on whether the ledger recognised the table.
    spent
        Everything that is spent on that data set by now.
    head
        Digest of the reservation's last row, for :meth:`Ledger.verify`.
    """

    reservation: str
    dataset: str
    spent: Spent
    head: str


@dataclass(frozen=True)
class ReservationEntry:
    """One reservation as its row states it; ``charged_event`` is restated under the ledger's neighbours."""

    id: str
    dataset: str
    event: Event
    charged_event: Event
    neighbours: Neighbours
    purpose: str
    charge: Charge | None
    unbounded: bool
    time: str


@dataclass
class Account:
    """One data set of a ledger."""

    dataset: str
    cap: Cap | None = None
    carried: Charge | None = None
    reserved: list[ReservationEntry] = field(default_factory=list)
    unsettled: dict[str, ReservationEntry] = field(default_factory=dict)

    @property
    def unbounded(self) -> bool:
        """Whether a release without a finite guarantee is recorded."""
        return any(one.unbounded for one in self.reserved)

    @property
    def closed(self) -> bool:
        """Whether one plan took the whole cap."""
        return any(one.charge.closes for one in self.reserved if one.charge)

    def past_charges(self) -> PastCharges:
        """All charges against the cap, including those carried over from before it was set."""
        charges = [one.charge for one in self.reserved if one.charge]
        if self.carried:
            charges.insert(0, self.carried)
        return PastCharges(
            dataset=self.dataset,
            amounts=[one.amount for one in charges],
            deltas=[one.delta for one in charges],
            empty=not self.reserved,
            closed=self.closed,
        )

    def total_event(self) -> Event:
        """Everything charged so far, under the ledger's neighbours."""
        return Composed(tuple(one.charged_event for one in self.reserved))

    def spent(self, neighbours: Neighbours, delta: float | None) -> Spent:
        """Sum up the account; :class:`Spent` explains each figure."""
        default = self.cap.budget.delta if self.cap else 1e-6
        at = default if delta is None else delta
        remaining = fits = used = None
        if self.cap is None or self.closed:
            # no cap, or one plan whose own figure holds because nothing was released before or after it
            figure = math.inf if self.unbounded else composition.upper_epsilon(self.total_event(), at)[0]
            if self.cap:
                remaining, fits, used = 0.0, 0.0, 1.0
        else:
            total = math.fsum(self.past_charges().amounts)
            figure = self.cap.epsilon(total, at)
            if at == self.cap.budget.delta:
                figure = min(figure, self.cap.budget.epsilon)  # the rounding of one addition
            remaining = self.cap.budget.epsilon - self.cap.epsilon(total)
            remaining = max(0.0, remaining)
            used = min(1.0, total / self.cap.limit)
            fits = self.cap.fits_epsilon(self.cap.limit - total) if self.reserved else self.cap.budget.epsilon
        return Spent(
            dataset=self.dataset,
            neighbours=neighbours,
            epsilon=figure,
            delta=at,
            cap=self.cap,
            remaining=remaining,
            fits_epsilon=fits,
            reserved_unsettled=len(self.unsettled),
            n_fits=len(self.reserved),
            unbounded=self.unbounded,
            closed=self.closed,
            used=used,
        )


class LedgerState:
    """The fold of all rows up to ``newest``."""

    def __init__(self) -> None:
        self.newest: Row | None = None
        self.ledger_id = ""
        self.neighbours = Neighbours.REPLACE_ONE
        self.accounts: dict[str, Account] = {}
        self.reservations: dict[str, ReservationEntry] = {}
        self._owners: dict[str, str] = {}
        #: data set and sealed sketch of every table that has one
        self.sketches: list[tuple[str, str]] = []

    def catch_up(self, read: Reader) -> None:
        """Apply the rows written since the last call; the newest known row must still be there, unchanged."""
        rows = read(self.newest.seq if self.newest else 1)
        if self.newest is not None:
            if not rows or rows[0] != self.newest:
                raise LedgerTampered(
                    f"row {self.newest.seq} of the ledger has changed since this process read it: "
                    "it was edited or rolled back, restore it from a backup."
                )
            rows = rows[1:]
        elif not rows:
            raise LedgerTampered("the ledger has lost all its rows: restore it from a backup.")
        chain.check(self.newest, rows)
        self._apply_all(rows)

    def account(self, dataset: str) -> Account:
        """Return the data set's account, or an empty one that is not kept if the ledger does not know it."""
        return self.accounts.get(dataset) or Account(dataset)

    def owner(self, fingerprint: str | None) -> str | None:
        """Return the data set first seen with this fingerprint."""
        return self._owners.get(fingerprint) if fingerprint is not None else None

    def after(self, payloads: Sequence[dict[str, Any]]) -> LedgerState:
        """Return the state after these rows; this state does not change."""
        other = LedgerState()
        vars(other).update({name: copy.copy(value) for name, value in vars(self).items()})
        for name, account in self.accounts.items():
            reserved, unsettled = [*account.reserved], {**account.unsettled}
            other.accounts[name] = replace(account, reserved=reserved, unsettled=unsettled)
        for data in payloads:
            self._APPLY[data["kind"]](other, data)
        return other

    def _apply_all(self, rows: Sequence[Row]) -> None:
        for row in rows:
            try:
                data = row.data()
                if (data["kind"] == "created") != (self.newest is None):
                    raise ValueError("a ledger is created once, in its first row")
                if data["kind"] not in self._APPLY:
                    raise LedgerUnreadable(f"row {row.seq} of the ledger is of an unknown kind: use a newer dperm.")
                self._APPLY[data["kind"]](self, data)
            except (KeyError, TypeError, ValueError):
                raise LedgerTampered(
                    f"row {row.seq} of the ledger does not follow from the rows before it: restore it from a backup."
                ) from None
            self.newest = row

    def _created(self, data: dict[str, Any]) -> None:
        if data["format"] != FORMAT:
            raise LedgerUnreadable(f"the ledger has format {data['format']}, not {FORMAT}: use another dperm version.")
        self.ledger_id = data["ledger"]
        self.neighbours = Neighbours.parse(data["neighbours"])

    def _cap(self, data: dict[str, Any]) -> None:
        account = self._account_of(data["dataset"])
        if account.cap is not None:
            raise ValueError("a cap never changes")
        account.cap = Cap.from_dict(data)
        account.carried = Charge(data["carried"], data["carried_delta"])

    def _alias(self, data: dict[str, Any]) -> None:
        self._account_of(data["dataset"])
        self._owners.setdefault(data["fingerprint"], data["dataset"])
        if data.get("sketch") is not None:
            self.sketches.append((data["dataset"], data["sketch"]))

    def _reserve(self, data: dict[str, Any]) -> None:
        account = self._account_of(data["dataset"])
        event, stated = event_from_dict(data["event"]), Neighbours.parse(data["neighbours"])
        entry = ReservationEntry(
            id=data["id"],
            dataset=account.dataset,
            event=event,
            charged_event=restate(event, stated, self.neighbours),
            neighbours=stated,
            purpose=data["purpose"],
            charge=None if data["charge"] is None else Charge(data["charge"], data["delta"], data["closes"]),
            unbounded=data["unbounded"],
            time=data["time"],
        )
        if entry.id in self.reservations:
            raise ValueError("a reservation is made once")
        self.reservations[entry.id] = entry
        account.reserved.append(entry)
        account.unsettled[entry.id] = entry

    def _release(self, data: dict[str, Any]) -> None:
        if data["reservation"] not in self._account_of(data["dataset"]).unsettled:
            raise ValueError("a release belongs to an open reservation")

    def _settle(self, data: dict[str, Any]) -> None:
        del self._account_of(data["dataset"]).unsettled[data["reservation"]]

    def _account_of(self, dataset: str) -> Account:
        """Return the account to change, made if it is new."""
        return self.accounts.setdefault(dataset, Account(dataset))

    _APPLY: dict[str, Callable[[LedgerState, dict[str, Any]], None]] = {  # noqa: RUF012
        "created": _created,
        "cap": _cap,
        "alias": _alias,
        "reserve": _reserve,
        "release": _release,
        "settle": _settle,
    }


class Journal:
    """The rows of one ledger, shared by all handles on it.

    Each thread folds the rows into its own state and reads only new ones, so no lock is needed and a forked child
    continues from a valid state. Rows are applied only after they are committed.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._local = threading.local()

    def _current_state(self, read: Reader) -> LedgerState:
        state: LedgerState = getattr(self._local, "state", None) or LedgerState()
        self._local.state = None  # a state that met a broken row is not used again
        state.catch_up(read)
        self._local.state = state
        return state

    def read(self, use: Callable[[LedgerState], T]) -> T:
        """Call ``use`` on the newest committed state."""
        return use(self.storage.read(self._current_state))

    def write(self, decide: Callable[[LedgerState], tuple[list[dict[str, Any]], T]]) -> T:
        """Append the payloads that ``decide`` returns, in one transaction; return its second value."""

        def linked(read: Reader) -> tuple[list[Row], T]:
            state = self._current_state(read)
            payloads, result = decide(state)
            return chain.link(state.newest, payloads), result

        return self.storage.write(linked)

    def checked_rows(self) -> list[Row]:
        """Read all rows again and check the whole chain."""

        def whole(read: Reader) -> list[Row]:
            rows = read(1)
            LedgerState().catch_up(lambda _: rows)
            return rows

        return self.storage.read(whole)
