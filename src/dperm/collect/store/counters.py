"""Counters: many in one row, each collector's under its own name. Proof: ``store.proof.md``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.collect.description import Collection
from dperm.collect.store.database import Database, IntArray
from dperm.errors import InvalidInput
from dperm.solvers.local import Counts

__all__ = ["EXPORT_FORMAT", "Counters", "Snapshot"]

EXPORT_FORMAT = "dperm counts 1"

_MERGE = (
    "INSERT INTO dperm_merged (task, collector, time_window, cell, n) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (task, collector, time_window, cell) DO UPDATE SET n = excluded.n WHERE excluded.n > dperm_merged.n"
)

#: counters in one row: whoever sees which transaction wrote a row learns of a report no more than the row, never its
#: answer; a row of this size fits into a page of both databases
_BLOCK = 240


@dataclass(frozen=True)
class Snapshot:
    """All counters of a collection at one moment, by their windows."""

    collection: Collection
    rows: Sequence[tuple[int, IntArray, IntArray]]

    @property
    def n(self) -> int:
        """How many reports they hold."""
        return sum(int(found.sum()) for _, _, found in self.rows)

    def cells(self, window: int | None = None) -> IntArray:
        """Return every counter's content, of all windows or of one."""
        cells = np.zeros(self.collection.n_cells, np.int64)
        for at, which, found in self.rows:
            if window in (None, at):
                np.add.at(cells, which, found)
        return cells

    def counts(self, window: int | None = None) -> Counts:
        """Return the counts of everything, or of one window."""
        task = self.collection.task
        answers = self.cells(window).reshape(-1, task.n_levels)
        ones = answers[:, 1] if task.n_levels == 2 else answers[:, 1:]
        return Counts(task.digest, answers.sum(axis=1), np.ascontiguousarray(ones))

    @classmethod
    def of_blocks(cls, collection: Collection, kept: Sequence[tuple[int, int, bytes]]) -> Snapshot:
        """Return what rows of a database hold: window, block and content of each."""
        size, rows = _block_size(collection), []
        for window, block, content in kept:
            found = np.frombuffer(content, "<i8").astype(np.int64)
            rows.append((int(window), block * size + np.arange(len(found)), found))
        return cls(collection, rows)

    def blocks(self) -> dict[tuple[int, int], IntArray]:
        """Return the contents of rows of a database, by window and block; rows of zeros are left out."""
        size, n_cells = _block_size(self.collection), self.collection.n_cells
        out: dict[tuple[int, int], IntArray] = {}
        for window, which, found in self.rows:
            of = which // size
            for block in set(of.tolist()):
                if (window, block) not in out:
                    out[window, block] = np.zeros(min(size, n_cells - block * size), np.int64)
                np.add.at(out[window, block], which[of == block] - block * size, found[of == block])
        return {where: found for where, found in sorted(out.items()) if found.any()}

    def joined(self) -> Snapshot:
        """Return the same with one row for each window and block."""
        size = _block_size(self.collection)
        rows = [(window, block * size + np.arange(len(n)), n) for (window, block), n in self.blocks().items()]
        return Snapshot(self.collection, rows)

    @property
    def windows(self) -> dict[int, int]:
        """How many reports every window has; windows without any are left out."""
        out: dict[int, int] = {}
        for window, _, found in self.rows:
            out[window] = out.get(window, 0) + int(found.sum())
        return {window: n for window, n in sorted(out.items()) if n}


class Counters(Database):
    """The counters of a database."""

    @property
    def collector(self) -> str:
        """Random name of this collector; counts that are merged carry it, so that none are added twice."""
        with self._reading() as connection:
            return self._name(connection)

    def _name(self, connection: Any) -> str:
        return str(self._rows(connection, "SELECT value FROM dperm_about WHERE name = 'collector'")[0][0])

    def _count(self, connection: Any, digest: str, window: int, cells: IntArray) -> None:
        """Add to counters. A row holds many, with all answers to a statistic: see ``store.proof.md``."""
        number, size = self._numbers[digest], _block_size(self._known[digest])
        added = np.bincount(cells, minlength=self._known[digest].n_cells)
        touched = np.unique(cells // size).tolist()
        known = dict(
            self._rows(
                connection,
                f"SELECT block, n FROM dperm_counters WHERE task = ? AND time_window = ? AND block {self._among} "
                f"ORDER BY block{self._locking}",
                (number, window, self._several(touched)),
            )
        )
        fresh, changed = [], []
        for block in touched:
            more = added[block * size : (block + 1) * size]
            if block in known:
                total = np.frombuffer(known[block], "<i8") + more
                changed.append((total.astype("<i8").tobytes(), number, window, block))
            else:
                fresh.append((number, window, block, more.astype("<i8").tobytes()))
        # a row that another writer has just made is a conflict, never written over
        if fresh:
            self._many(
                connection, "INSERT INTO dperm_counters (task, time_window, block, n) VALUES (?, ?, ?, ?)", fresh
            )
        if changed:
            where = "task = ? AND time_window = ? AND block = ?"
            self._many(connection, f"UPDATE dperm_counters SET n = ? WHERE {where}", changed)

    def probe(self) -> None:
        """Find out whether reports could be counted now: write a row of counters, and take it back."""

        def write(connection: Any) -> None:
            row = (-1, 0, 0, bytes(8))
            self._rows(connection, "INSERT INTO dperm_counters (task, time_window, block, n) VALUES (?, ?, ?, ?)", row)
            self._rows(connection, "DELETE FROM dperm_counters WHERE task = -1")

        self._write(write)

    def counts(self, collection: Collection, window: int | None = None) -> Counts:
        """Return the counts of everything, or of one window, merged ones included."""
        with self._reading() as connection:
            return self._snapshot(connection, collection, window).counts()

    def _snapshot(self, connection: Any, collection: Collection, window: int | None = None) -> Snapshot:
        """Return the counters of everything, or of one window, own and merged."""
        chosen = "" if window is None else " AND time_window = ?"
        values = (self._numbers[collection.digest], *(() if window is None else (window,)))
        rows = list(self._own(connection, collection, chosen, values).rows)
        merged = self._rows(connection, f"SELECT time_window, cell, n FROM dperm_merged WHERE task = ?{chosen}", values)
        if merged:
            table = np.array(merged, np.int64)
            table = table[np.argsort(table[:, 0], kind="stable")]
            parts = np.split(table, np.flatnonzero(np.diff(table[:, 0])) + 1)
            rows += [(int(part[0, 0]), part[:, 1], part[:, 2]) for part in parts]
        return Snapshot(collection, rows)

    def _own(self, connection: Any, collection: Collection, chosen: str, values: Sequence[Any]) -> Snapshot:
        sql = f"SELECT time_window, block, n FROM dperm_counters WHERE task = ?{chosen}"
        return Snapshot.of_blocks(collection, [(w, b, kept) for w, b, kept in self._rows(connection, sql, values)])

    def _listed(self, connection: Any, collection: Collection) -> list[list[int]]:
        """Own counters that are not 0: window, number and content of each."""
        own = self._own(connection, collection, "", (self._numbers[collection.digest],))
        return [
            [window, cell, n]
            for window, at, found in own.rows
            for cell, n in zip(at.tolist(), found.tolist(), strict=True)
            if n
        ]

    def export(self, collection: Collection) -> dict[str, Any]:
        """Return all counters of a collection as plain data, by the collector that counted them."""
        number = self._numbers[collection.digest]
        with self._reading() as connection:
            collectors = {self._name(connection): self._listed(connection, collection)}
            merged = self._rows(
                connection, "SELECT collector, time_window, cell, n FROM dperm_merged WHERE task = ?", (number,)
            )
        for name, *row in merged:
            collectors.setdefault(name, []).append([int(v) for v in row])
        return {"format": EXPORT_FORMAT, "task": collection.digest, "collectors": collectors}

    def _rename(self, connection: Any) -> None:
        """Count under a new name from now on; what was counted so far stays under the old one.

        For copies: the original goes on counting under its name, so a copy that did the same would have other counts
        under it, and a merge would take the larger ones for the later ones.
        """
        old = self._name(connection)
        for digest, number in self._numbers.items():
            rows = [(number, old, *row) for row in self._listed(connection, self._known[digest])]
            self._many(connection, _MERGE, rows)
        self._rows(connection, "DELETE FROM dperm_counters")
        fresh = (secrets.token_hex(8),)
        self._rows(connection, "UPDATE dperm_about SET value = ? WHERE name = 'collector'", fresh)

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
            own = self._name(connection)
            self._many(connection, _MERGE, [(number, *row) for row in rows if row[0] != own])
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
                out.append((name, window, cell, n))
        return collection, out


def _block_size(collection: Collection) -> int:
    """Counters in one row: whole statistics, each with all its answers."""
    levels = collection.task.n_levels
    return _BLOCK // levels * levels
