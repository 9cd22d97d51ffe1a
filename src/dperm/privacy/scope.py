"""One fit's releases: planned, reserved, checked one by one, settled.

A scope reserves the whole plan in the ledger before anything is evaluated, refuses every release that the plan does not
contain, and at the end charges what was planned but not used as forfeited, so that ledger and plan are always equal.
"""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType

from dperm.errors import PlanViolation
from dperm.privacy.calibration import CalibratedPlan
from dperm.privacy.events import Composed, Event, Unbounded
from dperm.privacy.ledger import Ledger, ReleaseRecord, Reservation
from dperm.privacy.neighbours import Neighbours

__all__ = ["Scope"]


class Scope:
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
    """

    def __init__(
        self,
        calibrated: CalibratedPlan,
        ledger: Ledger,
        neighbours: Neighbours,
        purpose: str,
        fingerprint: str | None = None,
        unbounded: str | None = None,
    ) -> None:
        self.calibrated = calibrated
        self.ledger = ledger
        self.neighbours = neighbours
        self.unbounded = unbounded
        event = calibrated.event
        if unbounded is not None:
            event = Composed((event, Unbounded(unbounded)))
        self.reservation: Reservation = ledger.reserve(
            event, neighbours=neighbours, purpose=purpose, fingerprint=fingerprint
        )
        self.records: list[ReleaseRecord] = []
        self._used: Counter[str] = Counter()
        # the plan never changes, and a solver may make thousands of releases of one kind: one record serves them all
        self._planned = {
            planned.query: (planned.count, ReleaseRecord(planned.query, planned.event(calibrated.scale)))
            for planned in calibrated.plan.releases
        }
        self._lock = threading.Lock()
        self._settled = False

    @property
    def binding(self) -> bool:
        """Whether the books outlive this process or have a cap, and no reason was given why nothing is guaranteed."""
        return self.unbounded is None and (self.ledger.lasting or self.ledger.cap is not None)

    def charge(self, query: str, event: Event) -> None:
        """Take one release of ``query`` out of the plan, before it is evaluated."""
        with self._lock:
            if self._settled:
                raise PlanViolation(f"a release of {query!r} was tried after the fit had been settled.")
            planned = self._planned.get(query)
            if planned is None:
                raise PlanViolation(f"a release of {query!r} was tried that the plan does not contain.")
            count, record = planned
            if self._used[query] >= count:
                raise PlanViolation(f"release {self._used[query] + 1} of {query!r} was tried; {count} are planned.")
            if record.event != event:
                raise PlanViolation(f"a release of {query!r} was tried whose cost differs from the plan.")
            self._used[query] += 1
            self.records.append(record)

    def settle(self) -> None:
        """Charge unused planned releases as forfeited and write the ledger's second transaction."""
        with self._lock:
            if self._settled:
                return
            self._settled = True
            for planned in self.calibrated.plan.releases:
                left = planned.count - self._used[planned.query]
                record = ReleaseRecord(query=planned.query, event=planned.event(self.calibrated.scale), forfeited=True)
                self.records.extend([record] * left)
            if self.unbounded is not None:
                self.records.append(
                    ReleaseRecord(query="no guarantee", event=Unbounded(self.unbounded), forfeited=False)
                )
            self.reservation.settle(self.records)

    def __enter__(self) -> Scope:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Also after an error or Ctrl-C: what was reserved stays spent, and the ledger says what was really released.
        self.settle()
