"""Rows in a PostgreSQL table, for ledgers shared between machines."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from dperm.errors import LedgerError, LedgerUnreadable, MissingDependency
from dperm.privacy.ledger.chain import Row
from dperm.privacy.ledger.storage import Reader, Storage

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresStorage"]

T = TypeVar("T")
_CREATE = (
    "CREATE TABLE dperm_ledger "
    "(seq BIGINT PRIMARY KEY, previous TEXT NOT NULL, payload TEXT NOT NULL, hash TEXT NOT NULL)"
)
_SELECT = "SELECT seq, previous, payload, hash FROM dperm_ledger WHERE seq >= %s ORDER BY seq"
_INSERT = "INSERT INTO dperm_ledger (seq, previous, payload, hash) VALUES (%s, %s, %s, %s)"
_ADVISORY_KEY = 0x6470_6572_6D6C_6564  # "dpermled"
_ATTEMPTS = 20
_LOCK_SECONDS = 30
_CONNECT_SECONDS = 10


class PostgresStorage(Storage):
    """The table ``dperm_ledger`` of one database; each transaction has its own connection."""

    def __init__(self, url: str) -> None:
        self.address = url
        self.label, self._secrets = _without_secrets(url)
        self._options: dict[str, Any] = {"application_name": "dperm ledger"}
        if "connect_timeout" not in dict(parse_qsl(urlsplit(url).query)):
            self._options["connect_timeout"] = _CONNECT_SECONDS

    def open(self, first: Row, *, create: bool) -> None:
        def attempt(connection: psycopg.Connection[Any]) -> None:
            found = connection.execute("SELECT to_regclass('dperm_ledger')").fetchone()
            if found is not None and found[0] is not None:
                return
            if not create:
                raise LedgerUnreadable(f"there is no ledger in {self.label}: check the address.")
            connection.execute(_CREATE)
            connection.execute(_INSERT, (first.seq, first.previous, first.payload, first.digest))

        self._serialised(attempt)

    def read(self, use: Callable[[Reader], T]) -> T:
        with self._connected() as connection:
            connection.isolation_level = _psycopg().IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                return use(lambda seq: _rows(connection, seq))

    def write(self, decide: Callable[[Reader], tuple[list[Row], T]]) -> T:
        def attempt(connection: psycopg.Connection[Any]) -> T:
            rows, result = decide(lambda seq: _rows(connection, seq))
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT, [(r.seq, r.previous, r.payload, r.digest) for r in rows])
            return result

        return self._serialised(attempt)

    def _serialised(self, attempt: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Run ``attempt`` in a SERIALIZABLE transaction, one at a time in the whole database.

        The advisory lock is taken before the transaction takes its snapshot, so waiting writers see the rows of
        those before them; it needs no more rights than SELECT and INSERT. SERIALIZABLE and the primary key hold
        where a connection pooler drops the lock; only failures that certainly wrote nothing are retried.
        """
        driver = _psycopg()
        for number in range(_ATTEMPTS):
            try:
                with self._connected() as connection:
                    connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
                    connection.execute("SELECT pg_advisory_lock(%s)", (_ADVISORY_KEY,))
                    connection.isolation_level = driver.IsolationLevel.SERIALIZABLE
                    with connection.transaction():
                        # a server may be set up to acknowledge commits that a power cut undoes
                        connection.execute("SET LOCAL synchronous_commit = on")
                        return attempt(connection)
            except _Conflict:
                time.sleep(random.uniform(0.0, 0.01 * 2 ** min(number, 5)))
        raise LedgerError(f"{self.label} was too busy for {_ATTEMPTS} attempts: nothing was written, try again.")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        driver = _psycopg()
        try:
            connection = driver.connect(str(self.address), autocommit=True, **self._options)
        except driver.Error as error:
            raise LedgerUnreadable(
                f"the ledger server {self.label} cannot be reached ({self._reason(error)}): check the address."
            ) from None
        try:
            with contextlib.closing(connection):
                yield connection
        except (
            driver.errors.SerializationFailure,
            driver.errors.DeadlockDetected,
            driver.errors.UniqueViolation,
            driver.errors.DuplicateTable,
        ):
            raise _Conflict("another writer came first: nothing was written, try again.") from None
        except driver.errors.LockNotAvailable:
            raise LedgerError(
                f"{self.label} was busy for {_LOCK_SECONDS} seconds: nothing was written, try again."
            ) from None
        except (driver.errors.UndefinedTable, driver.errors.UndefinedColumn):
            raise LedgerUnreadable(f"{self.label} holds no ledger: check the address.") from None
        except driver.errors.InsufficientPrivilege as error:
            raise LedgerUnreadable(
                f"{self.label} gives this user no access to the table dperm_ledger ({self._reason(error)}): "
                "ask for SELECT and INSERT."
            ) from None
        except driver.Error as error:
            # a connection lost during COMMIT may have committed: then the reservation counts, the safe side
            raise LedgerError(
                f"{self.label} failed ({self._reason(error)}): nothing was released, try again."
            ) from None

    def _reason(self, error: Exception) -> str:
        lines = str(error).strip().splitlines()
        text = lines[0] if lines else type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


class _Conflict(LedgerError):
    """Another writer came first; nothing was written."""


def _rows(connection: psycopg.Connection[Any], seq: int) -> list[Row]:
    return [Row(*found) for found in connection.execute(_SELECT, (seq,))]


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingDependency(
            "a PostgreSQL ledger needs psycopg, which is not installed: pip install 'dperm[postgres]'."
        ) from None
    return psycopg


def _without_secrets(url: str) -> tuple[str, list[str]]:
    """Return the address without passwords, and the passwords that no message may repeat."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    public = [(key, value) for key, value in pairs if "password" not in key]
    secrets = [password, unquote(password), *(value for key, value in pairs if "password" in key)]
    query = f"?{urlencode(public, safe='/')}" if public else ""
    return f"{parts.scheme}://{name}{at}{host}{parts.path}{query}", [secret for secret in secrets if secret]
