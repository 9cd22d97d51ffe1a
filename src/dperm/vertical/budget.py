"""A run's reservation in a participant's own ledger: made once, found again after a restart, never made twice."""

from __future__ import annotations

from collections.abc import Mapping

from dperm.errors import LedgerError, StateLost
from dperm.privacy.calibration import CalibratedPlan
from dperm.privacy.ledger import Ledger, Reservation
from dperm.privacy.neighbours import Neighbours
from dperm.privacy.scope import InnerScope, Scope

__all__ = ["purpose_of", "refuse_forgotten", "reserve", "resume"]


def purpose_of(run: str) -> str:
    """Words by which a run is found in a ledger."""
    return f"vertical run {run}"


def _open_reservation(ledger: Ledger, run: str) -> Reservation | None:
    found = [made for made in ledger.unsettled() if made.purpose == purpose_of(run)]
    return found[0] if found else None


def refuse_forgotten(ledger: Ledger, run: str) -> None:
    """Refuse to begin a run that the ledger has charged before: its folder is gone, and its answers with it."""
    purpose = purpose_of(run)
    if any(entry.get("kind") == "reserve" and entry.get("purpose") == purpose for entry in ledger.entries()):
        raise StateLost(
            f"the ledger has charged run {run!r} before, but this participant's record of it is gone: "
            "restore the folder, or start a run under another name; nothing was answered."
        )


def reserve(
    calibrated: CalibratedPlan,
    ledger: Ledger,
    neighbours: Neighbours,
    run: str,
    fingerprint: str | None = None,
    unbounded: str | None = None,
) -> Scope:
    """Reserve a run's whole plan, or take up the reservation of a start that was interrupted before it was answered."""
    made = _open_reservation(ledger, run)
    return Scope(calibrated, ledger, neighbours, purpose_of(run), fingerprint, unbounded, resumed=made)


def resume(
    calibrated: CalibratedPlan,
    ledger: Ledger,
    neighbours: Neighbours,
    run: str,
    used: Mapping[str, int],
    unbounded: str | None = None,
) -> InnerScope:
    """Go on with a run's reservation; if it is settled, return a scope that admits no release."""
    made = _open_reservation(ledger, run)
    if made is None:
        if any(entry.get("purpose") == purpose_of(run) for entry in ledger.entries()):
            closed = InnerScope(calibrated, neighbours, binding=False)
            closed.settle()
            return closed
        raise LedgerError(f"the ledger does not know run {run!r}: give the ledger that the run was started with.")
    return Scope(calibrated, ledger, neighbours, purpose_of(run), None, unbounded, resumed=made, used=used)
