"""Where a collector keeps what it counted: counters, and which ids are spent. Proof: ``store.proof.md``.

A report is folded into its counter in the transaction that spends its id, so no report counts twice and none that was
acknowledged is lost. Of a 16-byte id the first half is kept, with a mark of 16 bits made from the report and the other
half: the mark tells a repeated report from a changed one, but nothing of the report to whoever reads the database.
"""

from __future__ import annotations

import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dperm.collect.schema import Collection
from dperm.errors import InvalidInput, StoreError
from dperm.solvers.local import Counts

__all__ = ["Entry", "Outcome", "Store", "StoreConflict", "marks", "open_store"]

T = TypeVar("T")
IntArray = NDArray[np.int64]

EXPORT_FORMAT = "dperm counts 1"

_MOST_CHANGES = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """Reports of one request for one collection: halves of their ids, and the counters they belong to."""

    digest: str
    keys: Sequence[int] | IntArray
    secrets: Sequence[int] | NDArray[np.uint64]
    cells: Sequence[int] | IntArray


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an entry: counted now, known already, or known with another content."""

    accepted: int
    duplicates: int
    conflicts: int


class StoreConflict(StoreError):
    """Another writer came first; nothing was written."""


def marks(halves: NDArray[np.uint64], cells: IntArray) -> IntArray:
    """Return 16 bits per report; for a uniform half of an id their law is uniform whatever the report is."""
    odd = 2 * cells.astype(np.uint64) + np.uint64(1)
    return ((halves * odd) >> np.uint64(48)).astype(np.int64)


class Store(ABC):
    """A collector's database.

    Attributes
    ----------
    collector : str
        Random name of this collector; counts that are merged carry it, so that none are added twice.
    shown : str
        The address without passwords.
    """

    shown: str

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._known: dict[str, Collection] = {}

    # ---------------------------------------------------------------------------------- what a database provides
    @abstractmethod
    def _writing(self) -> AbstractContextManager[Any]:
        """A durable transaction; raises :class:`StoreConflict` if another writer came first."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Any]:
        """A snapshot for reading."""

    @abstractmethod
    def _rows(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement with ``?`` for values and return its rows."""

    @abstractmethod
    def _many(self, connection: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for many rows."""

    @abstractmethod
    def _spent(self, connection: Any, number: int, keys: IntArray) -> list[tuple[int, int]]:
        """Return those of the keys that are spent, with their marks."""

    @abstractmethod
    def _spend(self, connection: Any, number: int, keys: IntArray, marks: IntArray) -> None:
        """Spend keys, sorted, none of them spent."""

    @abstractmethod
    def _make_spent_table(self, connection: Any, number: int) -> None:
        """Make the tables of one collection's spent ids."""

    @abstractmethod
    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a consistent copy while the collector runs."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, use: Callable[[Any], T]) -> T:
        for _ in range(_MOST_CHANGES):
            try:
                with self._lock, self._writing() as connection:
                    return use(connection)
            except StoreConflict:
                continue
        raise StoreError(f"{self.shown} was too busy: nothing was written, try again.")

    # ---------------------------------------------------------------------------------- collections
    def _start(self, tables: Sequence[str]) -> None:
        def make(connection: Any) -> str:
            for sql in tables:
                self._rows(connection, sql)
            found = self._rows(connection, "SELECT value FROM dperm_about WHERE name = 'collector'")
            if found:
                return str(found[0][0])
            name = secrets.token_hex(8)
            self._rows(connection, "INSERT INTO dperm_about (name, value) VALUES ('collector', ?)", (name,))
            return name

        self.collector = self._write(make)
        self.refresh()

    def refresh(self) -> None:
        """Learn of collections that another process registered."""
        with self._reading() as connection:
            rows = self._rows(connection, "SELECT number, digest, document FROM dperm_tasks ORDER BY number")
        for number, digest, document in rows:
            if digest not in self._numbers:
                self._known[digest] = Collection.parse(document)
                self._numbers[digest] = number

    def register(self, collection: Collection) -> None:
        """Take a collection's reports from now on; a description once registered never changes."""

        def make(connection: Any) -> None:
            where = (collection.name, collection.version)
            found = self._rows(connection, "SELECT digest FROM dperm_tasks WHERE name = ? AND version = ?", where)
            if found and found[0][0] != collection.digest:
                raise InvalidInput(
                    f"version {collection.version} of {collection.name!r} has another description in {self.shown}, and "
                    "those are immutable: give the new one the next version."
                )
            if found:
                return
            number = self._rows(connection, "SELECT COALESCE(MAX(number), 0) + 1 FROM dperm_tasks")[0][0]
            self._rows(
                connection,
                "INSERT INTO dperm_tasks (number, digest, name, version, document) VALUES (?, ?, ?, ?, ?)",
                (number, collection.digest, *where, collection.text),
            )
            self._make_spent_table(connection, number)

        self._write(make)
        self.refresh()

    @property
    def collections(self) -> Mapping[str, Collection]:
        """All collections by their digest."""
        return self._known

    def find(self, name: str, version: int | None = None) -> Collection | None:
        """Return a collection by its name, the newest version unless one is given."""
        found = [one for one in self._known.values() if one.name == name and version in (None, one.version)]
        return max(found, key=lambda one: one.version, default=None)

    # ---------------------------------------------------------------------------------- reports
    def add(self, entries: Sequence[Entry], moment: float) -> list[Outcome]:
        """Count reports that are not counted yet, all or none, and say what became of each entry.

        The change is on disk when this returns. ``moment`` decides the counting window and is not kept.
        """

        def fold(connection: Any) -> list[Outcome]:
            out: list[Outcome | None] = [None] * len(entries)
            by_task: dict[str, list[int]] = {}
            for place, entry in enumerate(entries):
                by_task.setdefault(entry.digest, []).append(place)
            for digest in sorted(by_task, key=self._numbers.__getitem__):
                places = by_task[digest]
                for place, outcome in zip(
                    places, self._fold(connection, digest, [entries[k] for k in places], moment), strict=True
                ):
                    out[place] = outcome
            return out  # type: ignore[return-value]

        return self._write(fold)

    def _fold(self, connection: Any, digest: str, entries: Sequence[Entry], moment: float) -> list[Outcome]:
        sizes = np.array([len(entry.keys) for entry in entries])
        owner = np.repeat(np.arange(len(entries)), sizes)
        keys = _joined([entry.keys for entry in entries], np.int64)
        cells = _joined([entry.cells for entry in entries], np.int64)
        found_marks = marks(_joined([entry.secrets for entry in entries], np.uint64), cells)
        number = self._numbers[digest]
        order = np.argsort(keys, kind="stable")
        keys, cells, found_marks, owner = keys[order], cells[order], found_marks[order], owner[order]
        # the first of equal ids stands for all of them
        unique, first, which = np.unique(keys, return_index=True, return_inverse=True)
        reference = found_marks[first]
        fresh = np.ones(len(unique), np.bool_)
        spent = self._spent(connection, number, unique)
        if spent:
            at = np.searchsorted(unique, [key for key, _ in spent])
            fresh[at] = False
            reference[at] = [mark for _, mark in spent]
        counted = np.zeros(len(keys), np.bool_)
        counted[first[fresh]] = True
        conflict = found_marks != reference[which]
        if fresh.any():
            self._spend(connection, number, unique[fresh], reference[fresh])
            hit, times = np.unique(cells[counted], return_counts=True)
            window = self._known[digest].window_at(moment)
            self._many(
                connection,
                "INSERT INTO dperm_counters (task, time_window, cell, n) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (task, time_window, cell) DO UPDATE SET n = dperm_counters.n + excluded.n",
                [(number, window, cell, n) for cell, n in zip(hit.tolist(), times.tolist(), strict=True)],
            )

        def per_entry(chosen: NDArray[np.bool_]) -> list[int]:
            return [int(n) for n in np.bincount(owner[chosen], minlength=len(entries))]

        columns = per_entry(counted), per_entry(~counted & ~conflict), per_entry(conflict)
        return [Outcome(*row) for row in zip(*columns, strict=True)]

    # ---------------------------------------------------------------------------------- counts
    def counts(self, collection: Collection, window: int | None = None) -> Counts:
        """Return the counts of everything, or of one window, merged ones included."""
        return _as_counts(collection, self._cells(collection, window))

    def windows(self, collection: Collection) -> dict[int, int]:
        """Return how many reports every window has."""
        sql = (
            "SELECT time_window, SUM(n) FROM (SELECT task, time_window, n FROM dperm_counters UNION ALL "
            "SELECT task, time_window, n FROM dperm_merged) AS both_tables WHERE task = ? "
            "GROUP BY time_window ORDER BY time_window"
        )
        with self._reading() as connection:
            rows = self._rows(connection, sql, (self._numbers[collection.digest],))
        return {int(window): int(n) for window, n in rows}

    def _cells(self, collection: Collection, window: int | None) -> list[tuple[Any, ...]]:
        chosen = "" if window is None else " AND time_window = ?"
        values = (self._numbers[collection.digest], *(() if window is None else (window,)))
        sql = " UNION ALL ".join(
            f"SELECT cell, n FROM {table} WHERE task = ?{chosen}" for table in ("dperm_counters", "dperm_merged")
        )
        with self._reading() as connection:
            return self._rows(connection, sql, values * 2)

    def export(self, collection: Collection) -> dict[str, Any]:
        """Return all counters of a collection as plain data, by the collector that counted them."""
        number = self._numbers[collection.digest]
        with self._reading() as connection:
            own = self._rows(connection, "SELECT time_window, cell, n FROM dperm_counters WHERE task = ?", (number,))
            merged = self._rows(
                connection, "SELECT collector, time_window, cell, n FROM dperm_merged WHERE task = ?", (number,)
            )
        collectors: dict[str, list[list[int]]] = {self.collector: [[int(v) for v in row] for row in own]}
        for name, *row in merged:
            collectors.setdefault(name, []).append([int(v) for v in row])
        return {"format": EXPORT_FORMAT, "task": collection.digest, "collectors": collectors}

    def merge(self, exported: Any) -> int:
        """Take the counts of other collectors; returns how many reports are new.

        Counters only grow, so the larger of two counts of one collector is the later one: merging twice, late or in a
        circle changes nothing.
        """
        collection, rows = self._checked_export(exported)
        number = self._numbers[collection.digest]

        def take(connection: Any) -> int:
            total = "SELECT COALESCE(SUM(n), 0) FROM dperm_merged WHERE task = ?"
            before = self._rows(connection, total, (number,))[0][0]
            self._many(
                connection,
                "INSERT INTO dperm_merged (task, collector, time_window, cell, n) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (task, collector, time_window, cell) DO UPDATE SET n = excluded.n "
                "WHERE excluded.n > dperm_merged.n",
                [(number, *row) for row in rows],
            )
            return int(self._rows(connection, total, (number,))[0][0] - before)

        return self._write(take)

    def _checked_export(self, exported: Any) -> tuple[Collection, list[tuple[str, int, int, int]]]:
        if not isinstance(exported, dict) or exported.get("format") != EXPORT_FORMAT:
            raise InvalidInput("these are not counts of a version that dperm can read.")
        digest, collectors = exported.get("task"), exported.get("collectors")
        collection = self._known.get(digest) if isinstance(digest, str) else None
        if collection is None:
            raise InvalidInput(f"these counts belong to a collection that is not registered in {self.shown}.")
        out: list[tuple[str, int, int, int]] = []
        if not isinstance(collectors, dict):
            raise InvalidInput("these counts are damaged.")
        for name, rows in collectors.items():
            for row in rows if isinstance(rows, list) else [None]:
                if not isinstance(row, list) or len(row) != 3 or any(type(v) is not int for v in row):
                    raise InvalidInput("these counts are damaged.")
                window, cell, n = row
                if not (0 <= cell < collection.n_cells and 0 <= n < 1 << 62 and abs(window) < 1 << 62):
                    raise InvalidInput("these counts are damaged: a number is outside its range.")
                if name != self.collector:
                    out.append((name, window, cell, n))
        return collection, out


def _joined(parts: Sequence[Any], kind: Any) -> NDArray[Any]:
    """Join sequences; most are one number long, and arrays of one number would be slow."""
    if all(isinstance(part, list | tuple) for part in parts):
        return np.array([value for part in parts for value in part], kind)
    return np.concatenate([np.asarray(part, kind) for part in parts])


def _as_counts(collection: Collection, rows: Sequence[tuple[Any, ...]]) -> Counts:
    task = collection.task
    cells = np.zeros(collection.n_cells, np.int64)
    if rows:
        table = np.array(rows, np.int64)
        np.add.at(cells, table[:, 0], table[:, 1])
    answers = cells.reshape(-1, task.n_levels)
    ones = answers[:, 1] if task.n_levels == 2 else answers[:, 1:]
    return Counts(task.digest, answers.sum(axis=1), np.ascontiguousarray(ones))


@contextmanager
def explained(say: Callable[[Exception], StoreError], *kinds: type[Exception]) -> Iterator[None]:
    """Turn a database's errors into one sentence."""
    try:
        yield
    except kinds as error:
        raise say(error) from None


def open_store(address: str | os.PathLike[str], *, create: bool = False) -> Store:
    """Open the database of a collector: a file for SQLite, or ``postgresql://...``.

    Parameters
    ----------
    address : str or path
        Where the database is.
    create : bool
        Whether to make it if it is not there.
    """
    text = os.fspath(address)
    if text.startswith(("postgresql://", "postgres://")):
        from dperm.collect.store_postgres import PostgresStore

        return PostgresStore(text, create=create)
    from dperm.collect.store_sqlite import SqliteStore

    return SqliteStore(text, create=create)
