"""Where a collector keeps what it counted: counters, and which ids are spent. Proof: ``store.proof.md``.

A report is folded into its counter in the transaction that spends its id, so no report counts twice and none that was
acknowledged is lost. Of a 16-byte id the first half is kept, with a mark of 16 bits made from the report and the other
half: the mark tells a repeated report from a changed one, but nothing of the report to whoever reads the database.
"""

from __future__ import annotations

import os
import secrets
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.collect.description import Collection
from dperm.collect.store.database import IntArray
from dperm.collect.store.steps import Steps
from dperm.errors import InvalidInput
from dperm.types import BoolArray

__all__ = ["Entry", "Outcome", "Store", "marks", "open_store"]


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


def marks(halves: NDArray[np.uint64], cells: IntArray) -> IntArray:
    """Return 16 bits per report; for a uniform half of an id their law is uniform whatever the report is."""
    odd = 2 * cells.astype(np.uint64) + np.uint64(1)
    return ((halves * odd) >> np.uint64(48)).astype(np.int64)


class Store(Steps):
    """A collector's database: its collections, their counters, what is published of them, and which ids are spent."""

    @abstractmethod
    def _spent(self, connection: Any, number: int, keys: IntArray) -> list[tuple[int, int]]:
        """Return those of the keys that are spent, with their marks."""

    @abstractmethod
    def _spend(self, connection: Any, number: int, keys: IntArray, marks: IntArray) -> None:
        """Spend keys, sorted, none of them spent."""

    @abstractmethod
    def _has_table(self, connection: Any, name: str) -> bool:
        """Whether there is a table of this name."""

    @abstractmethod
    def _make_spent_table(self, connection: Any, number: int) -> None:
        """Make the tables of one collection's spent ids."""

    @abstractmethod
    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a consistent copy while the collector runs."""

    # ---------------------------------------------------------------------------------- collections
    def _start(self, tables: Mapping[str, str], *, create: bool) -> None:
        named = "SELECT value FROM dperm_about WHERE name = 'collector'"

        def make(connection: Any) -> None:
            for name, columns in tables.items():
                self._rows(connection, f"CREATE TABLE IF NOT EXISTS {name} {columns}")
            if not self._rows(connection, named):
                made = (secrets.token_hex(8),)
                self._rows(connection, "INSERT INTO dperm_about (name, value) VALUES ('collector', ?)", made)

        # a database that can only be read, such as a replica, can be looked at; whoever would make it wants to write
        with self._reading() as connection:
            complete = all(self._has_table(connection, name) for name in tables) and self._rows(connection, named)
        if create or not complete:
            self._write(make)
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
            self._count(connection, digest, self._known[digest].window_at(moment), cells[counted])

        def per_entry(chosen: BoolArray) -> list[int]:
            return [int(n) for n in np.bincount(owner[chosen], minlength=len(entries))]

        columns = per_entry(counted), per_entry(~counted & ~conflict), per_entry(conflict)
        return [Outcome(*row) for row in zip(*columns, strict=True)]


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
        Whether to make it if it is not there.
    """
    text = os.fspath(address)
    if text.startswith(("postgresql://", "postgres://")):
        from dperm.collect.store.postgres import PostgresStore

        return PostgresStore(text, create=create)
    from dperm.collect.store.sqlite import SqliteStore

    return SqliteStore(text, create=create)
