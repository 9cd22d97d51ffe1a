"""A run's reservation in a participant's own ledger: made once, found again after a restart, never made twice."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from dperm.errors import LedgerError, StateLost
from dperm.privacy import scope
from dperm.privacy.ledger import Ledger, Reservation
from dperm.privacy.scope import InnerScope, Scope
from dperm.vertical.spec import Prepared

__all__ = ["check", "marks_of", "purpose_of", "refuse_forgotten", "reserve", "resume"]


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


def marks_of(ledger: Ledger | None) -> Path | None:
    """Return the folder in which marks of runs are kept: beside the ledger, so that both are lost or kept together.

    Of a ledger on a server it is in the folder of this user's dperm files. A ledger in memory has none: it does not
    outlive the process either.
    """
    if ledger is None or not ledger.lasting:
        return None
    if "://" in ledger.address:
        return Ledger.default_path().parent / f"runs-{hashlib.sha256(ledger.address.encode()).hexdigest()[:16]}"
    return Path(f"{ledger.address}.runs")


def check(prepared: Prepared) -> None:
    """Refuse a run that :func:`reserve` would refuse now; nothing is written."""
    if prepared.ledger is not None and prepared.calibrated is not None:
        parts = (prepared.calibrated, prepared.ledger, prepared.neighbours)
        scope.check(*parts, prepared.fingerprint, prepared.unbounded)


def reserve(prepared: Prepared, run: str) -> Scope | None:
    """Reserve a run's whole plan, or take up the reservation of a start that was interrupted before it was answered."""
    if prepared.ledger is None or prepared.calibrated is None:
        return None
    made = _open_reservation(prepared.ledger, run)
    parts = (prepared.calibrated, prepared.ledger, prepared.neighbours, purpose_of(run))
    return Scope(*parts, prepared.fingerprint, prepared.unbounded, resumed=made, used=None if made is None else {})


def resume(prepared: Prepared, run: str, used: Mapping[str, int]) -> InnerScope | None:
    """Go on with a run's reservation; if it is settled, return a scope that admits no release."""
    calibrated, ledger, neighbours = prepared.calibrated, prepared.ledger, prepared.neighbours
    if ledger is None or calibrated is None:
        return None
    made = _open_reservation(ledger, run)
    if made is None:
        if any(entry.get("purpose") == purpose_of(run) for entry in ledger.entries()):
            closed = InnerScope(calibrated, neighbours, binding=False)
            closed.settle()
            return closed
        raise LedgerError(f"the ledger does not know run {run!r}: give the ledger that the run was started with.")
    return Scope(calibrated, ledger, neighbours, purpose_of(run), None, prepared.unbounded, resumed=made, used=used)
