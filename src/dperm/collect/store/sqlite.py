"""A collector's database in one SQLite file.

Ids are random, so each would touch a page of the index of its own. New ids therefore go to a small table first. From
there they move to the large one, one slice of the keys at a time and in their order: several ids share every page that
is written.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from dperm.collect.store.database import Database, SpentIds
from dperm.errors import InvalidInput, StoreError
from dperm.types import IntArray

__all__ = ["SqliteDatabase", "SqliteSpentIds"]

#: a statement waits for another process's lock for so long
_BUSY_SECONDS = 30.0
#: pages of the index that are kept in memory: 256 MiB hold those of about ten million ids
_CACHE_KIB = 262_144
#: pages of the write-ahead log before it is copied into the file: 64 MiB
_WAL_PAGES = 16_384

#: ids that the small table holds, and slices of the keys that are moved one at a time
RECENT = 1 << 18
SLICES = 64

_IS_LISTED = "IN (SELECT value FROM json_each(?))"


def _list_value(numbers: list[int]) -> str:
    return json.dumps(numbers)


class SqliteSpentIds(SpentIds):
    """Spent ids: the newest ones in a small table, the others in a large one."""

    def __init__(self) -> None:
        self._n_recent: dict[int, int] = {}
        self._slice = random.randrange(SLICES)

    def forget_sizes(self) -> None:
        """Count the small tables anew: a transaction that changed them was rolled back."""
        self._n_recent.clear()

    def make_tables(self, connection: Any, number: int) -> None:
        for table in ("recent", "spent"):
            connection.execute(f"CREATE TABLE dperm_{table}_{number} (id INTEGER PRIMARY KEY, mark INTEGER NOT NULL)")

    def find(self, connection: Any, number: int, keys: IntArray) -> list[tuple[int, int]]:
        asked = (_list_value(keys.tolist()),)
        return [
            row
            for table in ("recent", "spent")
            for row in connection.execute(f"SELECT id, mark FROM dperm_{table}_{number} WHERE id {_IS_LISTED}", asked)
        ]

    def add(self, connection: Any, number: int, keys: IntArray, marks: IntArray) -> None:
        recent, spent = f"dperm_recent_{number}", f"dperm_spent_{number}"
        rows = zip(keys.tolist(), marks.tolist(), strict=True)
        connection.executemany(f"INSERT INTO {recent} (id, mark) VALUES (?, ?)", rows)
        if number not in self._n_recent:
            self._n_recent[number] = connection.execute(f"SELECT COUNT(*) FROM {recent}").fetchone()[0]
        else:
            self._n_recent[number] += len(keys)
        for _ in range(SLICES):
            if self._n_recent[number] <= RECENT:
                break
            low = -(1 << 63) + self._slice * ((1 << 64) // SLICES)
            ends = (low, low + (1 << 64) // SLICES - 1)
            connection.execute(f"INSERT INTO {spent} SELECT id, mark FROM {recent} WHERE id BETWEEN ? AND ?", ends)
            moved = connection.execute(f"DELETE FROM {recent} WHERE id BETWEEN ? AND ?", ends).rowcount
            self._n_recent[number] -= moved
            self._slice = (self._slice + 1) % SLICES


class SqliteDatabase(Database):
    """One file, in write-ahead mode with a flush to disk for every commit.

    Parameters
    ----------
    path : path
        The file.
    create : bool
        Whether to make it if it does not exist.
    """

    tables: ClassVar[Mapping[str, str]] = {
        "dperm_about": "(name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        "dperm_tasks": "(number INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, "
        "name TEXT NOT NULL, version INTEGER NOT NULL, document TEXT NOT NULL, UNIQUE (name, version))",
        "dperm_counters": "(task INTEGER, time_window INTEGER, block INTEGER, n BLOB NOT NULL, "
        "PRIMARY KEY (task, time_window, block))",
        "dperm_merged": "(task INTEGER, collector TEXT, time_window INTEGER, cell INTEGER, "
        "n INTEGER NOT NULL, PRIMARY KEY (task, collector, time_window, cell)) WITHOUT ROWID",
        "dperm_steps": "(task INTEGER PRIMARY KEY, number INTEGER NOT NULL)",
        "dperm_published": "(task INTEGER, kind INTEGER, time_window INTEGER, block INTEGER, "
        "n BLOB NOT NULL, PRIMARY KEY (task, kind, time_window, block))",
    }
    row_lock = ""  # a writing transaction excludes all others
    is_listed = _IS_LISTED
    spent_ids: SqliteSpentIds

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        super().__init__()
        self.path = Path(os.path.realpath(Path(path).expanduser()))
        self.address = str(self.path)
        if not create and not self.path.exists():
            raise InvalidInput(f"there is no collector's database at {self.address}: check the path.")
        self.spent_ids = SqliteSpentIds()
        with self._explaining():
            self.connection = self._connect()
            self.connection.execute("PRAGMA journal_mode = WAL")

    def _connect(self) -> sqlite3.Connection:
        # threads take turns: every writing transaction holds the lock
        made = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        made.execute("PRAGMA synchronous = FULL")
        made.execute("PRAGMA fullfsync = ON")
        made.execute("PRAGMA secure_delete = ON")  # a row that moves to another page leaves no copy behind
        made.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        made.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        return made

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        connection = self.connection
        with self._explaining():
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                self.spent_ids.forget_sizes()
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._explaining(), closing(self._connect()) as connection:
            connection.execute("BEGIN")
            yield connection

    def rows(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(connection.execute(sql, values))

    def many(self, connection: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        connection.executemany(sql, rows)

    def list_value(self, numbers: list[int]) -> str:
        return _list_value(numbers)

    def has_table(self, connection: Any, name: str) -> bool:
        return bool(self.rows(connection, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def limit_lock_wait(self, connection: Any) -> None:
        """Do nothing: the transaction has its lock since it began."""

    def exclude_writers(self, connection: Any) -> None:
        """Do nothing: the transaction has excluded other writers since it began."""

    def tidy(self) -> bool:
        """Empty the write-ahead log: its pages show in which order ids were spent and counters grew."""
        with self.lock, self._explaining():
            # A reader keeps the log in use. Reports must not wait for readers, so it is tried again later.
            self.connection.execute("PRAGMA busy_timeout = 20")
            try:
                return not self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                self.connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS:.0f}")

    def check_copy(self, target: Path) -> None:
        if target.exists():
            raise InvalidInput(f"{str(target)!r} exists already: choose another name for the backup.")

    def copy_to(self, target: Path, finish: Callable[[Path], None]) -> None:
        part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
        try:
            with self._explaining(), closing(sqlite3.connect(part)) as copy, closing(self._connect()) as here:
                here.backup(copy)
            finish(part)
            part.replace(target)
        finally:
            for ending in ("", "-wal", "-shm"):
                with suppress(OSError):
                    part.with_name(part.name + ending).unlink()

    def close(self) -> None:
        with self.lock:
            self.connection.close()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn SQLite's errors into one sentence."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(error) from None

    def _explained(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        what = f"the collector's database {self.address}"
        if code == sqlite3.SQLITE_BUSY:
            return StoreError(f"{what} was busy for {_BUSY_SECONDS:g} seconds: nothing was written, try again.")
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return StoreError(f"{what} could not be written ({error}): nothing was written, check the disk.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreError(f"{what} is damaged or not a database ({error}): restore it from a backup.")
        return StoreError(f"{what} cannot be used ({error}): check the path and its permissions.")
