"""What a collector needs from a database: transactions, statements, spent ids, and one sentence for every failure."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from dperm.errors import StoreError
from dperm.types import IntArray

__all__ = ["Database", "SpentIds", "StoreConflict"]

T = TypeVar("T")

#: attempts at a transaction that other writers keep overtaking; each attempt waits for their locks first
_MOST_ATTEMPTS = 20


class StoreConflict(StoreError):
    """Another writer was faster; nothing was written."""


class SpentIds(ABC):
    """The ids of counted reports, in tables of their own for every collection."""

    @abstractmethod
    def make_tables(self, connection: Any, number: int) -> None:
        """Make the tables for the collection with this number."""

    @abstractmethod
    def find(self, connection: Any, number: int, keys: IntArray) -> list[tuple[int, int]]:
        """Return those of the keys that are spent, with their marks."""

    @abstractmethod
    def add(self, connection: Any, number: int, keys: IntArray, marks: IntArray) -> None:
        """Add keys with their marks; the keys are sorted and none of them is spent."""


class Database(ABC):
    """A database of a collector. SQLite and PostgreSQL implement it.

    Statements are the same for both, with ``?`` in place of values. What differs is named by the attributes below.

    Attributes
    ----------
    address : str
        Where the database is, without passwords.
    tables : mapping
        Columns of every table that all collections share, by its name.
    spent_ids : SpentIds
        The ids of counted reports.
    row_lock : str
        Ending of a query that locks the rows it reads; empty where a transaction excludes other writers anyway.
    is_listed : str
        Condition that a column is one of the numbers in :meth:`list_value`.
    """

    address: str
    tables: ClassVar[Mapping[str, str]]
    spent_ids: SpentIds
    row_lock: ClassVar[str]
    is_listed: ClassVar[str]

    def __init__(self) -> None:
        #: held during every writing transaction: all of them use one connection
        self.lock = threading.Lock()

    @abstractmethod
    def writing(self) -> AbstractContextManager[Any]:
        """A connection in a durable transaction; raises :class:`StoreConflict` if another writer was faster."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Any]:
        """A connection of its own that sees one state of the database."""

    def write(self, change: Callable[[Any], T]) -> T:
        """Run ``change`` with a connection in a durable transaction, again if another writer was faster."""
        for _ in range(_MOST_ATTEMPTS):
            try:
                with self.lock, self.writing() as connection:
                    return change(connection)
            except StoreConflict:
                continue
        raise StoreError(f"{self.address} was too busy: nothing was written, try again.")

    @abstractmethod
    def rows(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""

    @abstractmethod
    def many(self, connection: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for many rows."""

    @abstractmethod
    def list_value(self, numbers: list[int]) -> Any:
        """Return numbers as one value of a statement, for :attr:`is_listed`: databases limit how many values it has."""

    @abstractmethod
    def has_table(self, connection: Any, name: str) -> bool:
        """Whether there is a table of this name."""

    @abstractmethod
    def limit_lock_wait(self, connection: Any) -> None:
        """From now on in this transaction, waiting long for another service's lock is a :class:`StoreConflict`."""

    @abstractmethod
    def exclude_writers(self, connection: Any) -> None:
        """From now on in this transaction nobody else writes counters or steps, and all that they wrote is visible."""

    @abstractmethod
    def tidy(self) -> bool:
        """Remove the traces of past transactions; called when no reports are waiting.

        Returns False if another user of the database prevented it, and it must be tried again.
        """

    @abstractmethod
    def check_copy(self, target: Path) -> None:
        """Raise if no copy can be written to ``target``."""

    @abstractmethod
    def copy_to(self, target: Path, finish: Callable[[Path], None]) -> None:
        """Write a consistent copy; ``finish`` changes it before it appears at ``target``."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""
