"""The authority's list of revoked certificates: read, checked, and read again whenever its file changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from dperm.errors import InvalidInput

__all__ = ["RevocationList", "revoked_serials"]


def revoked_serials(path: Path, authority: x509.Certificate) -> frozenset[int]:
    """Read a revocation list; one that is missing, damaged or signed by another authority is refused."""
    try:
        revocations = x509.load_pem_x509_crl(path.read_bytes())
    except OSError:
        raise InvalidInput(
            f"there is no revocation list {path}: correct `revoked`, or copy the authority's revoked.pem."
        ) from None
    except ValueError:
        raise InvalidInput(f"{path} is not a revocation list in PEM form.") from None
    key = authority.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    if not revocations.is_signature_valid(key):
        raise InvalidInput(f"{path} is not signed by the authority of this run.")
    return frozenset(entry.serial_number for entry in revocations)


class RevocationList:
    """A revocation list that is read again whenever its file changes.

    An unusable file is an error at the start. Later, the list that was read last stays in force: losing or damaging
    the file must not readmit a revoked participant.

    Parameters
    ----------
    path : path
        The file.
    authority : x509.Certificate
        Who must have signed it.
    on_error : callable, optional
        Receives one sentence for every change of the file that could not be read.
    """

    def __init__(
        self, path: Path, authority: x509.Certificate, on_error: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._path, self._authority, self._on_error = path, authority, on_error
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._serials = revoked_serials(path, authority)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def serials(self) -> frozenset[int]:
        """Serial numbers of the certificates that are revoked now."""
        with self._lock:
            stamp = self._stamp()  # taken before reading, so that a change during the read is noticed next time
            if stamp != self._seen:
                self._seen = stamp
                try:
                    self._serials = revoked_serials(self._path, self._authority)
                except InvalidInput as error:
                    self._on_error(f"{error} The list that was read before stays in force.")
            return self._serials
