"""Counters of reports: many in one row, and each collector's under its own name. Proof: ``store.proof.md``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.collect.description import Collection
from dperm.collect.store.database import Database
from dperm.collect.store.registry import Registry
from dperm.errors import InvalidInput
from dperm.solvers.local import Counts
from dperm.types import IntArray

__all__ = ["EXPORT_FORMAT", "Counters", "Snapshot"]

EXPORT_FORMAT = "dperm counts 1"

_MERGE = (
    "INSERT INTO dperm_merged (task, collector, time_window, cell, n) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (task, collector, time_window, cell) DO UPDATE SET n = excluded.n WHERE excluded.n > dperm_merged.n"
)

#: Counters in one row. A reader who sees which transaction wrote a row learns the row of a report, never its answer.
#: A row of this size fits into a page of both databases.
_BLOCK = 240


@dataclass(frozen=True)
class Snapshot:
    """All counters of a collection at one moment.

    Attributes
    ----------
    collection : Collection
        The collection.
    rows : sequence
        A window, the numbers of counters, and their contents; a window may have several rows.
    """

    collection: Collection
    rows: Sequence[tuple[int, IntArray, IntArray]]

    @property
    def n(self) -> int:
        """The number of reports."""
        return sum(int(contents.sum()) for _, _, contents in self.rows)

    def cells(self, window: int | None = None) -> IntArray:
        """Return every counter's content, of all windows or of one."""
        cells = np.zeros(self.collection.n_cells, np.int64)
        for at, which, contents in self.rows:
            if window in (None, at):
                np.add.at(cells, which, contents)
        return cells

    def counts(self, window: int | None = None) -> Counts:
        """Return the counts of all windows, or of one."""
        task = self.collection.task
        answers = self.cells(window).reshape(-1, task.n_levels)
        ones = answers[:, 1] if task.n_levels == 2 else answers[:, 1:]
        return Counts(task.digest, answers.sum(axis=1), np.ascontiguousarray(ones))

    @classmethod
    def from_blocks(cls, collection: Collection, stored: Sequence[tuple[int, int, bytes]]) -> Snapshot:
        """Return what rows of a database hold: window, block and content of each."""
        size, rows = _block_size(collection), []
        for window, block, content in stored:
            contents = np.frombuffer(content, "<i8").astype(np.int64)
            rows.append((int(window), block * size + np.arange(len(contents)), contents))
        return cls(collection, rows)

    def blocks(self) -> dict[tuple[int, int], IntArray]:
        """Return the contents of rows of a database, by window and block; rows of zeros are left out."""
        size, n_cells = _block_size(self.collection), self.collection.n_cells
        out: dict[tuple[int, int], IntArray] = {}
        for window, which, contents in self.rows:
            block_of = which // size
            for block in set(block_of.tolist()):
                if (window, block) not in out:
                    out[window, block] = np.zeros(min(size, n_cells - block * size), np.int64)
                inside = block_of == block
                np.add.at(out[window, block], which[inside] - block * size, contents[inside])
        return {where: contents for where, contents in sorted(out.items()) if contents.any()}

    def compact(self) -> Snapshot:
        """Return the same counters with one row for each window and block."""
        size = _block_size(self.collection)
        rows = [(window, block * size + np.arange(len(n)), n) for (window, block), n in self.blocks().items()]
        return Snapshot(self.collection, rows)

    @property
    def windows(self) -> dict[int, int]:
        """The number of reports in every window; windows without any are left out."""
        out: dict[int, int] = {}
        for window, _, contents in self.rows:
            out[window] = out.get(window, 0) + int(contents.sum())
        return {window: n for window, n in sorted(out.items()) if n}


class Counters:
    """The counters in a database: those of this collector, and those merged from others."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self._database, self._registry = database, registry

    # ---------------------------------------------------------------------------------- of one transaction
    def name(self, connection: Any) -> str:
        """Return this collector's name; see :attr:`collector`."""
        return str(self._database.rows(connection, "SELECT value FROM dperm_about WHERE name = 'collector'")[0][0])

    def add(self, connection: Any, collection: Collection, window: int, cells: IntArray) -> None:
        """Add 1 to each of the counters in ``cells``. A row holds many, with all answers to a statistic."""
        database, number, size = self._database, self._registry.number(collection), _block_size(collection)
        added = np.bincount(cells, minlength=collection.n_cells)
        touched = np.unique(cells // size).tolist()
        stored = dict(
            database.rows(
                connection,
                "SELECT block, n FROM dperm_counters WHERE task = ? AND time_window = ? "
                f"AND block {database.is_listed} ORDER BY block{database.row_lock}",
                (number, window, database.list_value(touched)),
            )
        )
        new, changed = [], []
        for block in touched:
            more = added[block * size : (block + 1) * size]
            if block in stored:
                total = np.frombuffer(stored[block], "<i8") + more
                changed.append((total.astype("<i8").tobytes(), number, window, block))
            else:
                new.append((number, window, block, more.astype("<i8").tobytes()))
        # a row that another writer has just made is a conflict and is never overwritten
        if new:
            database.many(
                connection, "INSERT INTO dperm_counters (task, time_window, block, n) VALUES (?, ?, ?, ?)", new
            )
        if changed:
            where = "task = ? AND time_window = ? AND block = ?"
            database.many(connection, f"UPDATE dperm_counters SET n = ? WHERE {where}", changed)

    def snapshot(self, connection: Any, collection: Collection, window: int | None = None) -> Snapshot:
        """Return the counters of all windows, or of one, own and merged."""
        where = "" if window is None else " AND time_window = ?"
        values = (self._registry.number(collection), *(() if window is None else (window,)))
        rows = list(self._own(connection, collection, where, values).rows)
        sql = f"SELECT time_window, cell, n FROM dperm_merged WHERE task = ?{where}"
        merged = self._database.rows(connection, sql, values)
        if merged:
            table = np.array(merged, np.int64)
            table = table[np.argsort(table[:, 0], kind="stable")]
            parts = np.split(table, np.flatnonzero(np.diff(table[:, 0])) + 1)
            rows += [(int(part[0, 0]), part[:, 1], part[:, 2]) for part in parts]
        return Snapshot(collection, rows)

    def rename(self, connection: Any) -> None:
        """Count under a new name from now on; what was counted so far stays under the old one.

        For copies: the original goes on counting under its name. A copy that did the same would have other counts
        under that name, and a merge would take the larger ones for the later ones.
        """
        old = self.name(connection)
        for digest, number in self._registry.numbers.items():
            rows = [(number, old, *row) for row in self._own_rows(connection, self._registry.collections[digest])]
            self._database.many(connection, _MERGE, rows)
        self._database.rows(connection, "DELETE FROM dperm_counters")
        new_name = (secrets.token_hex(8),)
        self._database.rows(connection, "UPDATE dperm_about SET value = ? WHERE name = 'collector'", new_name)

    def _own(self, connection: Any, collection: Collection, where: str, values: Sequence[Any]) -> Snapshot:
        sql = f"SELECT time_window, block, n FROM dperm_counters WHERE task = ?{where}"
        stored = self._database.rows(connection, sql, values)
        return Snapshot.from_blocks(collection, [(window, block, content) for window, block, content in stored])

    def _own_rows(self, connection: Any, collection: Collection) -> list[list[int]]:
        """Own counters that are not 0: window, number and content of each."""
        own = self._own(connection, collection, "", (self._registry.number(collection),))
        return [
            [window, cell, n]
            for window, which, contents in own.rows
            for cell, n in zip(which.tolist(), contents.tolist(), strict=True)
            if n
        ]

    # ---------------------------------------------------------------------------------- in transactions of their own
    @property
    def collector(self) -> str:
        """Random name of this collector; merged counts carry it, so that none are added twice."""
        with self._database.reading() as connection:
            return self.name(connection)

    def probe(self) -> None:
        """Find out whether reports could be counted now: write a row of counters, and remove it."""

        def write(connection: Any) -> None:
            row, sql = (
                (-1, 0, 0, bytes(8)),
                "INSERT INTO dperm_counters (task, time_window, block, n) VALUES (?, ?, ?, ?)",
            )
            self._database.rows(connection, sql, row)
            self._database.rows(connection, "DELETE FROM dperm_counters WHERE task = -1")

        self._database.write(write)

    def counts(self, collection: Collection, window: int | None = None) -> Counts:
        """Return the counts of all windows, or of one, merged ones included."""
        with self._database.reading() as connection:
            return self.snapshot(connection, collection, window).counts()

    def export(self, collection: Collection) -> dict[str, Any]:
        """Return all counters of a collection as plain data, by the collector that counted them."""
        sql = "SELECT collector, time_window, cell, n FROM dperm_merged WHERE task = ?"
        with self._database.reading() as connection:
            collectors = {self.name(connection): self._own_rows(connection, collection)}
            merged = self._database.rows(connection, sql, (self._registry.number(collection),))
        for name, *row in merged:
            collectors.setdefault(name, []).append([int(v) for v in row])
        return {"format": EXPORT_FORMAT, "task": collection.digest, "collectors": collectors}

    def merge(self, exported: Any) -> int:
        """Add the counts of other collectors; returns how many reports are new.

        Counters only grow, so the larger of two counts of one collector is the later one: merging twice, late or in a
        circle changes nothing.
        """
        collection, rows = self._checked_export(exported)
        number = self._registry.number(collection)

        def add(connection: Any) -> int:
            total = "SELECT COALESCE(SUM(n), 0) FROM dperm_merged WHERE task = ?"
            before = self._database.rows(connection, total, (number,))[0][0]
            own = self.name(connection)
            self._database.many(connection, _MERGE, [(number, *row) for row in rows if row[0] != own])
            return int(self._database.rows(connection, total, (number,))[0][0] - before)

        return self._database.write(add)

    def _checked_export(self, exported: Any) -> tuple[Collection, list[tuple[str, int, int, int]]]:
        if not isinstance(exported, dict) or exported.get("format") != EXPORT_FORMAT:
            raise InvalidInput("these are not counts in a format that this version of dperm reads.")
        digest, collectors = exported.get("task"), exported.get("collectors")
        collection = self._registry.collections.get(digest) if isinstance(digest, str) else None
        if collection is None:
            raise InvalidInput(
                f"these counts belong to a collection that is not registered in {self._database.address}."
            )
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
                out.append((name, window, cell, n))
        return collection, out


def _block_size(collection: Collection) -> int:
    """Counters in one row: whole statistics, each with all its answers."""
    levels = collection.task.n_levels
    return _BLOCK // levels * levels
