"""What a collector needs of a database: transactions, statements, one sentence for every failure."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self, TypeVar

from dperm.collect.description import Collection
from dperm.errors import StoreError
from dperm.types import IntArray

__all__ = ["Database", "IntArray", "StoreConflict", "explained"]

T = TypeVar("T")

_MOST_CHANGES = 20


class StoreConflict(StoreError):
    """Another writer came first; nothing was written."""


class Database(ABC):
    """A database of a collector; SQLite and PostgreSQL fill in the rest.

    Attributes
    ----------
    shown : str
        The address without passwords.
    """

    shown: str
    #: makes a query lock the rows that it reads, where a database has several writers at once
    _locking = ""
    #: condition that a number is one of ``_several`` numbers, which are one value however many they are
    _among: str

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._known: dict[str, Collection] = {}

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
    def _several(self, numbers: list[int]) -> Any:
        """Return numbers as one value of a statement, for ``_among``."""

    def _hurry(self, connection: Any) -> None:  # noqa: B027
        """From now on in this transaction, a lock that another service holds for long is a :class:`StoreConflict`."""

    def _alone(self, connection: Any) -> None:  # noqa: B027
        """From now on in this transaction nobody else writes counters or steps, and all that they wrote is seen."""

    @abstractmethod
    def tidy(self) -> bool:
        """Drop what a database keeps of past transactions; called when no reports are waiting.

        Returns False where somebody was in the way, and it must be tried again.
        """

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


@contextmanager
def explained(say: Callable[[Exception], StoreError], *kinds: type[Exception]) -> Iterator[None]:
    """Turn a database's errors into one sentence."""
    try:
        yield
    except kinds as error:
        raise say(error) from None
