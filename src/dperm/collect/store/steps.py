"""What is published of a collection, in the database: all services publish the same. Proof: ``store.proof.md``.

Whoever finds that a step is due computes it from one view of the database, without holding anybody up. The transaction
that keeps it looks again, under a lock, whether what was published is still what the step was computed from.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dperm.collect.description import Collection
from dperm.collect.store.counters import Counters, Snapshot
from dperm.collect.store.database import StoreConflict
from dperm.errors import StoreError

__all__ = ["LEAST_STEP", "Published", "Steps", "step"]

#: an estimate waits for so many new reports, or for one in a hundred of those it has, whichever is more
LEAST_STEP = 20
_SHARE = 100

#: what a row of the published state holds
_COUNTED, _MOVED, _HELD = 0, 1, 2
_KEEP = (
    "INSERT INTO dperm_published (task, kind, time_window, block, n) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (task, kind, time_window, block) DO UPDATE SET n = excluded.n"
)
_STAMP = "INSERT INTO dperm_about (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


def step(n: int) -> int:
    """Return how many new reports the estimate after one of ``n`` reports waits for."""
    return max(LEAST_STEP, n // _SHARE)


@dataclass(frozen=True)
class Published:
    """What is published of a collection.

    Attributes
    ----------
    number : int
        How often it was changed.
    counted : Snapshot
        The counters at the last step, or, after that, at the moment at which a copy of the database was made.
    moved : Snapshot
        What is shown in another window than the one that counted it, to be added to the counters.
    held : Snapshot
        What was counted between the last step and the moment of the copy: it is not shown yet.
    stamp : str
        Random: a database that was set back comes to the same numbers with other states. Those of versions that kept
        no stamp have an empty one.
    """

    number: int
    counted: Snapshot
    moved: Snapshot
    held: Snapshot
    stamp: str = ""

    @property
    def which(self) -> tuple[int, str]:
        """What no two states share."""
        return self.number, self.stamp

    @property
    def shown(self) -> Snapshot:
        """What everybody sees."""
        held = [(window, at, -n) for window, at, n in self.held.rows]
        return Snapshot(self.counted.collection, [*self.counted.rows, *self.moved.rows, *held])

    @property
    def n(self) -> int:
        """How many reports everybody sees."""
        return self.counted.n - self.held.n

    @property
    def next_at(self) -> int:
        """How many reports the next step needs: also 20 that were counted since a copy was made."""
        return max(self.n + step(self.n), self.counted.n + LEAST_STEP)

    def after(self, found: Snapshot) -> Published:
        """Return the next step. A window's part of it that is too small to be seen goes to the step's largest."""
        one, before = found.collection, self.counted.windows
        grown = {window: n - before.get(window, 0) for window, n in found.windows.items()}
        largest, moved = max(grown, key=grown.__getitem__), list(self.moved.rows)
        # what was held is seen only together with enough that came later: the original may have shown it otherwise
        less = [(window, at, -n) for window, at, n in self.counted.rows]
        for window, at, part in Snapshot(one, [*found.rows, *less, *self.held.rows]).joined().rows:
            if window != largest and grown[window] < LEAST_STEP:
                moved += [(window, at, -part), (largest, at, part)]
        return Published(self.number + 1, found, Snapshot(one, moved).joined(), Snapshot(one, []), _fresh_stamp())

    def holding(self, found: Snapshot) -> Published:
        """Return what a copy of the database begins with; its counters are those found."""
        one = found.collection
        less = [(window, at, -n) for window, at, n in self.counted.rows]
        held = Snapshot(one, [*self.held.rows, *found.rows, *less]).joined()
        return Published(self.number + 1, found, self.moved, held, _fresh_stamp())

    def rows(self, before: Published) -> list[tuple[int, int, int, bytes]]:
        """Return rows of the database that differ from those before: kind, window, block and content of each."""
        out = []
        for kind, was, now in (
            (_COUNTED, before.counted, self.counted),
            (_MOVED, before.moved, self.moved),
            (_HELD, before.held, self.held),
        ):
            old, new = was.blocks(), now.blocks()
            for where in sorted(old.keys() | new.keys()):
                # rows are never removed: writing over them is what takes their content from a file
                found = new[where] if where in new else np.zeros_like(old[where])
                if where not in old or not np.array_equal(old[where], found):
                    out.append((kind, *where, found.astype("<i8").tobytes()))
        return out


class Steps(Counters):
    """The published states of a database."""

    def look(self, collection: Collection, known: Published | None = None) -> tuple[Published, Snapshot]:
        """Return what is published and all counters, merged ones included, both of one moment.

        Parameters
        ----------
        collection : Collection
            Whose they are.
        known : Published, optional
            What was published a moment ago: it is read again only if it has changed.
        """
        with self._reading() as connection:
            if known is None or known.which != self._which(connection, collection):
                known = self._published(connection, collection)
            return known, self._snapshot(connection, collection)

    def publish(self, collection: Collection, known: Published | None = None) -> tuple[Published, int]:
        """Take a step if one is due. Returns what is published then, and how many reports there are by now."""
        while True:
            known, found = self.look(collection, known)
            if found.n < known.next_at:
                return known, found.n
            after = known.after(found)
            # whoever counts reports waits for the transaction alone
            if self._write(partial(self._replace, before=known.which, after=after, rows=after.rows(known))):
                return after, found.n
            # another service took a step meanwhile: see which

    def rename(self) -> None:
        """Count under a new name from now on, and publish nothing but steps of reports that are counted from now on.

        For copies: the original goes on counting under its name, and publishes steps that a copy does not know.
        """

        def move(connection: Any) -> None:
            self._alone(connection)  # a step or a report between what is read and what is written would be lost
            tasks = {number for (number,) in self._rows(connection, "SELECT number FROM dperm_tasks")}
            if tasks != set(self._numbers.values()):  # what it counted is not known here, and would be lost
                raise StoreError(f"a collection was added to {self.shown} meanwhile: nothing was written, try again.")
            for one in self._known.values():
                before = self._published(connection, one)
                after = before.holding(self._snapshot(connection, one))
                if not self._replace(connection, before.which, after, after.rows(before)):
                    raise StoreConflict("a step was taken meanwhile: nothing was written, try again.")
            self._rename(connection)

        self._write(move)

    def _which(self, connection: Any, collection: Collection, locking: str = "") -> tuple[int, str]:
        task = self._numbers[collection.digest]
        number = self._rows(connection, f"SELECT number FROM dperm_steps WHERE task = ?{locking}", (task,))
        # read after the lock on the number, under which it is written
        stamp = self._rows(connection, "SELECT value FROM dperm_about WHERE name = ?", (_stamp_name(task),))
        return int(number[0][0]) if number else 0, str(stamp[0][0]) if stamp else ""

    def _published(self, connection: Any, collection: Collection) -> Published:
        sql = "SELECT kind, time_window, block, n FROM dperm_published WHERE task = ?"
        parts: dict[int, list[tuple[int, int, bytes]]] = {_COUNTED: [], _MOVED: [], _HELD: []}
        for kind, *row in self._rows(connection, sql, (self._numbers[collection.digest],)):
            parts[kind].append((row[0], row[1], row[2]))
        kept = [Snapshot.of_blocks(collection, parts[kind]) for kind in (_COUNTED, _MOVED, _HELD)]
        number, stamp = self._which(connection, collection)
        return Published(number, *kept, stamp)

    def _replace(
        self, connection: Any, before: tuple[int, str], after: Published, rows: list[tuple[int, int, int, bytes]]
    ) -> bool:
        """Keep a state in the place of another one; False if that is no longer the one that is kept."""
        collection = after.counted.collection
        task = self._numbers[collection.digest]
        self._hurry(connection)
        first = "INSERT INTO dperm_steps (task, number) VALUES (?, 0) ON CONFLICT (task) DO NOTHING"
        self._rows(connection, first, (task,))
        if self._which(connection, collection, self._locking) != before:
            return False
        self._many(connection, _KEEP, [(task, *row) for row in rows])
        self._rows(connection, "UPDATE dperm_steps SET number = ? WHERE task = ?", (after.number, task))
        self._rows(connection, _STAMP, (_stamp_name(task), after.stamp))
        return True


def _fresh_stamp() -> str:
    return secrets.token_hex(16)


def _stamp_name(task: int) -> str:
    return f"step {task}"
