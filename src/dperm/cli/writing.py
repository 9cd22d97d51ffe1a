"""Check the files that a command will write: its inputs and ledgers are never overwritten, others with ``--force``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from dperm.errors import InvalidInput

__all__ = ["check_outputs", "ledger_file"]


def ledger_file(address: str | None) -> Path | None:
    """Return the file of the ledger at an address (None: this user's own), or None if the ledger is not a file."""
    from dperm.atomic_files import user_folder
    from dperm.privacy.ledger.sqlite import SqliteStorage
    from dperm.privacy.ledger.storage import storage_at

    storage = storage_at(user_folder() / "ledger.db" if address is None else address)
    return Path(str(storage.address)) if isinstance(storage, SqliteStorage) else None


def check_outputs(
    outputs: Sequence[Path], *, inputs: Iterable[Path | None] = (), address: str | None = None, force: bool = False
) -> None:
    """Refuse to overwrite needed files, before anything is read or charged.

    Parameters
    ----------
    outputs
        Files that the command will write.
    inputs
        Files that it reads; None for an option that was not given.
    address
        The ledger that it uses; this user's own ledger and its key are always protected.
    force
        Whether other files may be overwritten.
    """
    needed = [(path, "is an input of this command") for path in inputs if path is not None]
    needed += [(path, "belongs to a ledger") for path in _ledger_files(address)]
    for path in outputs:
        for other, why in needed:
            if _same(path, other):
                raise InvalidInput(f"{str(path)!r} {why} and is never overwritten: choose another --out.")
        if path.is_dir():
            raise InvalidInput(f"{str(path)!r} is a folder: give the path of a file with --out.")
        if not force and os.path.lexists(path):
            raise InvalidInput(f"{str(path)!r} exists: choose another --out, or --force to overwrite it.")


def _ledger_files(address: str | None) -> list[Path]:
    from dperm.atomic_files import user_folder
    from dperm.privacy.ledger.fingerprints import KEY_FILE

    ledgers = {ledger_file(None), ledger_file(address)} - {None}
    # replacing SQLite's journal would lose the last reservations
    files = [Path(f"{ledger}{ending}") for ledger in ledgers for ending in ("", "-journal", "-wal", "-shm")]
    return [user_folder() / KEY_FILE, *files]


def _same(one: Path, other: Path) -> bool:
    """Whether two paths are the same file, also through links and if it does not exist yet."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
