"""Scopes: they let a fit make exactly the releases that it planned and reserved.

A scope reserves the whole plan in the ledger before anything is evaluated and refuses every release that is not in the
plan. At the end it records planned releases that were not made as forfeited, so that ledger and plan are always equal.
The runs of a search are checked against their plans in the same way, but the ledger holds only the search as a whole.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from dperm.errors import PlanViolation
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.accounting.events import Composed, Event, RepeatAndSelect, Unbounded
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.accounting.units import pays_for
from dperm.privacy.ledger import Ledger, ReleaseRecord, Reservation
from dperm.privacy.ledger.reservations import as_stored

__all__ = ["InnerScope", "Scope", "SearchScope", "check"]

#: the scope that uses a reservation in this process, by the reservation's id
_ACTIVE: weakref.WeakValueDictionary[str, Scope] = weakref.WeakValueDictionary()


class InnerScope:
    """Enforces a calibrated plan, one release at a time, without a ledger of its own: its creator is charged.

    Parameters
    ----------
    calibrated : CalibratedPlan
        What will be released, with its noise.
    neighbours : Neighbours
        Relation under which the plan's events were computed.
    binding : bool
        Whether the ledger outlives this process or has a cap, and the result will have a guarantee.
    """

    def __init__(self, calibrated: CalibratedPlan, neighbours: Neighbours, binding: bool) -> None:
        self.calibrated = calibrated
        self.neighbours = neighbours
        self.binding = binding
        self.records: list[ReleaseRecord] = []
        self._used: Counter[str] = Counter()
        # the plan never changes, and a solver may make thousands of equal releases: they share one record
        self._planned = {
            planned.query: (planned.count, ReleaseRecord(planned.query, planned.event(calibrated.scale)))
            for planned in calibrated.plan.releases
        }
        self._lock = threading.Lock()
        self._settled = False

    def charge(self, query: str, event: Event, units: int = 1) -> None:
        """Count one release of ``query`` against the plan, before it is evaluated.

        It takes the place of ``units`` planned releases, which must pay for ``event`` (``accounting/units.proof.md``).
        """
        query = str(query)
        with self._lock:
            if self._settled:
                raise PlanViolation(f"a release of {query!r} was attempted after the fit had been settled.")
            planned = self._planned.get(query)
            if planned is None:
                raise PlanViolation(f"a release of {query!r} was attempted that the plan does not contain.")
            count, record = planned
            if type(units) is not int:  # arithmetic with a subclass could say anything
                raise PlanViolation(f"a release of {query!r} was attempted in the place of {units!r} planned ones.")
            if units < 1 or self._used[query] + units > count:
                last = self._used[query] + units
                raise PlanViolation(f"release {last} of {query!r} was attempted; {count} are planned.")
            if not pays_for(event, record.event, units):
                raise PlanViolation(f"a release of {query!r} was attempted whose cost differs from the plan.")
            self._used[query] += units
            self.records.extend([record] * units)

    @property
    def used(self) -> dict[str, int]:
        """How many releases of each query were made so far."""
        with self._lock:
            return dict(self._used)

    def _count_earlier(self, used: Mapping[str, int]) -> None:
        """Count releases that were made before a restart."""
        for query, times in used.items():
            count, record = self._planned.get(query, (0, None))
            if record is None or not 0 <= times <= count:
                raise PlanViolation(f"{times} releases of {query!r} were made before the restart; {count} are planned.")
            self._used[query] = times
            self.records.extend([record] * times)

    def settle(self) -> None:
        """Record planned releases that were not made as forfeited; nothing more may be released."""
        with self._lock:
            if self._settled:
                return
            self._settled = True
            for planned in self.calibrated.plan.releases:
                left = planned.count - self._used[planned.query]
                record = ReleaseRecord(query=planned.query, event=planned.event(self.calibrated.scale), forfeited=True)
                self.records.extend([record] * left)
            self._close()

    def suspend(self) -> None:
        """Release nothing more here and write nothing; the reservation stays open for a scope that resumes it."""
        with self._lock:
            self._settled = True

    def _close(self) -> None:
        """Write the records to the ledger, once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Also after an error or Ctrl-C: the reservation stays spent, and the ledger shows what was really released.
        self.settle()


class Scope(InnerScope):
    """Enforces a calibrated plan against a ledger; use it as a context manager.

    Parameters
    ----------
    calibrated : CalibratedPlan
        What will be released, with its noise.
    ledger : Ledger
        Where it is charged.
    neighbours : Neighbours
        Relation under which the plan's events were computed.
    purpose : str
        Shown in the ledger.
    fingerprint : str, optional
        Keyed fingerprint of the data, so that a renamed copy is recognised.
    unbounded : str, optional
        Why the result will have no guarantee (seeded noise, a printed calibration).
    resumed : Reservation, optional
        An unsettled reservation of the same plan in this ledger, to continue after a restart; nothing is reserved
        again. It must not be in use: its earlier scope is suspended, or its process has ended.
    used : mapping of str to int, optional
        Required with ``resumed``: how many releases of each query were made before. The caller is responsible for it,
        because releases are written to the ledger only when the plan is settled.
    """

    def __init__(
        self,
        calibrated: CalibratedPlan,
        ledger: Ledger,
        neighbours: Neighbours,
        purpose: str,
        fingerprint: str | None = None,
        unbounded: str | None = None,
        resumed: Reservation | None = None,
        used: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(calibrated, neighbours, _binding(ledger, unbounded))
        self.ledger = ledger
        self.unbounded = unbounded
        self.event: Event = calibrated.event
        if resumed is None:
            self.reservation = _reserve(
                self.event, ledger, neighbours, purpose, fingerprint, unbounded, calibrated.budget
            )
            _ACTIVE[self.reservation.id] = self
            return
        resumed = ledger.resume(resumed.id)  # refuses one that is settled, and one of another ledger
        if used is None:
            raise PlanViolation("a reservation was resumed without saying how many of its releases were made before.")
        if resumed.event != as_stored(_charged(self.event, unbounded)) or resumed.neighbours != neighbours:
            raise PlanViolation("the reservation to continue is not of this plan: the run was planned differently.")
        self._count_earlier(used)
        if _ACTIVE.setdefault(resumed.id, self) is not self:
            raise PlanViolation("the reservation to continue is in use: its releases would be made twice.")
        self.reservation = resumed

    def suspend(self) -> None:
        super().suspend()
        if _ACTIVE.get(self.reservation.id) is self:
            del _ACTIVE[self.reservation.id]

    def _close(self) -> None:
        if self.unbounded is not None:
            self.records.append(_no_guarantee(self.unbounded))
        self.reservation.settle(self.records)


class SearchScope:
    """Charges a search as one event; use it as a context manager.

    The releases of its runs are checked against their plans but not recorded: the number of runs and the releases of
    all but the best run stay secret.
    """

    def __init__(
        self,
        event: RepeatAndSelect,
        ledger: Ledger,
        neighbours: Neighbours,
        purpose: str,
        fingerprint: str | None = None,
        unbounded: str | None = None,
    ) -> None:
        self.event: Event = event
        self.ledger = ledger
        self.neighbours = neighbours
        self.unbounded = unbounded
        self.reservation = _reserve(event, ledger, neighbours, purpose, fingerprint, unbounded)
        self.records: list[ReleaseRecord] = []

    def run(self, calibrated: CalibratedPlan) -> InnerScope:
        """Return the scope of one run."""
        if self.records:
            raise PlanViolation("a run of a search was attempted after the search had been settled.")
        return InnerScope(calibrated, self.neighbours, _binding(self.ledger, self.unbounded))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.records = [ReleaseRecord("best of a random number of runs", self.event)]
        if self.unbounded is not None:
            self.records.append(_no_guarantee(self.unbounded))
        self.reservation.settle(self.records)


def check(
    calibrated: CalibratedPlan, ledger: Ledger, neighbours: Neighbours, fingerprint: str | None, unbounded: str | None
) -> None:
    """Refuse what a :class:`Scope` of the same plan would refuse to reserve now, and write nothing."""
    ledger.check(_charged(calibrated.event, unbounded), neighbours, fingerprint)


def _binding(ledger: Ledger, unbounded: str | None) -> bool:
    return unbounded is None and (ledger.lasting or ledger.cap is not None)


def _no_guarantee(reason: str) -> ReleaseRecord:
    return ReleaseRecord(query="no guarantee", event=Unbounded(reason), forfeited=False)


def _charged(event: Event, unbounded: str | None) -> Event:
    return event if unbounded is None else Composed((event, Unbounded(unbounded)))


def _reserve(
    event: Event,
    ledger: Ledger,
    neighbours: Neighbours,
    purpose: str,
    fingerprint: str | None,
    unbounded: str | None,
    requested: Budget | None = None,
) -> Reservation:
    event = _charged(event, unbounded)
    return ledger.reserve(event, neighbours, purpose, fingerprint, requested)
