"""A collector's database in PostgreSQL: several services may share one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from dperm.collect.store.database import Database, SpentIds, StoreConflict
from dperm.errors import MissingDependency, StoreError, Unsupported
from dperm.types import IntArray

__all__ = ["PostgresDatabase", "PostgresSpentIds"]

_CONNECT_SECONDS = 10
#: how long tidying waits for users of the counters: reports wait behind it
_TIDY_MILLISECONDS = 50
#: how long a step waits at once for another service's step: reports wait behind it
_STEP_MILLISECONDS = 50


class PostgresSpentIds(SpentIds):
    """Spent ids in one table for each collection."""

    def make_tables(self, connection: Any, number: int) -> None:
        connection.execute(f"CREATE TABLE dperm_spent_{number} (id BIGINT PRIMARY KEY, mark INTEGER NOT NULL)")

    def find(self, connection: Any, number: int, keys: IntArray) -> list[tuple[int, int]]:
        sql = f"SELECT id, mark FROM dperm_spent_{number} WHERE id = ANY(%s)"
        return list(connection.execute(sql, (keys.tolist(),), binary=True))

    def add(self, connection: Any, number: int, keys: IntArray, marks: IntArray) -> None:
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY dperm_spent_{number} (id, mark) FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types(["int8", "int4"])
            for row in zip(keys.tolist(), marks.tolist(), strict=True):
                copy.write_row(row)


class PostgresDatabase(Database):
    """A database on a PostgreSQL server; a lost connection is opened again for the next transaction.

    Parameters
    ----------
    url : str
        Its address, with a password if it needs one.
    create : bool
        Whether the collector's tables may be missing.
    """

    tables: ClassVar[Mapping[str, str]] = {
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
    row_lock = " FOR UPDATE"
    is_listed = "= ANY(?)"

    def __init__(self, url: str, *, create: bool) -> None:
        super().__init__()
        try:
            import psycopg
        except ImportError:
            raise MissingDependency(
                "a PostgreSQL database needs psycopg, which is not installed: pip install 'dperm[collect]'."
            ) from None
        self._driver = psycopg
        self.url = url
        about = psycopg.conninfo.conninfo_to_dict(url)
        self.address = f"postgresql://{about.get('host', '')}/{about.get('dbname', '')}"
        self._password = str(about.get("password") or "")
        self.spent_ids = PostgresSpentIds()
        self.connection: Any = None
        if not create:
            with self.reading() as connection:
                if not self.has_table(connection, "dperm_tasks"):
                    raise StoreError(f"there is no collector's database in {self.address}: check the address.")

    def _connect(self) -> Any:
        return self._driver.connect(
            self.url, connect_timeout=_CONNECT_SECONDS, application_name="dperm collect", autocommit=True
        )

    def _connected(self) -> Any:
        """Return the connection that writes, opened again if it was lost."""
        if self.connection is None or self.connection.closed:
            self.connection = self._connect()
        return self.connection

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn PostgreSQL's errors into one sentence, without the password."""
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
            raise StoreConflict("another writer was faster: nothing was written, try again.") from None
        except self._driver.Error as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = lines[0].replace(self._password, "***") if self._password else lines[0]
            raise StoreError(f"{self.address} failed ({reason}): nothing was acknowledged, try again.") from None

    @contextmanager
    def writing(self) -> Iterator[Any]:
        with self._explaining():
            connection = self._connected()
            try:
                with connection.transaction():
                    # a server may be configured to acknowledge commits that a power cut undoes
                    connection.execute("SET LOCAL synchronous_commit = on")
                    yield connection
            except self._driver.errors.LockNotAvailable:
                raise  # the connection is as good as before
            except self._driver.OperationalError:
                with suppress(self._driver.Error):
                    connection.close()
                raise

    @contextmanager
    def reading(self) -> Iterator[Any]:
        with self._explaining(), self._connect() as connection:
            connection.isolation_level = self._driver.IsolationLevel.REPEATABLE_READ
            with connection.transaction():
                yield connection

    def rows(self, connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = connection.execute(sql.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description is not None else []

    def many(self, connection: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), rows)

    def list_value(self, numbers: list[int]) -> list[int]:
        return numbers

    def has_table(self, connection: Any, name: str) -> bool:
        return self.rows(connection, "SELECT to_regclass(?)", (name,))[0][0] is not None

    def limit_lock_wait(self, connection: Any) -> None:
        # a service that hangs in its step would delay the reports of all others
        connection.execute(f"SET LOCAL lock_timeout = {_STEP_MILLISECONDS}")

    def exclude_writers(self, connection: Any) -> None:
        # Every statement sees what was committed by then, so without a lock two of them may see different states.
        # dperm_steps comes first, in the order in which a step locks; a row that is only locked counts as written.
        self.limit_lock_wait(connection)
        connection.execute("LOCK TABLE dperm_steps, dperm_published, dperm_counters, dperm_merged IN EXCLUSIVE MODE")

    def tidy(self) -> bool:
        """Write counters and published states to fresh files: the old ones still hold the bytes of earlier states.

        A plain VACUUM only marks the place of replaced rows as free. Tidying does not wait for users of the counters.
        Rows that somebody could still see are copied too (an older or prepared transaction of any role, a replica);
        then it is tried again later. The server reports how many it had to copy.
        """
        kept: list[str] = []

        def listen(notice: Any) -> None:
            kept.extend(re.findall(r"\d+", notice.message_detail or "")[:1])  # the number, in any server language

        with self.lock, self._explaining():
            connection = self._connected()  # earlier states stay on the server's disk when a connection is lost
            connection.execute(f"SET lock_timeout = {_TIDY_MILLISECONDS}")
            connection.add_notice_handler(listen)
            try:
                connection.execute("VACUUM (FULL, VERBOSE) dperm_counters, dperm_published")
            except self._driver.errors.LockNotAvailable:
                return False
            finally:
                connection.remove_notice_handler(listen)
                with suppress(self._driver.Error):  # a lost connection has no settings to reset
                    connection.execute("RESET lock_timeout")
            return kept == ["0", "0"]

    def check_copy(self, target: Path) -> None:
        raise Unsupported(f"{self.address} is backed up with PostgreSQL's own pg_dump.")

    def copy_to(self, target: Path, finish: Callable[[Path], None]) -> None:
        self.check_copy(target)

    def close(self) -> None:
        with self.lock:
            if self.connection is not None:
                self.connection.close()
