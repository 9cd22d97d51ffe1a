"""Published states of a collection, in the database: all services publish the same. Proof: ``store.proof.md``.

A service that finds a step due computes it from one view of the database, without delaying anybody. The transaction
that stores it checks again, under a lock, that the published state is still the one the step was computed from.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dperm.collect.description import Collection
from dperm.collect.store.counters import Counters, Snapshot
from dperm.collect.store.database import Database
from dperm.collect.store.registry import Registry

__all__ = ["LEAST_STEP", "PublishedState", "Steps", "step_size"]

#: a new estimate needs this many new reports, or one in a hundred of those it has, whichever is more
LEAST_STEP = 20
_SHARE = 100

#: what a row of the published state holds
_COUNTED, _MOVED, _HELD = 0, 1, 2
_KEEP = (
    "INSERT INTO dperm_published (task, kind, time_window, block, n) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (task, kind, time_window, block) DO UPDATE SET n = excluded.n"
)
_STAMP = "INSERT INTO dperm_about (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


def step_size(n: int) -> int:
    """Return how many new reports the estimate after one of ``n`` reports needs."""
    return max(LEAST_STEP, n // _SHARE)


@dataclass(frozen=True)
class PublishedState:
    """What is published of a collection.

    Attributes
    ----------
    number : int
        The number of changes so far.
    counted : Snapshot
        The counters at the last step. If a copy of the database was made since, the counters at that moment.
    moved : Snapshot
        What is shown in another window than the one that counted it; it is added to the counters.
    held : Snapshot
        What was counted between the last step and the moment of the copy: it is not shown yet.
    stamp : str
        Random: a database that was set back reaches the same numbers with other states. States of versions that stored
        no stamp have an empty one.
    """

    number: int
    counted: Snapshot
    moved: Snapshot
    held: Snapshot
    stamp: str = ""

    @property
    def identity(self) -> tuple[int, str]:
        """Number and stamp, which no two states share."""
        return self.number, self.stamp

    @property
    def visible(self) -> Snapshot:
        """The counters that everybody sees."""
        held = [(window, at, -n) for window, at, n in self.held.rows]
        return Snapshot(self.counted.collection, [*self.counted.rows, *self.moved.rows, *held])

    @property
    def n(self) -> int:
        """The number of reports that everybody sees."""
        return self.counted.n - self.held.n

    @property
    def next_at(self) -> int:
        """The number of reports at which the next step is due; 20 of them were counted since a copy was made."""
        return max(self.n + step_size(self.n), self.counted.n + LEAST_STEP)

    def after(self, found: Snapshot) -> PublishedState:
        """Return the next step. A window's part that is too small to be shown goes to the step's largest window."""
        one, before = found.collection, self.counted.windows
        grown = {window: n - before.get(window, 0) for window, n in found.windows.items()}
        largest, moved = max(grown, key=grown.__getitem__), list(self.moved.rows)
        # held reports are shown only together with enough later ones: the original may have shown them otherwise
        less = [(window, at, -n) for window, at, n in self.counted.rows]
        for window, at, part in Snapshot(one, [*found.rows, *less, *self.held.rows]).compact().rows:
            if window != largest and grown[window] < LEAST_STEP:
                moved += [(window, at, -part), (largest, at, part)]
        return PublishedState(self.number + 1, found, Snapshot(one, moved).compact(), Snapshot(one, []), _fresh_stamp())

    def for_copy(self, found: Snapshot) -> PublishedState:
        """Return the first state of a copy of the database, whose counters are ``found``."""
        one = found.collection
        less = [(window, at, -n) for window, at, n in self.counted.rows]
        held = Snapshot(one, [*self.held.rows, *found.rows, *less]).compact()
        return PublishedState(self.number + 1, found, self.moved, held, _fresh_stamp())

    def changed_rows(self, before: PublishedState) -> list[tuple[int, int, int, bytes]]:
        """Return rows of the database that differ from those before: kind, window, block and content of each."""
        out = []
        for kind, was, now in (
            (_COUNTED, before.counted, self.counted),
            (_MOVED, before.moved, self.moved),
            (_HELD, before.held, self.held),
        ):
            old, new = was.blocks(), now.blocks()
            for where in sorted(old.keys() | new.keys()):
                # rows are never deleted: overwriting them is what removes their content from a file
                content = new[where] if where in new else np.zeros_like(old[where])
                if where not in old or not np.array_equal(old[where], content):
                    out.append((kind, *where, content.astype("<i8").tobytes()))
        return out


class Steps:
    """The published states in a database: one sequence for each collection."""

    def __init__(self, database: Database, registry: Registry, counters: Counters) -> None:
        self._database, self._registry, self._counters = database, registry, counters

    def read(self, collection: Collection, cached: PublishedState | None = None) -> tuple[PublishedState, Snapshot]:
        """Return the published state and all counters, merged ones included, both of one moment.

        Parameters
        ----------
        collection : Collection
            The collection.
        cached : PublishedState, optional
            A state read before: it is read again only if it has changed.
        """
        with self._database.reading() as connection:
            if cached is None or cached.identity != self._identity(connection, collection):
                cached = self.state(connection, collection)
            return cached, self._counters.snapshot(connection, collection)

    def publish(self, collection: Collection, cached: PublishedState | None = None) -> tuple[PublishedState, int]:
        """Take a step if one is due. Returns the published state then, and the number of reports by now."""
        while True:
            cached, found = self.read(collection, cached)
            if found.n < cached.next_at:
                return cached, found.n
            after = cached.after(found)
            # counting waits for this transaction alone
            replace = partial(self.replace, before=cached.identity, after=after, rows=after.changed_rows(cached))
            if self._database.write(replace):
                return after, found.n
            # another service took a step meanwhile: read it

    def state(self, connection: Any, collection: Collection) -> PublishedState:
        """Return the published state that a transaction sees."""
        sql = "SELECT kind, time_window, block, n FROM dperm_published WHERE task = ?"
        parts: dict[int, list[tuple[int, int, bytes]]] = {_COUNTED: [], _MOVED: [], _HELD: []}
        for kind, *row in self._database.rows(connection, sql, (self._registry.number(collection),)):
            parts[kind].append((row[0], row[1], row[2]))
        counted, moved, held = (Snapshot.from_blocks(collection, parts[kind]) for kind in (_COUNTED, _MOVED, _HELD))
        number, stamp = self._identity(connection, collection)
        return PublishedState(number, counted, moved, held, stamp)

    def replace(
        self, connection: Any, before: tuple[int, str], after: PublishedState, rows: list[tuple[int, int, int, bytes]]
    ) -> bool:
        """Store a state in place of the one with identity ``before``; False if that is no longer the stored one."""
        database, collection = self._database, after.counted.collection
        task = self._registry.number(collection)
        database.limit_lock_wait(connection)
        first = "INSERT INTO dperm_steps (task, number) VALUES (?, 0) ON CONFLICT (task) DO NOTHING"
        database.rows(connection, first, (task,))
        if self._identity(connection, collection, database.row_lock) != before:
            return False
        database.many(connection, _KEEP, [(task, *row) for row in rows])
        database.rows(connection, "UPDATE dperm_steps SET number = ? WHERE task = ?", (after.number, task))
        database.rows(connection, _STAMP, (_stamp_name(task), after.stamp))
        return True

    def _identity(self, connection: Any, collection: Collection, row_lock: str = "") -> tuple[int, str]:
        task = self._registry.number(collection)
        sql = f"SELECT number FROM dperm_steps WHERE task = ?{row_lock}"
        number = self._database.rows(connection, sql, (task,))
        # read after the lock on the number, under which it is written
        sql = "SELECT value FROM dperm_about WHERE name = ?"
        stamp = self._database.rows(connection, sql, (_stamp_name(task),))
        return int(number[0][0]) if number else 0, str(stamp[0][0]) if stamp else ""


def _fresh_stamp() -> str:
    return secrets.token_hex(16)


def _stamp_name(task: int) -> str:
    return f"step {task}"
