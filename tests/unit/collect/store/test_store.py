"""Counters and spent ids in both databases: reports count once, are not lost, and are not stored with their ids."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dperm.collect import Collection
from dperm.collect.store import sqlite as store_sqlite
from dperm.collect.store.store import Entry, Outcome, Store, marks, open_store
from dperm.errors import InvalidInput, StoreError


def _entry(one: Collection, n: int, seed: int) -> Entry:
    rng = np.random.default_rng(seed)
    keys = rng.integers(-(2**63), 2**63 - 1, n, endpoint=True)
    halves = rng.integers(0, 2**64 - 1, n, dtype=np.uint64, endpoint=True)
    return Entry(one.digest, keys, halves, rng.integers(0, one.n_cells, n))


def _cells(store: Store, one: Collection) -> np.ndarray:
    return store.counts(one).by_answer.ravel()


def test_reports_are_counted_once(store: Store, logistic: Collection, collections: dict[str, Collection]) -> None:
    levels = collections["levels"]
    store.register(logistic)
    store.register(levels)
    first, second, other = _entry(logistic, 500, 1), _entry(logistic, 3, 2), _entry(levels, 200, 3)
    assert store.add([first, other, second], 0.0) == [Outcome(500, 0, 0), Outcome(200, 0, 0), Outcome(3, 0, 0)]
    assert store.add([first], 1e9) == [Outcome(0, 500, 0)]
    expected = np.bincount(np.concatenate([first.cells, second.cells]), minlength=logistic.n_cells)
    assert np.array_equal(_cells(store, logistic), expected)
    assert np.array_equal(_cells(store, levels), np.bincount(other.cells, minlength=levels.n_cells))
    assert store.counts(levels).n_people == 200


def test_a_changed_report_is_a_conflict(store: Store, logistic: Collection) -> None:
    store.register(logistic)
    first = Entry(logistic.digest, [5], [0x9E3779B97F4A7C15], [3])
    changed = Entry(logistic.digest, [5], [0x9E3779B97F4A7C15], [2])
    assert store.add([first, first, changed], 0.0) == [Outcome(1, 0, 0), Outcome(0, 1, 0), Outcome(0, 0, 1)]
    assert store.add([changed, first], 0.0) == [Outcome(0, 0, 1), Outcome(0, 1, 0)]
    mixed = Entry(logistic.digest, [5, 6, 6, 7], [0x9E3779B97F4A7C15, 1, 1, 2**60], [2, 0, 0, 1])
    assert store.add([mixed], 0.0) == [Outcome(2, 1, 1)]
    assert store.counts(logistic).n_people == 3


def test_windows_and_a_clock_that_goes_back(store: Store, logistic: Collection) -> None:
    daily = Collection("daily", logistic.model, window=86_400)
    store.register(daily)
    for seed, moment in enumerate([86_400.0 * 3 + 5, 86_400.0 * 4, 86_400.0 * 3, -1.0]):
        store.add([_entry(daily, 10, seed)], moment)
    assert store.steps.read(daily)[1].windows == {-1: 10, 3: 20, 4: 10}
    assert store.counts(daily).n_people == 40
    assert store.counts(daily, window=3).n_people == 20
    # a retry after midnight is still a retry
    assert store.add([_entry(daily, 10, 0)], 86_400.0 * 9) == [Outcome(0, 10, 0)]


def test_descriptions_are_immutable(store: Store, logistic: Collection, collections: dict[str, Collection]) -> None:
    store.register(logistic)
    store.register(logistic)
    changed = Collection("logistic", collections["three-classes"].model)
    with pytest.raises(InvalidInput, match="immutable"):
        store.register(changed)
    newer = Collection("logistic", collections["three-classes"].model, version=2)
    store.register(newer)
    assert store.find("logistic") is store.collections[newer.digest]
    assert store.find("logistic", 1) is store.collections[logistic.digest]
    assert store.find("nothing") is None


def test_merging_adds_every_collector_once(store: Store, logistic: Collection, tmp_path: Path) -> None:
    store.register(logistic)
    store.add([_entry(logistic, 100, 1)], 0.0)
    with open_store(tmp_path / "b.db", create=True) as b, open_store(tmp_path / "c.db", create=True) as c:
        for other, seed in ((b, 2), (c, 3)):
            other.register(logistic)
            other.add([_entry(logistic, 50, seed)], 0.0)
        early = b.counters.export(logistic)
        b.add([_entry(logistic, 7, 4)], 0.0)
        assert store.counters.merge(b.counters.export(logistic)) == 57
        # late, twice and in a circle: nothing new
        assert store.counters.merge(early) == store.counters.merge(b.counters.export(logistic)) == 0
        assert c.counters.merge(store.counters.export(logistic)) == 157
        assert store.counters.merge(c.counters.export(logistic)) == 50
        assert store.counts(logistic).n_people == c.counts(logistic).n_people == 207
        assert np.array_equal(_cells(store, logistic), _cells(c, logistic))
    damaged = store.counters.export(logistic)
    damaged["collectors"]["x"] = [[0, logistic.n_cells, 1]]
    for bad in (
        None,
        {"format": "?"},
        {**damaged, "task": "00"},
        damaged,
        {**damaged, "collectors": {"x": [[0, 0.5, 1]]}},
    ):
        with pytest.raises(InvalidInput, match="counts"):
            store.counters.merge(bad)


def test_the_mark_of_an_id_has_the_same_distribution_for_every_report() -> None:
    """For a uniform half of an id the mark is uniform for every report; a mark that is not uniform is detected."""
    halves = np.random.default_rng(0).integers(0, 2**64 - 1, 1 << 20, dtype=np.uint64, endpoint=True)

    def spread(made: np.ndarray) -> float:
        seen = np.bincount(made >> 8, minlength=256)
        return float(((seen - len(made) / 256) ** 2).sum() / (len(made) / 256))  # 255 +- 23

    for cell in (0, 1, 7, 2**20):
        assert spread(marks(halves, np.full(len(halves), cell))) < 400
    even = (halves * np.uint64(2 * 0)) >> np.uint64(48)
    assert spread(even.astype(np.int64)) > 400
    one, other = (marks(halves, np.full(len(halves), cell)) for cell in (4, 5))
    assert np.mean(one == other) < 2**-14


def test_ids_move_to_the_large_table_unchanged(
    logistic: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_sqlite, "RECENT", 1000)
    with open_store(tmp_path / "x.db", create=True) as store:
        store.register(logistic)
        parts = [_entry(logistic, 700, seed) for seed in range(6)]
        for part in parts:
            assert store.add([part], 0.0) == [Outcome(700, 0, 0)]
        assert store.add(parts, 0.0) == [Outcome(0, 700, 0)] * 6
    with sqlite3.connect(tmp_path / "x.db") as raw:
        kept = raw.execute("SELECT id FROM dperm_recent_1 UNION ALL SELECT id FROM dperm_spent_1").fetchall()
        assert raw.execute("SELECT COUNT(*) FROM dperm_recent_1").fetchone()[0] <= 1000
    raw.close()
    assert sorted(key for (key,) in kept) == sorted(np.concatenate([part.keys for part in parts]).tolist())


def test_a_full_disk_acknowledges_nothing(logistic: Collection, tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db", create=True) as store:
        store.register(logistic)
        store.add([_entry(logistic, 100, 1)], 0.0)
        pages = store.database.connection.execute("PRAGMA page_count").fetchone()[0]
        store.database.connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="check the disk"):
            store.add([_entry(logistic, 20_000, 2)], 0.0)
        assert store.counts(logistic).n_people == 100
        store.database.connection.execute(f"PRAGMA max_page_count = {pages + 10_000}")
        assert store.add([_entry(logistic, 20_000, 2)], 0.0) == [Outcome(20_000, 0, 0)]


def test_a_read_only_database_can_be_opened_and_read(
    store: Any, logistic: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.register(logistic)
    store.add([_entry(logistic, 100, 1)], 0.0)
    if hasattr(store.database, "url"):
        joint = "&" if "?" in store.database.url else "?"
        address = f"{store.database.url}{joint}options=-c%20default_transaction_read_only%3Don"
    else:
        address, connect = str(store.database.path), store_sqlite.SqliteDatabase._connect

        def reading(self: Any) -> sqlite3.Connection:
            made = connect(self)
            made.execute("PRAGMA query_only = ON")
            return made

        monkeypatch.setattr(store_sqlite.SqliteDatabase, "_connect", reading)
    with open_store(address) as replica:
        assert replica.counts(replica.find("logistic")).n_people == 100
        with pytest.raises(StoreError):  # otherwise the test would prove nothing
            replica.add([_entry(logistic, 1, 2)], 0.0)
    with pytest.raises(StoreError):  # a service must not start and then refuse all reports
        open_store(address, create=True)


def test_a_backup_is_a_database(logistic: Collection, tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db", create=True) as store:
        store.register(logistic)
        store.add([_entry(logistic, 100, 1)], 0.0)
        store.backup(tmp_path / "copy.db")
        with pytest.raises(InvalidInput, match="exists already"):
            store.backup(tmp_path / "copy.db")
    with open_store(tmp_path / "copy.db") as copy:
        assert copy.counts(copy.find("logistic")).n_people == 100
        assert copy.add([_entry(logistic, 100, 1)], 0.0) == [Outcome(0, 100, 0)]


def test_merging_a_restored_backup_counts_everybody(logistic: Collection, tmp_path: Path) -> None:
    """The copy counts under a name of its own, so its counts are not mistaken for those of the original."""
    with open_store(tmp_path / "a.db", create=True) as a, open_store(tmp_path / "main.db", create=True) as main:
        a.register(logistic)
        main.register(logistic)
        a.add([_entry(logistic, 500, 1)], 0.0)
        a.backup(tmp_path / "copy.db")
        a.add([_entry(logistic, 400, 2)], 0.0)
        assert main.counters.merge(a.counters.export(logistic)) == 900
        with open_store(tmp_path / "copy.db") as restored:
            assert restored.counters.collector != a.counters.collector
            restored.add([_entry(logistic, 300, 3)], 0.0)
            assert restored.counts(logistic).n_people == 800
            assert main.counters.merge(restored.counters.export(logistic)) == 300
            assert restored.counters.merge(main.counters.export(logistic)) == 400
            # a copy of the copy, and the original itself
            restored.backup(tmp_path / "again.db")
            assert a.counters.merge(restored.counters.export(logistic)) == 300
        with open_store(tmp_path / "again.db") as again:
            assert main.counters.merge(again.counters.export(logistic)) == 0
            assert np.array_equal(_cells(again, logistic), _cells(main, logistic))
        expected = np.concatenate([_entry(logistic, n, seed).cells for n, seed in ((500, 1), (400, 2), (300, 3))])
        assert np.array_equal(_cells(main, logistic), np.bincount(expected, minlength=logistic.n_cells))


def test_a_marked_copy_keeps_its_counts_under_the_old_name(store: Store, logistic: Collection) -> None:
    daily = Collection("daily", logistic.model, window=86_400)
    store.register(logistic)
    store.register(daily)
    store.add([_entry(logistic, 100, 1), _entry(daily, 50, 2)], 86_400.0)
    before, old = store.counters.export(daily)["collectors"], store.counters.collector
    store.mark_as_copy()
    assert store.counters.collector != old
    assert store.counters.export(daily)["collectors"][old] == before[old]
    store.add([_entry(logistic, 10, 3), _entry(daily, 5, 4)], 0.0)
    assert store.counts(logistic).n_people == 110
    assert store.steps.read(daily)[1].windows == {0: 5, 1: 50}


def test_a_row_of_counters_holds_all_answers_to_a_statistic(store: Store, collections: dict[str, Collection]) -> None:
    """A reader who knows which row a report changed does not know its answer."""
    one = collections["few-levels"]
    wide = Collection(
        "wide",
        # 7 does not divide 240: a row of 240 counters would end in the middle of a statistic
        {**one.model, "n_levels": 7, "names": list("abcdefghij"), "bounds": {"features": [[0.0] * 10, [1.0] * 10]}},
    )
    store.register(wide)
    entry = _entry(wide, 5000, 1)
    store.add([entry], 0.0)
    with store.database.reading() as connection:
        rows = store.database.rows(connection, "SELECT block, n FROM dperm_counters ORDER BY block")
    assert sum(len(kept) for _, kept in rows) == 8 * wide.n_cells
    assert len(rows) > 1
    assert all(len(kept) % (8 * wide.task.n_levels) == 0 for _, kept in rows)
    assert np.array_equal(_cells(store, wide), np.bincount(entry.cells, minlength=wide.n_cells))


def test_many_rows_of_counters_in_one_transaction(collections: dict[str, Collection], tmp_path: Path) -> None:
    """Their numbers are one value of the statement: databases limit how many values it may have."""
    one = collections["marginals"]
    with open_store(tmp_path / "x.db", create=True) as store:
        store.register(one)
        store.database.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 5)
        entries = [_entry(one, 5000, seed) for seed in (1, 2)]
        for entry in entries:
            store.add([entry], 0.0)
        expected = np.bincount(np.concatenate([entry.cells for entry in entries]), minlength=one.n_cells)
        assert one.n_cells > 5 * 240
        assert np.array_equal(_cells(store, one), expected)


def test_tidying_empties_the_write_ahead_log_of_sqlite(logistic: Collection, tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db", create=True) as store:
        store.register(logistic)
        store.add([_entry(logistic, 1, 1)], 0.0)
        assert (tmp_path / "x.db-wal").stat().st_size > 0
        with store.database.reading() as reading:  # such as a backup: tidying does not wait for it
            reading.execute("SELECT COUNT(*) FROM dperm_recent_1").fetchall()
            store.add([_entry(logistic, 1, 2)], 0.0)
            started = time.monotonic()
            assert not store.tidy()
            assert time.monotonic() - started < 5
        assert store.tidy()
        assert (tmp_path / "x.db-wal").stat().st_size == 0
        assert store.counts(logistic).n_people == 2


def test_commits_reach_the_disk(logistic: Collection, tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db", create=True) as store, store.database.reading() as reading:
        for connection in (store.database.connection, reading):
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_addresses_that_hold_no_database(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no collector's database"):
        open_store(tmp_path / "x.db")
    (tmp_path / "y.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_store(tmp_path / "y.db")
    with pytest.raises(StoreError, match="failed"):
        open_store("postgresql://someone:secret@127.0.0.1:9/x")


_WRITER = """
import sys
import numpy as np
from dperm.collect.store.store import Entry, open_store
store = open_store(sys.argv[1])
one = store.find("logistic")
rng = np.random.default_rng(0)
while True:
    keys = rng.integers(-2**63, 2**63 - 1, 50)
    halves = rng.integers(0, 2**64 - 1, 50, dtype=np.uint64)
    store.add([Entry(one.digest, keys, halves, rng.integers(0, one.n_cells, 50))], 0.0)
    print(50, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(logistic: Collection, tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db", create=True) as store:
        store.register(logistic)
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "x.db")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert process.stdout is not None
    acknowledged = sum(int(process.stdout.readline()) for _ in range(40))
    process.kill()
    acknowledged += sum(map(int, process.stdout.read().split()))
    process.wait()
    process.stdout.close()
    with open_store(tmp_path / "x.db") as store:
        found = store.counts(store.find("logistic")).n_people
        with sqlite3.connect(tmp_path / "x.db") as raw:
            tables = "SELECT id FROM dperm_recent_1 UNION ALL SELECT id FROM dperm_spent_1"
            ids = raw.execute(f"SELECT COUNT(*), COUNT(DISTINCT id) FROM ({tables})").fetchone()
        raw.close()
    assert acknowledged <= found <= acknowledged + 50
    assert ids == (found, found)
