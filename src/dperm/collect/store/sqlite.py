"""A collector's database in one SQLite file.

Random ids would touch a page of the index each. New ids therefore go to a small table first, and from there, one
slice of the keys at a time and in their order, to the large one: several ids share every page that is written.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from dperm.collect.store.database import IntArray, explained
from dperm.collect.store.store import Store
from dperm.errors import InvalidInput, StoreError

__all__ = ["SqliteStore"]

_TABLES = {
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
_BUSY_SECONDS = 30.0
_CACHE_KIB = 262_144
_WAL_PAGES = 16_384

#: ids that the small table holds, and slices of the keys that are moved one at a time
RECENT = 1 << 18
SLICES = 64


class SqliteStore(Store):
    """Counters and spent ids in one file, in write-ahead mode with a flush for every commit."""

    _among = "IN (SELECT value FROM json_each(?))"

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        super().__init__()
        self._path = Path(os.path.realpath(Path(path).expanduser()))
        self.shown = str(self._path)
        if not create and not self._path.exists():
            raise InvalidInput(f"there is no collector's database at {self.shown}: check the path.")
        self._recent: dict[int, int] = {}
        self._slice = random.randrange(SLICES)
        with explained(self._say, sqlite3.Error):
            self._connection = self._connect()
            self._connection.execute("PRAGMA journal_mode = WAL")
        try:
            self._start(_TABLES, create=create)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        # one thread at a time: Store holds a lock around every transaction
        made = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        made.execute("PRAGMA synchronous = FULL")
        made.execute("PRAGMA fullfsync = ON")
        made.execute("PRAGMA secure_delete = ON")  # a row that moves to another page leaves no copy behind
        made.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        made.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        return made

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        with explained(self._say, sqlite3.Error):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                self._recent.clear()  # what was counted in memory may not have happened
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with explained(self._say, sqlite3.Error), closing(self._connect()) as connection:
            connection.execute("BEGIN")
            yield connection

    def _rows(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(connection.execute(sql, values))

    def _many(self, connection: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        connection.executemany(sql, rows)

    def _several(self, numbers: list[int]) -> str:
        return json.dumps(numbers)

    def _has_table(self, connection: Any, name: str) -> bool:
        return bool(self._rows(connection, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def _make_spent_table(self, connection: Any, number: int) -> None:
        for table in ("recent", "spent"):
            connection.execute(f"CREATE TABLE dperm_{table}_{number} (id INTEGER PRIMARY KEY, mark INTEGER NOT NULL)")

    def _spent(self, connection: Any, number: int, keys: IntArray) -> list[tuple[int, int]]:
        asked = (self._several(keys.tolist()),)
        return [
            row
            for table in ("recent", "spent")
            for row in connection.execute(f"SELECT id, mark FROM dperm_{table}_{number} WHERE id {self._among}", asked)
        ]

    def _spend(self, connection: Any, number: int, keys: IntArray, marks: IntArray) -> None:
        recent, spent = f"dperm_recent_{number}", f"dperm_spent_{number}"
        rows = zip(keys.tolist(), marks.tolist(), strict=True)
        connection.executemany(f"INSERT INTO {recent} (id, mark) VALUES (?, ?)", rows)
        if number not in self._recent:
            self._recent[number] = connection.execute(f"SELECT COUNT(*) FROM {recent}").fetchone()[0]
        else:
            self._recent[number] += len(keys)
        for _ in range(SLICES):
            if self._recent[number] <= RECENT:
                break
            low = -(1 << 63) + self._slice * ((1 << 64) // SLICES)
            ends = (low, low + (1 << 64) // SLICES - 1)
            connection.execute(f"INSERT INTO {spent} SELECT id, mark FROM {recent} WHERE id BETWEEN ? AND ?", ends)
            moved = connection.execute(f"DELETE FROM {recent} WHERE id BETWEEN ? AND ?", ends).rowcount
            self._recent[number] -= moved
            self._slice = (self._slice + 1) % SLICES

    def backup(self, path: str | os.PathLike[str]) -> None:
        target = Path(path)
        if target.exists():
            raise InvalidInput(f"{str(target)!r} exists already: choose another name for the backup.")
        for one in list(self._known.values()):
            with suppress(StoreError):  # what is not published yet loses its window in the copy: let it be little
                self.publish(one)
        # under its name there is never a copy that still counts and publishes as the original does
        part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
        try:
            with (
                explained(self._say, sqlite3.Error),
                closing(sqlite3.connect(part)) as copy,
                closing(self._connect()) as here,
            ):
                here.backup(copy)
            with SqliteStore(str(part), create=False) as made:
                made.rename()
            part.replace(target)
        finally:
            for left in ("", "-wal", "-shm"):
                with suppress(OSError):
                    part.with_name(part.name + left).unlink()

    def tidy(self) -> bool:
        """Empty the write-ahead log: its pages show in which order ids were spent and counters grew."""
        with self._lock, explained(self._say, sqlite3.Error):
            # whoever reads now keeps the log in use: reports must not wait for them, the next quiet moment will do
            self._connection.execute("PRAGMA busy_timeout = 20")
            try:
                return not self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS:.0f}")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _say(self, error: Exception) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        what = f"the collector's database {self.shown}"
        if code == sqlite3.SQLITE_BUSY:
            return StoreError(f"{what} was busy for {_BUSY_SECONDS:g} seconds: nothing was written, try again.")
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return StoreError(f"{what} could not be written ({error}): nothing was written, check the disk.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreError(f"{what} is damaged or not a database ({error}): restore it from a backup.")
        return StoreError(f"{what} cannot be used ({error}): check the path and its permissions.")
