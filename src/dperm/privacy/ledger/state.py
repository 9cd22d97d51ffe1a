"""What the rows say: the state of every data set, derived from the chain and from nothing else."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dperm.errors import LedgerTampered, LedgerUnreadable
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.events import Composed, Event, event_from_dict, restate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import chain
from dperm.privacy.ledger.cap import Cap, Charge, Charged
from dperm.privacy.ledger.chain import Row
from dperm.privacy.ledger.records import Spent
from dperm.privacy.ledger.storage import Reader

__all__ = ["FORMAT", "Account", "LedgerState", "Reserved"]

FORMAT = 1


@dataclass(frozen=True)
class Reserved:
    """One reservation as its row tells it; ``charged_event`` is restated under the ledger's neighbours."""

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
    reserved: list[Reserved] = field(default_factory=list)
    unsettled: dict[str, Reserved] = field(default_factory=dict)

    @property
    def unbounded(self) -> bool:
        """Whether a release without a finite guarantee is recorded."""
        return any(one.unbounded for one in self.reserved)

    @property
    def closed(self) -> bool:
        """Whether one plan took the whole cap."""
        return any(one.charge.closes for one in self.reserved if one.charge)

    def charged(self) -> Charged:
        """All charges against the cap, those carried over from before it included."""
        charges = [one.charge for one in self.reserved if one.charge]
        if self.carried:
            charges.insert(0, self.carried)
        return Charged(
            dataset=self.dataset,
            amounts=[one.amount for one in charges],
            deltas=[one.delta for one in charges],
            empty=not self.reserved,
            closed=self.closed,
        )

    def event(self) -> Event:
        """Everything charged so far, under the ledger's neighbours."""
        return Composed(tuple(one.charged_event for one in self.reserved))

    def spent(self, neighbours: Neighbours, delta: float | None) -> Spent:
        """Sum up; see :class:`~dperm.privacy.ledger.records.Spent` for what each figure means."""
        default = self.cap.budget.delta if self.cap else 1e-6
        at = default if delta is None else delta
        remaining = fits = used = None
        if self.cap is None or self.closed:
            # uncapped, or one plan whose own figure holds because nothing came before it and nothing comes after
            figure = math.inf if self.unbounded else composition.upper_epsilon(self.event(), at)[0]
            if self.cap:
                remaining, fits, used = 0.0, 0.0, 1.0
        else:
            total = math.fsum(self.charged().amounts)
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
        self.reservations: dict[str, Reserved] = {}
        self._owners: dict[str, str] = {}

    def catch_up(self, read: Reader) -> None:
        """Apply the rows written since; the newest known row must still be there, unchanged."""
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
        """Return the data set's account, an empty one if the ledger does not know it."""
        return self.accounts.get(dataset) or Account(dataset)

    def owner(self, fingerprint: str | None) -> str | None:
        """Return the data set first seen with this fingerprint."""
        return self._owners.get(fingerprint) if fingerprint is not None else None

    def after(self, payloads: Sequence[dict[str, Any]]) -> LedgerState:
        """Return the state that these rows would make of this one, which stays as it is."""
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
        account = self._known(data["dataset"])
        if account.cap is not None:
            raise ValueError("a cap never changes")
        account.cap = Cap.from_dict(data)
        account.carried = Charge(data["carried"], data["carried_delta"])

    def _alias(self, data: dict[str, Any]) -> None:
        self._known(data["dataset"])
        self._owners.setdefault(data["fingerprint"], data["dataset"])

    def _reserve(self, data: dict[str, Any]) -> None:
        account = self._known(data["dataset"])
        event, stated = event_from_dict(data["event"]), Neighbours.parse(data["neighbours"])
        made = Reserved(
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
        if made.id in self.reservations:
            raise ValueError("a reservation is made once")
        self.reservations[made.id] = made
        account.reserved.append(made)
        account.unsettled[made.id] = made

    def _release(self, data: dict[str, Any]) -> None:
        if data["reservation"] not in self._known(data["dataset"]).unsettled:
            raise ValueError("a release belongs to an open reservation")

    def _settle(self, data: dict[str, Any]) -> None:
        del self._known(data["dataset"]).unsettled[data["reservation"]]

    def _known(self, dataset: str) -> Account:
        return self.accounts.setdefault(dataset, Account(dataset))

    _APPLY: dict[str, Callable[[LedgerState, dict[str, Any]], None]] = {  # noqa: RUF012
        "created": _created,
        "cap": _cap,
        "alias": _alias,
        "reserve": _reserve,
        "release": _release,
        "settle": _settle,
    }
