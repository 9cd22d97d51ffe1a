"""All participants of a run in one process, with the same sessions, masks and folders as between organisations."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dperm.vertical.identity.keys import Identity, Trust
from dperm.vertical.session.coordinator import CoordinatorSession
from dperm.vertical.session.party import PartySession
from dperm.vertical.session.spec import CoordinatorHandler, PartyHandler, RunSpec
from dperm.vertical.session.status import RunStatus
from dperm.vertical.transport.base import InProcess

__all__ = ["simulate", "simulate_in_folders", "temporary_identities"]


def temporary_identities(names: list[str]) -> dict[str, Identity]:
    """Create keys and certificates in memory, for use within one process."""
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("simulation", key.public_key(), key, "simulation")
    trust = Trust(authority)
    made = {}
    for name in names:
        own = ec.generate_private_key(ec.SECP256R1())
        made[name] = Identity(name, own, _certificate(name, own.public_key(), key, "simulation"), trust)
    return made


def _certificate(
    name: str, public: ec.EllipticCurvePublicKey, key: ec.EllipticCurvePrivateKey, issuer: str
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )


def simulate(
    spec: RunSpec,
    coordinator: CoordinatorHandler,
    parties: Mapping[str, PartyHandler],
    changed: Callable[[RunStatus], None] | None = None,
) -> Any:
    """Carry out a run in this process and return its result; the participants' folders are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="dperm-") as folder:
        roots = {name: Path(folder) / name for name in spec.parties}
        identities = temporary_identities(list(spec.parties))
        return simulate_in_folders(spec, coordinator, parties, identities, Path(folder) / "coordinator", roots, changed)


def simulate_in_folders(
    spec: RunSpec,
    coordinator: CoordinatorHandler,
    parties: Mapping[str, PartyHandler],
    identities: Mapping[str, Identity],
    root: Path,
    roots: Mapping[str, Path],
    changed: Callable[[RunStatus], None] | None = None,
    log: Callable[[str, str], None] = lambda name, why: None,
) -> Any:
    """Carry out a run in this process with given identities and folders; ``log`` gets each party's own error."""
    sessions = {name: PartySession(identities[name], roots[name], parties[name]) for name in spec.parties}
    transport = InProcess({name: session.handle for name, session in sessions.items()})
    try:
        return CoordinatorSession(spec, root, coordinator, changed=changed).run(transport)
    finally:
        for name, session in sessions.items():
            if spec.run in session.refused:
                log(name, str(session.refused[spec.run]))
            session.close()
