"""PostgreSQL: several services on one database, earlier counters on its disk, and a server that cannot write."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postgres_server import Unavailable, postgres_server

from dperm.collect import Collection
from dperm.collect.service.publishing import Publisher
from dperm.collect.store.store import Entry, Outcome, Store, open_store
from dperm.errors import StoreError


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Store]:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    with open_store(postgres_url, create=True) as store:
        yield store


def _entry(one: Collection, n: int, seed: int) -> Entry:
    rng = np.random.default_rng(seed)
    keys = rng.integers(-(2**63), 2**63 - 1, n, endpoint=True)
    halves = rng.integers(0, 2**64 - 1, n, dtype=np.uint64, endpoint=True)
    return Entry(one.digest, keys, halves, rng.integers(0, one.n_cells, n))


def _file_of_counters(url: str) -> bytes:
    """The bytes of the table on disk, as a reader of the disk would find them."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        folder, path = connection.execute(
            "SELECT current_setting('data_directory'), pg_relation_filepath('dperm_counters')"
        ).fetchone()
    return (Path(folder) / path).read_bytes()


def _states(store: Store, one: Collection, n: int) -> list[bytes]:
    """Count reports one by one; returns the row of counters after each of them."""
    first = np.random.default_rng(0).integers(0, one.n_cells, 500)  # a row of zeros would be found in any free place
    store.add([Entry(one.digest, np.arange(1000, 1500), np.ones(500, np.uint64), first)], 0.0)
    cells, out = np.bincount(first, minlength=one.n_cells).astype("<i8"), []
    for k in range(n):
        cell = 5 * k % one.n_cells
        store.add([Entry(one.digest, [k], [k + 1], [cell])], 0.0)
        cells[cell] += 1
        out.append(cells.tobytes())
    return out


def test_tidying_removes_earlier_counters_from_the_table(postgres: Store, logistic: Collection) -> None:
    """Two successive states of a row would show the answer of the last report."""
    postgres.register(logistic)
    *earlier, last = _states(postgres, logistic, 6)
    before = _file_of_counters(postgres.database.url)
    assert last in before
    assert any(state in before for state in earlier)  # otherwise the test would prove nothing
    assert postgres.tidy()
    after = _file_of_counters(postgres.database.url)
    assert last in after
    assert not [k for k, state in enumerate(earlier) if state in after]
    assert postgres.counts(logistic).n_people == 506


def test_tidying_does_not_wait_for_readers(postgres: Store, logistic: Collection) -> None:
    """If a reader uses the counters or holds an older snapshot, tidying is tried again later."""
    import psycopg

    postgres.register(logistic)
    *earlier, _ = _states(postgres, logistic, 3)
    with psycopg.connect(postgres.database.url) as reading:
        reading.execute("SELECT COUNT(*) FROM dperm_counters")
        started = time.monotonic()
        assert not postgres.tidy()
        assert time.monotonic() - started < 5
        postgres.add([Entry(logistic.digest, [99], [1], [0])], 0.0)
        assert postgres.database.connection.execute("SHOW lock_timeout").fetchone() == ("0",)
    with psycopg.connect(postgres.database.url) as older:
        older.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        older.execute("SELECT 1 FROM dperm_tasks")
        postgres.add([Entry(logistic.digest, [100], [1], [0])], 0.0)
        assert not postgres.tidy()  # it could still see the row before
    assert postgres.tidy()
    assert not any(state in _file_of_counters(postgres.database.url) for state in earlier)
    assert postgres.counts(logistic).n_people == 505


def test_a_service_that_hangs_in_its_step_does_not_delay_reports(postgres: Store, logistic: Collection) -> None:
    """It may hold the lock until its network fails; all others see the last step meanwhile."""
    import psycopg

    postgres.register(logistic)
    _states(postgres, logistic, 1)
    publisher = Publisher(postgres.steps)
    assert json.loads(publisher.estimate(logistic, None))["n"] == 501
    postgres.add([Entry(logistic.digest, np.arange(2000, 2030), np.ones(30, np.uint64), np.zeros(30, int))], 0.0)
    with psycopg.connect(postgres.database.url) as still, ThreadPoolExecutor(2) as pool:
        still.execute("SELECT number FROM dperm_steps FOR UPDATE")
        try:
            step = pool.submit(Publisher(postgres.steps).estimate, logistic, None)
            time.sleep(0.1)
            report = pool.submit(postgres.add, [Entry(logistic.digest, [99], [1], [0])], 0.0)
            assert report.result(20) == [Outcome(1, 0, 0)]
            assert json.loads(step.result(20))["n"] == 501
        finally:
            still.rollback()
    assert json.loads(Publisher(postgres.steps).estimate(logistic, None))["n"] == 532


def test_tidying_opens_a_lost_connection_again(postgres: Store, logistic: Collection) -> None:
    """Earlier states are still on the server's disk after a restart."""
    postgres.register(logistic)
    *earlier, _ = _states(postgres, logistic, 6)
    postgres.database.connection.close()
    assert postgres.tidy()
    assert not any(state in _file_of_counters(postgres.database.url) for state in earlier)


@pytest.fixture
def plain(postgres: Store) -> Iterator[Store]:
    """A collector whose role cannot see the transactions of other roles."""
    import psycopg

    with psycopg.connect(postgres.database.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE ROLE plain LOGIN")
        connection.execute("CREATE SCHEMA public AUTHORIZATION plain")
        try:
            with open_store(postgres.database.url.replace("postgres@", "plain@"), create=True) as store:
                yield store
        finally:
            connection.execute("DROP OWNED BY plain CASCADE")
            connection.execute("DROP ROLE plain")
            connection.execute("CREATE SCHEMA public")


@pytest.mark.parametrize("who", ["writes", "reads", "prepared"])
def test_tidying_is_repeated_while_a_transaction_could_see_an_earlier_state(
    who: str, plain: Store, postgres_url: str, logistic: Collection
) -> None:
    """Transactions of another role: one that wrote, one that reads, and a prepared one without a session."""
    import psycopg

    plain.register(logistic)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("CREATE TABLE IF NOT EXISTS others (n INTEGER)")
        other.execute(f"BEGIN ISOLATION LEVEL {'REPEATABLE READ' if who == 'reads' else 'READ COMMITTED'}")
        other.execute("SELECT 1 FROM dperm_about" if who == "reads" else "INSERT INTO others VALUES (1)")
        if who == "prepared":
            other.execute("PREPARE TRANSACTION 'waits'")
        *earlier, last = _states(plain, logistic, 4)
        try:
            assert not plain.tidy()
            assert any(state in _file_of_counters(postgres_url) for state in earlier)
        finally:
            other.execute("ROLLBACK PREPARED 'waits'" if who == "prepared" else "ROLLBACK")
        assert plain.tidy()
        after = _file_of_counters(postgres_url)
        assert last in after
        assert not any(state in after for state in earlier)


@pytest.fixture
def two_services(postgres_url: str) -> Iterator[tuple[Store, Store]]:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    with open_store(postgres_url, create=True) as one, open_store(postgres_url) as other:
        yield one, other


def test_commits_are_durable_on_a_server_with_asynchronous_commits(two_services: tuple[Store, Store]) -> None:
    store, _ = two_services
    with store.database.reading() as connection:
        connection.execute("ALTER ROLE postgres SET synchronous_commit = off")
    try:
        with open_store(store.database.url) as again, again.database.writing() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    finally:
        with store.database.reading() as connection:
            connection.execute("ALTER ROLE postgres RESET synchronous_commit")


def test_two_services_on_one_database_count_a_report_once(
    two_services: tuple[Store, Store], logistic: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same report arrives at both: the second writer finds its id spent, and the counters grow once."""
    one, other = two_services
    one.register(logistic)
    other.registry.refresh()
    entry, own = _entry(logistic, 20, 1), _entry(logistic, 5, 2)
    look, in_between = one.database.spent_ids.find, [own, entry]

    def looked(*given: Any) -> Any:
        found = look(*given)
        if in_between:
            assert other.add([in_between.pop()], 0.0)[0].accepted > 0
        return found

    monkeypatch.setattr(one.database.spent_ids, "find", looked)
    assert one.add([entry], 0.0) == [Outcome(0, 20, 0)]
    assert one.counts(logistic).n_people == other.counts(logistic).n_people == 25
    # the first rows of a window are made by both at once: neither writes over the other's
    later, in_between[:] = Collection("later", logistic.model), []
    one.register(later)
    other.registry.refresh()
    in_between.append(_entry(later, 7, 3))
    assert one.add([_entry(later, 9, 4)], 0.0) == [Outcome(9, 0, 0)]
    assert one.counts(later).n_people == 16


def test_two_writers_at_once_lose_no_counts(two_services: tuple[Store, Store], logistic: Collection) -> None:
    one, other = two_services
    one.register(logistic)
    other.registry.refresh()

    def write(store: Store, first: int) -> None:
        for seed in range(first, first + 60):
            assert store.add([_entry(logistic, 3, seed)], 0.0) == [Outcome(3, 0, 0)]

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, one, 0), pool.submit(write, other, 1000)]:
            done.result()
    assert one.counts(logistic).n_people == 360


def test_transactions_of_ids_and_counters_share_no_answer(
    two_services: tuple[Store, Store], logistic: Collection
) -> None:
    """The database's metadata lead from an id to a row with every answer, not to a counter."""
    store, _ = two_services
    store.register(logistic)
    for seed in range(8):
        store.add([_entry(logistic, 1, seed)], 0.0)
    with store.database.reading() as connection:
        linked = connection.execute(
            "SELECT s.id, c.n FROM dperm_spent_1 s JOIN dperm_counters c ON s.xmin = c.xmin"
        ).fetchall()
    assert len(linked) == 1
    assert len(linked[0][1]) == 8 * logistic.n_cells


_NO_SPACE = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE CONSTRAINT TRIGGER full_disk AFTER INSERT OR UPDATE ON dperm_counters
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION full_disk()
"""


def test_a_commit_that_finds_the_disk_full_acknowledges_nothing(postgres: Store, logistic: Collection) -> None:
    """The error comes from COMMIT itself, after all other statements succeeded."""
    import psycopg

    postgres.register(logistic)
    first, second = (Entry(logistic.digest, [k], [k + 1], [k]) for k in (1, 2))
    assert postgres.add([first], 0.0) == [Outcome(1, 0, 0)]
    with psycopg.connect(postgres.database.url, autocommit=True) as connection:
        connection.execute(_NO_SPACE)
        with pytest.raises(StoreError, match=r"No space left on device.*nothing was acknowledged, try again"):
            postgres.add([second], 0.0)
        with pytest.raises(StoreError, match="No space left"):
            postgres.probe()  # what /health asks
        assert postgres.counts(logistic).n_people == 1
        spent = connection.execute("SELECT id FROM dperm_spent_1").fetchall()
        assert spent == [(1,)]  # an id that stayed spent would turn the retry away
        connection.execute("DROP FUNCTION full_disk CASCADE")
    postgres.probe()
    assert postgres.add([first, second], 0.0) == [Outcome(0, 1, 0), Outcome(1, 0, 0)]
    assert postgres.counts(logistic).n_people == 2


def _fill(connection: Any) -> None:
    while True:
        connection.execute("INSERT INTO large VALUES (decode(repeat('00', 1900), 'hex'))")


def test_a_server_with_a_full_disk_acknowledges_nothing(logistic: Collection) -> None:
    """The disk is really full: another table fills it, until it is dropped."""
    import psycopg

    def entry(n: int) -> Entry:
        keys = np.arange(n)
        return Entry(logistic.digest, keys, np.ones(n, np.uint64), keys % logistic.n_cells)

    try:
        with postgres_server(small_disk=4 << 20) as server, psycopg.connect(server.url, autocommit=True) as other:
            other.execute(f"CREATE TABLESPACE small LOCATION '{server.small_disk}'")
            with open_store(f"{server.url}&options=-cdefault_tablespace%3Dsmall", create=True) as store:
                store.register(logistic)
                assert store.add([entry(100)], 0.0) == [Outcome(100, 0, 0)]
                other.execute("CREATE TABLE large (what BYTEA) TABLESPACE small")
                with pytest.raises(psycopg.errors.DiskFull):
                    _fill(other)
                with pytest.raises(StoreError, match=r"No space left on device.*nothing was acknowledged"):
                    store.add([entry(5000)], 0.0)
                assert store.counts(logistic).n_people == 100
                assert store.add([entry(100)], 0.0) == [Outcome(0, 100, 0)]  # what needs no space goes on
                other.execute("DROP TABLE large")
                assert store.add([entry(5000)], 0.0) == [Outcome(4900, 100, 0)]
                assert store.counts(logistic).n_people == 5000
    except Unavailable as reason:
        pytest.skip(str(reason))
