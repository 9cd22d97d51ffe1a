"""What goes into a ledger and what comes out of it, as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import Event
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.cap import Cap

if TYPE_CHECKING:
    from dperm.privacy.ledger.ledger import Ledger

__all__ = ["ReleaseRecord", "Reservation", "Spent"]


@dataclass(frozen=True)
class ReleaseRecord:
    """One release that was made, or planned and forfeited; ``count`` of them if they are identical.

    A forfeited release was reserved but never made; it stays charged.
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
    """A plan that is charged, and may now be carried out.

    Attributes
    ----------
    id
        Name under which :meth:`Ledger.resume` finds it after a crash.
    dataset
        The data set that was charged; another one than asked for if the data were recognised.
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
        """Write down every release of the plan, in order, in one committed transaction.

        Raises
        ------
        PlanViolation
            The releases are not exactly those that were reserved; nothing is written.
        LedgerError
            The reservation is settled already.
        """
        self.ledger._settle(self, releases)


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
