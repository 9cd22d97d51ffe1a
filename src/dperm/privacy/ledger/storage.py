"""Where rows are kept: the interface of a storage, the storage in memory, and the address of each kind.

A storage knows transactions and rows, nothing about privacy. ``write`` gives its callback a reader that sees
the newest committed rows while nobody else can write, and appends what the callback returns; if the callback
raises, nothing is written. The callback may run again after a serialisation failure.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from dperm.errors import InvalidInput, LedgerError
from dperm.privacy.ledger.chain import Row

__all__ = ["MemoryStorage", "Reader", "Storage", "storage_at"]

T = TypeVar("T")
Reader = Callable[[int], list[Row]]
"""Returns the rows numbered at least its argument, in order."""


class Storage(ABC):
    """Append-only rows behind transactions."""

    address: str | None
    """The address that reopens this storage; None if it cannot be reopened."""
    label: str
    """How messages name this storage, without a password."""

    @abstractmethod
    def open(self, first: Row, *, create: bool) -> None:
        """Check that the storage exists, or create it holding ``first``."""

    @abstractmethod
    def read(self, use: Callable[[Reader], T]) -> T:
        """Call ``use`` on one consistent snapshot."""

    @abstractmethod
    def write(self, decide: Callable[[Reader], tuple[list[Row], T]]) -> T:
        """Append the rows that ``decide`` returns and commit; return its second value."""


class MemoryStorage(Storage):
    """Rows in a list. A forked child is refused: it would hold a copy that its parent never sees."""

    address = None
    label = "the ledger in memory"

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def open(self, first: Row, *, create: bool) -> None:
        self._rows.append(first)

    def read(self, use: Callable[[Reader], T]) -> T:
        self._check_process()
        with self._lock:
            return use(self._since)

    def write(self, decide: Callable[[Reader], tuple[list[Row], T]]) -> T:
        self._check_process()
        with self._lock:
            rows, result = decide(self._since)
            self._rows.extend(rows)
            return result

    def _since(self, seq: int) -> list[Row]:
        return self._rows[max(seq - 1, 0) :]

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError(
                "a ledger in memory belongs to the process that made it: "
                "share one between processes with a file, as in Ledger('budget.db')."
            )


def storage_at(address: str | os.PathLike[str] | None) -> Storage:
    """Return the storage at an address: None (memory), a path, ``sqlite:///path`` or a PostgreSQL URL."""
    # here, because both modules import their base class from this one
    from dperm.privacy.ledger.postgres import PostgresStorage
    from dperm.privacy.ledger.sqlite import SqliteStorage

    if address is None:
        return MemoryStorage()
    if not isinstance(address, str | os.PathLike):
        raise InvalidInput(f"a ledger's address is a path or a URL, not {type(address).__name__}.")
    text = os.fspath(address)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise InvalidInput("a ledger's address is a path or a URL, and not empty.")
    scheme, separator, rest = text.partition("://")
    if not separator or isinstance(address, os.PathLike):
        return SqliteStorage(text)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return SqliteStorage(rest[1:])
    if scheme in ("postgresql", "postgres"):
        try:
            return PostgresStorage(text)
        except ValueError:
            raise InvalidInput("the PostgreSQL address of the ledger is not a valid URL.") from None
    raise InvalidInput(
        f"a ledger cannot be kept at {scheme}://...: use a path, sqlite:///path or postgresql://user@host/database."
    )
