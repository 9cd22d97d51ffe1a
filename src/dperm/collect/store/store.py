"""The collector's store: counts every report once and remembers which ids are spent. Proof: ``store.proof.md``.

The transaction that spends a report's id also adds to its counter, so no report counts twice and no acknowledged one is
lost. Of a 16-byte id the store keeps the first half, with a mark of 16 bits made from the report and the other half.
The mark distinguishes a repeated report from a changed one, and reveals nothing about the report to a reader of the
database.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dperm.collect.description import Collection
from dperm.collect.store.counters import Counters
from dperm.collect.store.database import Database, StoreConflict
from dperm.collect.store.registry import Registry
from dperm.collect.store.steps import Steps
from dperm.errors import StoreError
from dperm.solvers.local import Counts
from dperm.types import BoolArray, IntArray

__all__ = ["Entry", "Outcome", "Store", "marks", "open_store"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Reports of one request for one collection: the halves of their ids, and the counters they belong to."""

    digest: str
    keys: Sequence[int] | IntArray
    secrets: Sequence[int] | NDArray[np.uint64]
    cells: Sequence[int] | IntArray


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many reports of an entry were counted, were counted before, or conflict with another use of their id."""

    accepted: int
    duplicates: int
    conflicts: int


def marks(halves: NDArray[np.uint64], cells: IntArray) -> IntArray:
    """Return 16 bits per report; for a uniform half of an id they are uniform, whatever the report is."""
    odd = 2 * cells.astype(np.uint64) + np.uint64(1)
    return ((halves * odd) >> np.uint64(48)).astype(np.int64)


class Store:
    """A collector's database and what it keeps: collections, counters, published states, spent ids.

    Parameters
    ----------
    database : Database
        The database; the store closes it.
    create : bool
        Whether the store is going to write: then a database that cannot be written is refused.

    Attributes
    ----------
    database : Database
        Transactions and statements.
    registry : Registry
        The collections.
    counters : Counters
        What was counted, by this collector and by others.
    steps : Steps
        What is published of it.
    """

    def __init__(self, database: Database, *, create: bool = False) -> None:
        self.database = database
        self.registry = Registry(database)
        self.counters = Counters(database, self.registry)
        self.steps = Steps(database, self.registry, self.counters)
        try:
            self._prepare(create=create)
        except BaseException:
            self.close()
            raise

    def _prepare(self, *, create: bool) -> None:
        database = self.database
        name = "SELECT value FROM dperm_about WHERE name = 'collector'"

        def make(connection: Any) -> None:
            for table, columns in database.tables.items():
                database.rows(connection, f"CREATE TABLE IF NOT EXISTS {table} {columns}")
            if not database.rows(connection, name):
                made = (secrets.token_hex(8),)
                database.rows(connection, "INSERT INTO dperm_about (name, value) VALUES ('collector', ?)", made)

        # a complete database is not written to: a read-only one, such as a replica, can be opened
        with database.reading() as connection:
            complete = all(database.has_table(connection, table) for table in database.tables)
            complete = complete and bool(database.rows(connection, name))
        if create or not complete:
            database.write(make)
        self.registry.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    # ---------------------------------------------------------------------------------- what most callers need
    @property
    def collections(self) -> Mapping[str, Collection]:
        """All collections by their digest."""
        return self.registry.collections

    def register(self, collection: Collection) -> None:
        """Accept a collection's reports from now on; a registered description never changes."""
        self.registry.register(collection)

    def find(self, name: str, version: int | None = None) -> Collection | None:
        """Return a collection by its name, the newest version unless one is given."""
        return self.registry.find(name, version)

    def counts(self, collection: Collection, window: int | None = None) -> Counts:
        """Return the counts of all windows, or of one, merged ones included."""
        return self.counters.counts(collection, window)

    def probe(self) -> None:
        """Raise if reports could not be counted now."""
        self.counters.probe()

    def tidy(self) -> bool:
        """Remove the traces of past transactions; False if it must be tried again."""
        return self.database.tidy()

    # ---------------------------------------------------------------------------------- reports
    def add(self, entries: Sequence[Entry], moment: float) -> list[Outcome]:
        """Count reports that are not counted yet, all or none, and return the outcome of each entry.

        The change is on disk when this returns. ``moment`` decides the counting window and is not kept.
        """

        def count(connection: Any) -> list[Outcome]:
            out: list[Outcome | None] = [None] * len(entries)
            by_task: dict[str, list[int]] = {}
            for place, entry in enumerate(entries):
                by_task.setdefault(entry.digest, []).append(place)
            for digest in sorted(by_task, key=self.registry.numbers.__getitem__):
                places, one = by_task[digest], self.collections[digest]
                outcomes = self._count(connection, one, [entries[k] for k in places], moment)
                for place, outcome in zip(places, outcomes, strict=True):
                    out[place] = outcome
            return out  # type: ignore[return-value]  # every place belongs to one collection

        return self.database.write(count)

    def _count(self, connection: Any, one: Collection, entries: Sequence[Entry], moment: float) -> list[Outcome]:
        number, spent_ids = self.registry.number(one), self.database.spent_ids
        sizes = np.array([len(entry.keys) for entry in entries])
        owner = np.repeat(np.arange(len(entries)), sizes)
        keys = _joined([entry.keys for entry in entries], np.int64)
        cells = _joined([entry.cells for entry in entries], np.int64)
        given_marks = marks(_joined([entry.secrets for entry in entries], np.uint64), cells)
        order = np.argsort(keys, kind="stable")
        keys, cells, given_marks, owner = keys[order], cells[order], given_marks[order], owner[order]
        # of equal ids, the first one is counted and the others are compared with it
        unique, first, which = np.unique(keys, return_index=True, return_inverse=True)
        reference = given_marks[first]
        fresh = np.ones(len(unique), np.bool_)
        spent = spent_ids.find(connection, number, unique)
        if spent:
            at = np.searchsorted(unique, [key for key, _ in spent])
            fresh[at] = False
            reference[at] = [mark for _, mark in spent]
        counted = np.zeros(len(keys), np.bool_)
        counted[first[fresh]] = True
        conflict = given_marks != reference[which]
        if fresh.any():
            spent_ids.add(connection, number, unique[fresh], reference[fresh])
            self.counters.add(connection, one, one.window_at(moment), cells[counted])

        def per_entry(chosen: BoolArray) -> list[int]:
            return [int(n) for n in np.bincount(owner[chosen], minlength=len(entries))]

        columns = per_entry(counted), per_entry(~counted & ~conflict), per_entry(conflict)
        return [Outcome(*row) for row in zip(*columns, strict=True)]

    # ---------------------------------------------------------------------------------- copies
    def mark_as_copy(self) -> None:
        """Count under a new name from now on, and publish only steps of reports that are counted from now on.

        For copies: the original goes on counting under its name, and publishes steps that a copy does not know.
        """
        database = self.database

        def mark(connection: Any) -> None:
            database.exclude_writers(connection)  # a step or report between reading and writing would be lost
            tasks = {number for (number,) in database.rows(connection, "SELECT number FROM dperm_tasks")}
            if tasks != set(self.registry.numbers.values()):  # its counts are not known here, and would be lost
                raise StoreError(
                    f"a collection was added to {database.address} meanwhile: nothing was written, try again."
                )
            for one in self.collections.values():
                before = self.steps.state(connection, one)
                after = before.for_copy(self.counters.snapshot(connection, one))
                if not self.steps.replace(connection, before.identity, after, after.changed_rows(before)):
                    raise StoreConflict("a step was taken meanwhile: nothing was written, try again.")
            self.counters.rename(connection)

        database.write(mark)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a consistent copy while the collector runs; it counts and publishes on its own."""
        target = Path(path)
        self.database.check_copy(target)
        for one in list(self.collections.values()):
            with suppress(StoreError):  # reports that are not published yet lose their window in the copy
                self.steps.publish(one)
        self.database.copy_to(target, _mark_file_as_copy)


def _mark_file_as_copy(path: Path) -> None:
    """Mark the copy before it has its final name: no file of that name counts and publishes as the original does."""
    with open_store(path) as copy:
        copy.mark_as_copy()


def _joined(parts: Sequence[Any], kind: Any) -> NDArray[Any]:
    """Join sequences; most are one number long, and arrays of one number would be slow."""
    if all(isinstance(part, list | tuple) for part in parts):
        return np.array([value for part in parts for value in part], kind)
    return np.concatenate([np.asarray(part, kind) for part in parts])


def open_store(address: str | os.PathLike[str], *, create: bool = False) -> Store:
    """Open the database of a collector: a file for SQLite, or ``postgresql://...``.

    Parameters
    ----------
    address : str or path
        Where the database is.
    create : bool
        Whether to make it if it does not exist.
    """
    text = os.fspath(address)
    if text.startswith(("postgresql://", "postgres://")):
        from dperm.collect.store.postgres import PostgresDatabase

        return Store(PostgresDatabase(text, create=create), create=create)
    from dperm.collect.store.sqlite import SqliteDatabase

    return Store(SqliteDatabase(text, create=create), create=create)
