"""Rows in a SQLite file, safe with several threads and processes.

Each transaction opens its own connection: nothing is shared between threads or inherited by a fork. The file is
never opened except through SQLite, because closing a second descriptor would drop this process's locks.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dperm.atomic_files import create_exclusively
from dperm.errors import LedgerError, LedgerUnreadable
from dperm.privacy.ledger.chain import Row
from dperm.privacy.ledger.storage import Reader, Storage

__all__ = ["SqliteStorage"]

T = TypeVar("T")
_BUSY_SECONDS = 30.0
_CREATE = (
    "CREATE TABLE dperm_ledger ("
    "seq INTEGER PRIMARY KEY, previous TEXT NOT NULL, payload TEXT NOT NULL, hash TEXT NOT NULL)"
)
_SELECT = "SELECT seq, previous, payload, hash FROM dperm_ledger WHERE seq >= ? ORDER BY seq"
_INSERT = "INSERT INTO dperm_ledger (seq, previous, payload, hash) VALUES (?, ?, ?, ?)"

# A forked child must not inherit SQLite's file locks in the middle of a transaction: a fork waits for its end.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class SqliteStorage(Storage):
    """The table ``dperm_ledger`` in one file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # the real path, so that a changed working folder or a link does not create a second ledger
        self._path = Path(os.path.realpath(Path(path).expanduser()))
        self.address = str(self._path)
        self.label = str(self._path)

    def open(self, first: Row, *, create: bool) -> None:
        try:
            if not self._path.exists():
                if not create:
                    raise LedgerUnreadable(f"there is no ledger at {self.label}: check the path.")
                self._create(first)
            if self._path.is_dir():
                raise LedgerUnreadable(f"{self.label} is a folder: give the path of the ledger's file.")
            if self._path.stat().st_size == 0:
                raise LedgerUnreadable(
                    f"{self.label} is empty, so it is not a ledger: restore it from a backup, "
                    "or delete it to start a new one."
                )
        except OSError as error:
            raise LedgerUnreadable(
                f"the ledger {self.label} cannot be opened ({error.strerror}): check the path and its permissions."
            ) from None

    def _create(self, first: Row) -> None:
        if Path(f"{self._path}-journal").exists():
            raise LedgerUnreadable(
                f"{self.label} is missing but its journal is still there: restore the ledger from a backup, "
                "or delete the journal to start a new one."
            )
        with create_exclusively(self._path) as draft, self._transaction("BEGIN IMMEDIATE", draft) as connection:
            connection.execute(_CREATE)
            connection.execute(_INSERT, (first.seq, first.previous, first.payload, first.digest))

    def read(self, use: Callable[[Reader], T]) -> T:
        with self._transaction("BEGIN", self._path) as connection:
            return use(lambda seq: _rows(connection, seq))

    def write(self, decide: Callable[[Reader], tuple[list[Row], T]]) -> T:
        with self._transaction("BEGIN IMMEDIATE", self._path) as connection:
            rows, result = decide(lambda seq: _rows(connection, seq))
            connection.executemany(_INSERT, [(r.seq, r.previous, r.payload, r.digest) for r in rows])
        return result

    @contextlib.contextmanager
    def _transaction(self, begin: str, path: Path) -> Iterator[sqlite3.Connection]:
        try:
            with _LOCK, contextlib.closing(_connect(path)) as connection:
                connection.execute(begin)
                try:
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        with contextlib.suppress(sqlite3.Error):  # closing rolls back as well
                            connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._explain(error) from None

    def _explain(self, error: sqlite3.Error) -> LedgerError:
        """Return an error that says in one sentence what went wrong; in every case nothing was written."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return LedgerError(
                f"the ledger {self.label} was busy for {_BUSY_SECONDS:g} seconds: nothing was written, try again."
            )
        if code == sqlite3.SQLITE_READONLY:
            return LedgerError(f"the ledger {self.label} is read-only: nothing was written, make it writable.")
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return LedgerError(
                f"the ledger {self.label} could not be written ({error}): nothing was written, "
                "check the disk and its free space."
            )
        if code == sqlite3.SQLITE_CANTOPEN:
            return LedgerUnreadable(f"the ledger {self.label} cannot be opened: check the path and its permissions.")
        if code == sqlite3.SQLITE_CORRUPT:
            return LedgerUnreadable(f"the ledger {self.label} is damaged ({error}): restore it from a backup.")
        return LedgerUnreadable(f"{self.label} is not a ledger ({error}): check the path.")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=True,
    )
    try:
        # A reservation that a power cut undoes would be privacy spent but not counted. FULL does not flush the
        # removal of the rollback journal, EXTRA does.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _rows(connection: sqlite3.Connection, seq: int) -> list[Row]:
    return [Row(*found) for found in connection.execute(_SELECT, (seq,))]
