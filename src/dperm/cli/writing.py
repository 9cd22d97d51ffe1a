"""Files that a command may write: never over what it reads, never over a ledger, over others only with ``--force``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from dperm.errors import InvalidInput

__all__ = ["check_outputs", "ledger_file"]


def ledger_file(address: str | None) -> Path | None:
    """Return the file of the ledger at an address, of this user's own if it is None; None if it is no file."""
    from dperm.atomic_files import user_folder
    from dperm.privacy.ledger.sqlite import SqliteStorage
    from dperm.privacy.ledger.storage import storage_at

    storage = storage_at(user_folder() / "ledger.db" if address is None else address)
    return Path(storage.address) if isinstance(storage, SqliteStorage) else None


def check_outputs(
    outputs: Sequence[Path], *, inputs: Iterable[Path | None] = (), address: str | None = None, force: bool = False
) -> None:
    """Refuse to write over anything that is needed, before anything is read or charged.

    Parameters
    ----------
    outputs
        Files that the command will write.
    inputs
        Files that it reads; None stands for an option that was not given.
    address
        The ledger that it uses; this user's own ledger and its key are protected as well.
    force
        Whether other files may be written over.
    """
    needed = [(path, "is what this command reads") for path in inputs if path is not None]
    needed += [(path, "belongs to a ledger") for path in _of_ledgers(address)]
    for path in outputs:
        for other, why in needed:
            if _same(path, other):
                raise InvalidInput(f"{str(path)!r} {why} and is never written over: choose another --out.")
        if path.is_dir():
            raise InvalidInput(f"{str(path)!r} is a folder: give the path of a file with --out.")
        if not force and os.path.lexists(path):
            raise InvalidInput(f"{str(path)!r} exists: choose another --out, or --force to write over it.")


def _of_ledgers(address: str | None) -> list[Path]:
    from dperm.atomic_files import user_folder
    from dperm.privacy.ledger.fingerprints import KEY_FILE

    books = {ledger_file(None), ledger_file(address)} - {None}
    # a journal that is lost or replaced loses what was reserved last
    beside = [Path(f"{book}{ending}") for book in books for ending in ("", "-journal", "-wal", "-shm")]
    return [user_folder() / KEY_FILE, *beside]


def _same(one: Path, other: Path) -> bool:
    """Whether two paths are one file, also through links, and also if it is not there yet."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
