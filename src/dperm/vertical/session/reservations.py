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

__all__ = [
    "check_reservation",
    "counter_folder",
    "new_reservation_id",
    "refuse_run_without_folder",
    "reservation_purpose",
    "reserve",
    "resume",
]


def new_reservation_id() -> str:
    """Draw an id that distinguishes this run from others of its name; it is stored before anything is reserved."""
    return os.urandom(8).hex()


def reservation_purpose(run: str, reservation_id: str) -> str:
    """Return the purpose under which a run finds its own reservation, and no other, in a shared ledger."""
    return f"vertical run {run} ({reservation_id})"


def _open_reservation(ledger: Ledger, purpose: str) -> Reservation | None:
    matching = [reservation for reservation in ledger.unsettled() if reservation.purpose == purpose]
    return matching[0] if matching else None


def refuse_run_without_folder(ledger: Ledger, run: str) -> None:
    """Refuse to start a run that the ledger has already charged: its folder with the stored answers is missing."""
    start = f"vertical run {run} ("
    if any(e.get("kind") == "reserve" and str(e.get("purpose")).startswith(start) for e in ledger.entries()):
        raise StateLost(
            f"the ledger has already charged run {run!r}, but this participant's record of it is missing: "
            "restore the folder, or start a run under another name; nothing was answered."
        )


def counter_folder(ledger: Ledger | None) -> Path | None:
    """Return the folder of the record counters: beside the ledger, so that both are lost or kept together.

    For a ledger on a server it is in the folder of this user's dperm files. A ledger in memory has none: it does not
    outlive the process either.
    """
    if ledger is None or not ledger.lasting:
        return None
    if "://" in ledger.address:
        return Ledger.default_path().parent / f"runs-{hashlib.sha256(ledger.address.encode()).hexdigest()[:16]}"
    return Path(f"{ledger.address}.runs")


def check_reservation(prepared: PreparedRun) -> None:
    """Refuse a run that :func:`reserve` would refuse now; nothing is written."""
    if prepared.ledger is not None and prepared.calibrated is not None:
        parts = (prepared.calibrated, prepared.ledger, prepared.neighbours)
        scope.check(*parts, prepared.fingerprint, prepared.unbounded)


def reserve(prepared: PreparedRun, run: str, reservation_id: str) -> Scope | None:
    """Reserve a run's whole plan, or continue the reservation of a start that was interrupted before its answer."""
    if prepared.ledger is None or prepared.calibrated is None:
        return None
    purpose = reservation_purpose(run, reservation_id)
    made = _open_reservation(prepared.ledger, purpose)
    parts = (prepared.calibrated, prepared.ledger, prepared.neighbours, purpose)
    return Scope(*parts, prepared.fingerprint, prepared.unbounded, resumed=made, used=None if made is None else {})


def resume(prepared: PreparedRun, run: str, reservation_id: str, used: Mapping[str, int]) -> InnerScope | None:
    """Continue a run's reservation; if it is settled, return a scope that admits no release."""
    calibrated, ledger, neighbours = prepared.calibrated, prepared.ledger, prepared.neighbours
    if ledger is None or calibrated is None:
        return None
    purpose = reservation_purpose(run, reservation_id)
    made = _open_reservation(ledger, purpose)
    if made is None:
        if any(entry.get("purpose") == purpose for entry in ledger.entries()):
            closed = InnerScope(calibrated, neighbours, binding=False)
            closed.settle()
            return closed
        raise LedgerError(f"the ledger has no entry of run {run!r}: use the ledger with which the run was started.")
    return Scope(calibrated, ledger, neighbours, purpose, None, prepared.unbounded, resumed=made, used=used)
