"""A collector's database in PostgreSQL: several services may share one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from dperm.collect.store.database import IntArray, StoreConflict
from dperm.collect.store.store import Store
from dperm.errors import MissingDependency, StoreError, Unsupported

__all__ = ["PostgresStore"]

_TABLES = {
    "dperm_about": "(name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "dperm_tasks": "(number INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, "
    "name TEXT NOT NULL, version INTEGER NOT NULL, document TEXT NOT NULL, UNIQUE (name, version))",
    "dperm_counters": "(task INTEGER, time_window BIGINT, block BIGINT, n BYTEA NOT NULL, "
    "PRIMARY KEY (task, time_window, block)) WITH (fillfactor = 50)",
    "dperm_merged": "(task INTEGER, collector TEXT, time_window BIGINT, cell BIGINT, "
    "n BIGINT NOT NULL, PRIMARY KEY (task, collector, time_window, cell))",
    "dperm_steps": "(task INTEGER PRIMARY KEY, number BIGINT NOT NULL)",
    "dperm_published": "(task INTEGER, kind INTEGER, time_window BIGINT, block BIGINT, "
    "n BYTEA NOT NULL, PRIMARY KEY (task, kind, time_window, block))",
}
_CONNECT_SECONDS = 10
#: how long tidying waits for whoever uses the counters: reports wait behind it
_TIDY_MILLISECONDS = 50
#: how long a step waits at once for another service's: reports wait behind it
_STEP_MILLISECONDS = 50


class PostgresStore(Store):
    """Counters and spent ids in one database; a lost connection is opened again with the next transaction."""

    _locking = " FOR UPDATE"
    _among = "= ANY(?)"

    def __init__(self, url: str, *, create: bool) -> None:
        super().__init__()
        try:
            import psycopg
        except ImportError:
            raise MissingDependency(
                "a PostgreSQL database needs psycopg, which is not installed: pip install 'dperm[collect]'."
            ) from None
        self._driver = psycopg
        self._url = url
        about = psycopg.conninfo.conninfo_to_dict(url)
        self.shown = f"postgresql://{about.get('host', '')}/{about.get('dbname', '')}"
        self._secret = str(about.get("password") or "")
        self._connection: Any = None
        if not create:
            with self._reading() as connection:
                if not self._has_table(connection, "dperm_tasks"):
                    raise StoreError(f"there is no collector's database in {self.shown}: check the address.")
        try:
            self._start(_TABLES, create=create)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Any:
        return self._driver.connect(
            self._url, connect_timeout=_CONNECT_SECONDS, application_name="dperm collect", autocommit=True
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        errors = self._driver.errors
        try:
            yield
        except (
            errors.UniqueViolation,
            errors.DeadlockDetected,
            errors.SerializationFailure,
            errors.DuplicateTable,
            errors.LockNotAvailable,
        ):
            raise StoreConflict("another writer came first: nothing was written, try again.") from None
        except self._driver.Error as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = lines[0].replace(self._secret, "***") if self._secret else lines[0]
            raise StoreError(f"{self.shown} failed ({reason}): nothing was acknowledged, try again.") from None

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._explained():
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            try:
                with self._connection.transaction():
                    # a server may be set up to acknowledge commits that a power cut undoes
                    self._connection.execute("SET LOCAL synchronous_commit = on")
                    yield self._connection
            except self._driver.errors.LockNotAvailable:
                raise  # the connection is as good as before
            except self._driver.OperationalError:
                with suppress(self._driver.Error):
                    self._connection.close()
                raise

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._explained(), self._connect() as connection:
            connection.isolation_level = self._driver.IsolationLevel.REPEATABLE_READ
            with connection.transaction():
                yield connection

    def _rows(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = connection.execute(sql.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description is not None else []

    def _many(self, connection: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), rows)

    def _hurry(self, connection: Any) -> None:
        # a service that stands still in its step would hold up the reports of all others
        connection.execute(f"SET LOCAL lock_timeout = {_STEP_MILLISECONDS}")

    def _alone(self, connection: Any) -> None:
        # Every statement sees what was written by then, so that without a lock two of them may see different states.
        # Numbers of steps come first, as for whoever takes a step; rows that are only locked count as being written.
        self._hurry(connection)
        connection.execute("LOCK TABLE dperm_steps, dperm_published, dperm_counters, dperm_merged IN EXCLUSIVE MODE")

    def _several(self, numbers: list[int]) -> list[int]:
        return numbers

    def _has_table(self, connection: Any, name: str) -> bool:
        return self._rows(connection, "SELECT to_regclass(?)", (name,))[0][0] is not None

    def _make_spent_table(self, connection: Any, number: int) -> None:
        connection.execute(f"CREATE TABLE dperm_spent_{number} (id BIGINT PRIMARY KEY, mark INTEGER NOT NULL)")

    def _spent(self, connection: Any, number: int, keys: IntArray) -> list[tuple[int, int]]:
        sql = f"SELECT id, mark FROM dperm_spent_{number} WHERE id = ANY(%s)"
        return list(connection.execute(sql, (keys.tolist(),), binary=True))

    def _spend(self, connection: Any, number: int, keys: IntArray, marks: IntArray) -> None:
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY dperm_spent_{number} (id, mark) FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types(["int8", "int4"])
            for row in zip(keys.tolist(), marks.tolist(), strict=True):
                copy.write_row(row)

    def tidy(self) -> bool:
        """Write counters and what is published to fresh files: the old ones hold, byte for byte, what they were before.

        A plain VACUUM only marks the place of replaced rows as free. Whoever uses the counters now is not waited for,
        and rows that somebody could still see are copied too, whoever it is (an older or prepared transaction of any
        role, a replica): then the next quiet moment will do. The server itself says how many it had to copy.
        """
        left: list[str] = []

        def listen(notice: Any) -> None:
            left.extend(re.findall(r"\d+", notice.message_detail or "")[:1])  # whatever the server's language

        with self._lock, self._explained():
            if self._connection is None or self._connection.closed:  # what it left on the server's disk is still there
                self._connection = self._connect()
            connection = self._connection
            connection.execute(f"SET lock_timeout = {_TIDY_MILLISECONDS}")
            connection.add_notice_handler(listen)
            try:
                connection.execute("VACUUM (FULL, VERBOSE) dperm_counters, dperm_published")
            except self._driver.errors.LockNotAvailable:
                return False
            finally:
                connection.remove_notice_handler(listen)
                with suppress(self._driver.Error):  # a lost connection forgets it by itself
                    connection.execute("RESET lock_timeout")
            return left == ["0", "0"]

    def backup(self, path: str | os.PathLike[str]) -> None:
        raise Unsupported(f"{self.shown} is backed up with PostgreSQL's own pg_dump.")

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
