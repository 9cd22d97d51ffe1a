"""Storages: what happens when a ledger cannot be read or written."""

from __future__ import annotations

import os
import pickle
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from dperm import atomic_files as files
from dperm.errors import InvalidInput, LedgerError, LedgerTampered, LedgerUnreadable, MissingDependency
from dperm.privacy.accounting.events import Gaussian
from dperm.privacy.ledger import Ledger, ReleaseRecord, postgres


def filled(path: Path, n: int = 40) -> Ledger:
    ledger = Ledger(path)
    for _ in range(n):
        ledger.reserve(Gaussian(50.0), "replace-one", "some fit").settle([ReleaseRecord("g", Gaussian(50.0))])
    return ledger


# ---------------------------------------------------------------------------------------- files
def test_a_new_file_is_private_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    Ledger(path)
    assert os.listdir(tmp_path) == ["budget.db"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or sys.platform == "win32"


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(files.os, "link", unsupported)
    path = tmp_path / "budget.db"
    head = Ledger(path).head
    assert os.listdir(tmp_path) == ["budget.db"]
    with files.create_exclusively(path) as draft:
        draft.write_text("the second of two racing processes")
    assert Ledger(path).head == head


@pytest.mark.parametrize("content", [b"", b"name,age\nx,3\n", b"x" * 100_000, b"SQLite format 3\0"])
def test_files_that_are_no_ledger(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    path.write_bytes(content)
    with pytest.raises(LedgerUnreadable, match=r"is (empty|not a ledger)"):
        Ledger(path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["budget.db"]


def test_another_sqlite_file(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE people (name TEXT)")
    content = path.read_bytes()
    with pytest.raises(LedgerUnreadable, match="is not a ledger"):
        Ledger(path)
    assert path.read_bytes() == content


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnreadable, match="is a folder"):
        Ledger(tmp_path)
    with pytest.raises(LedgerUnreadable, match="cannot be opened"):
        Ledger(tmp_path / "missing" / "budget.db")
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerUnreadable, match="cannot be opened"):
        Ledger(tmp_path / "file" / "budget.db")
    assert sorted(os.listdir(tmp_path)) == ["file"]


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_file(part: float, tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    filled(path)
    content = path.read_bytes()
    content = content[: int(len(content) * part)]
    path.write_bytes(content)
    with pytest.raises((LedgerUnreadable, LedgerTampered)) as caught:
        Ledger(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_a_file_with_flipped_bytes(tmp_path: Path) -> None:
    """Every flip inside a row's payload or in the table's structure is an error of ours, or changes no row."""
    path = tmp_path / "budget.db"
    head = filled(path).head
    whole = path.read_bytes()
    noticed = 0
    for position in range(30, len(whole), 997):
        content = bytearray(whole)
        content[position] ^= 0x55
        path.write_bytes(content)
        try:
            assert Ledger(path).verify(head) == head
        except LedgerError:
            noticed += 1
    assert noticed > 20


def test_a_lost_file_with_a_journal(tmp_path: Path) -> None:
    (tmp_path / "budget.db-journal").write_bytes(b"half a transaction")
    with pytest.raises(LedgerUnreadable, match="journal"):
        Ledger(tmp_path / "budget.db")


def test_a_file_that_disappears_or_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    ledger = filled(path, 1)
    path.unlink()
    with pytest.raises(LedgerUnreadable, match="cannot be opened"):
        ledger.reserve(Gaussian(9.0), "replace-one")
    assert not path.exists()
    filled(path, 2)
    with pytest.raises(LedgerTampered, match="changed since"):
        ledger.reserve(Gaussian(9.0), "replace-one")


def test_a_link_is_the_same_ledger(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "budget.db", 1)
    (tmp_path / "link.db").symlink_to(tmp_path / "budget.db")
    assert Ledger(tmp_path / "link.db").address == ledger.address


def test_opening_without_creating(address: str) -> None:
    with pytest.raises(LedgerUnreadable, match="no ledger"):
        Ledger(address, create=False)
    Ledger(address)
    Ledger(address, create=False)


# ---------------------------------------------------------------------------------------- servers
def test_an_unreachable_server_is_reported_without_its_password(tmp_path: Path) -> None:
    secret = "s%C3%A9same-4711"
    for url in (
        f"postgresql://me:{secret}@127.0.0.1:1/db",
        f"postgresql://me@127.0.0.1:1/db?password={secret}&connect_timeout=2",
        f"postgresql://me:{secret}@/db?host={tmp_path}",
        f"postgresql://me:{secret}@127.0.0.1:1/db?nonsense=1",
    ):
        with pytest.raises(LedgerUnreadable, match="cannot be reached") as caught:
            Ledger(url)
        assert "\n" not in str(caught.value)
        assert "4711" not in str(caught.value)
    with pytest.raises(InvalidInput, match="not a valid URL"):
        Ledger("postgresql://[me/db")


def test_repr_of_a_server_ledger_shows_no_password(database: str) -> None:
    ledger = Ledger(database.replace("postgres@", "postgres:sesame@"))
    assert "sesame" not in repr(ledger)
    assert "postgresql://postgres@/" in repr(ledger)
    assert pickle.loads(pickle.dumps(ledger)).head == ledger.head


def test_a_table_that_is_no_ledger(database: str) -> None:
    with psycopg.connect(database) as server:
        server.execute("CREATE TABLE dperm_ledger (name TEXT)")
    with pytest.raises(LedgerUnreadable, match="holds no ledger"):
        Ledger(database)


def test_a_user_without_rights(database: str) -> None:
    ledger = Ledger(database)
    with psycopg.connect(database, autocommit=True) as server:
        server.execute(f"CREATE ROLE guest_{os.getpid()} LOGIN")
    guest = database.replace("postgres@", f"guest_{os.getpid()}@")
    with pytest.raises(LedgerUnreadable, match="no access"):
        Ledger(guest)
    with psycopg.connect(database, autocommit=True) as server:
        server.execute(f"GRANT SELECT ON dperm_ledger TO guest_{os.getpid()}")
    reader = Ledger(guest)
    with pytest.raises(LedgerError, match="no access"):
        reader.reserve(Gaussian(9.0), "replace-one")
    with psycopg.connect(database, autocommit=True) as server:
        server.execute(f"GRANT INSERT ON dperm_ledger TO guest_{os.getpid()}")
    reader.reserve(Gaussian(9.0), "replace-one")  # appending needs no right to change rows
    assert ledger.spent().n_fits == 1


def test_serialisation_failures_are_retried_and_bounded(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(database)
    kept = postgres._rows
    failures = iter([True, True])

    def conflicting(connection: psycopg.Connection[object], seq: int) -> object:
        rows = kept(connection, seq)
        if next(failures, False):
            raise psycopg.errors.SerializationFailure("planted")
        return rows

    monkeypatch.setattr(postgres, "_rows", conflicting)
    ledger.reserve(Gaussian(9.0), "replace-one")
    assert ledger.spent().n_fits == 1

    failures = iter([True] * 1000)
    monkeypatch.setattr(postgres, "_ATTEMPTS", 3)
    with pytest.raises(LedgerError, match="too busy for 3 attempts"):
        ledger.reserve(Gaussian(9.0), "replace-one")
    monkeypatch.setattr(postgres, "_rows", kept)
    assert ledger.spent().n_fits == 1


def test_writers_stay_safe_without_the_lock(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pooler that drops session locks a writer may come in between: the late one starts again."""
    ledger, rival = Ledger(database), Ledger(database, dataset="rival")
    kept = postgres._rows
    rivals = iter([True])

    def interrupted(connection: psycopg.Connection[object], seq: int) -> object:
        rows = kept(connection, seq)
        if next(rivals, False):
            connection.execute("SELECT pg_advisory_unlock_all()")
            rival.reserve(Gaussian(9.0), "replace-one")
        return rows

    monkeypatch.setattr(postgres, "_rows", interrupted)
    ledger.reserve(Gaussian(9.0), "replace-one")
    assert (ledger.spent().n_fits, rival.spent().n_fits) == (1, 1)
    ledger.verify()


def test_a_busy_server_says_so(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(database)
    monkeypatch.setattr(postgres, "_LOCK_SECONDS", 1)
    with psycopg.connect(database) as server:
        server.execute("SELECT pg_advisory_lock(%s)", (postgres._ADVISORY_KEY,))
        with pytest.raises(LedgerError, match="busy for 1 seconds"):
            ledger.reserve(Gaussian(9.0), "replace-one")


def test_psycopg_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependency, match=r"pip install 'dperm\[postgres\]'"):
        Ledger("postgresql://me@host/db")
