"""A run's reservation in a participant's own ledger: made once, found again after a restart, never made twice."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from dperm.errors import LedgerError, StateLost
from dperm.privacy.ledger import Ledger, Reservation, scope
from dperm.privacy.ledger.scope import InnerScope, Scope
from dperm.vertical.session.spec import PreparedRun

__all__ = ["check", "marks_of", "new_ticket", "purpose_of", "refuse_forgotten", "reserve", "resume"]


def new_ticket() -> str:
    """Draw what tells this record of a run from any other run of its name; it is stored before anything is reserved."""
    return os.urandom(8).hex()


def purpose_of(run: str, ticket: str) -> str:
    """Words by which a record of a run finds its own reservation, and no other, in a ledger that others use too."""
    return f"vertical run {run} ({ticket})"


def _open_reservation(ledger: Ledger, purpose: str) -> Reservation | None:
    found = [made for made in ledger.unsettled() if made.purpose == purpose]
    return found[0] if found else None


def refuse_forgotten(ledger: Ledger, run: str) -> None:
    """Refuse to begin a run that the ledger has charged before: its folder is gone, and its answers with it."""
    words = f"vertical run {run} ("
    if any(e.get("kind") == "reserve" and str(e.get("purpose")).startswith(words) for e in ledger.entries()):
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


def check(prepared: PreparedRun) -> None:
    """Refuse a run that :func:`reserve` would refuse now; nothing is written."""
    if prepared.ledger is not None and prepared.calibrated is not None:
        parts = (prepared.calibrated, prepared.ledger, prepared.neighbours)
        scope.check(*parts, prepared.fingerprint, prepared.unbounded)


def reserve(prepared: PreparedRun, run: str, ticket: str) -> Scope | None:
    """Reserve a run's whole plan, or take up the reservation of a start that was interrupted before it was answered."""
    if prepared.ledger is None or prepared.calibrated is None:
        return None
    purpose = purpose_of(run, ticket)
    made = _open_reservation(prepared.ledger, purpose)
    parts = (prepared.calibrated, prepared.ledger, prepared.neighbours, purpose)
    return Scope(*parts, prepared.fingerprint, prepared.unbounded, resumed=made, used=None if made is None else {})


def resume(prepared: PreparedRun, run: str, ticket: str, used: Mapping[str, int]) -> InnerScope | None:
    """Go on with a run's reservation; if it is settled, return a scope that admits no release."""
    calibrated, ledger, neighbours = prepared.calibrated, prepared.ledger, prepared.neighbours
    if ledger is None or calibrated is None:
        return None
    purpose = purpose_of(run, ticket)
    made = _open_reservation(ledger, purpose)
    if made is None:
        if any(entry.get("purpose") == purpose for entry in ledger.entries()):
            closed = InnerScope(calibrated, neighbours, binding=False)
            closed.settle()
            return closed
        raise LedgerError(f"the ledger does not know run {run!r}: give the ledger that the run was started with.")
    return Scope(calibrated, ledger, neighbours, purpose, None, prepared.unbounded, resumed=made, used=used)
