"""Transactions over a storage, with the state of each thread kept up to date row by row."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from dperm.errors import InvalidInput
from dperm.privacy.ledger import chain
from dperm.privacy.ledger.chain import Row
from dperm.privacy.ledger.postgres import PostgresStorage
from dperm.privacy.ledger.sqlite import SqliteStorage
from dperm.privacy.ledger.state import LedgerState
from dperm.privacy.ledger.storage import MemoryStorage, Reader, Storage

__all__ = ["Journal", "storage_at"]

T = TypeVar("T")


def storage_at(address: str | os.PathLike[str] | None) -> Storage:
    """Return the storage that an address means: None, a path, ``sqlite:///path`` or a PostgreSQL URL."""
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


class Journal:
    """The rows of one ledger, shared by all handles on it.

    Each thread folds the rows into its own state and reads only what is new, so no lock is needed and a forked
    child goes on from a valid state. Rows are applied only after they were committed.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._local = threading.local()

    def _caught_up(self, read: Reader) -> LedgerState:
        state: LedgerState = getattr(self._local, "state", None) or LedgerState()
        self._local.state = None  # a state that met a broken row is not used again
        state.catch_up(read)
        self._local.state = state
        return state

    def look(self, use: Callable[[LedgerState], T]) -> T:
        """Call ``use`` on the newest committed state."""
        return use(self.storage.read(self._caught_up))

    def write(self, decide: Callable[[LedgerState], tuple[list[dict[str, Any]], T]]) -> T:
        """Append the payloads that ``decide`` returns, in one transaction; its second value is passed on."""

        def linked(read: Reader) -> tuple[list[Row], T]:
            state = self._caught_up(read)
            payloads, result = decide(state)
            return chain.link(state.newest, payloads), result

        return self.storage.write(linked)

    def rows(self) -> list[Row]:
        """Read every row anew and check the whole chain."""

        def whole(read: Reader) -> list[Row]:
            rows = read(1)
            LedgerState().catch_up(lambda _: rows)
            return rows

        return self.storage.read(whole)
