"""The published state is kept in the database: services that share it, or restart, publish the same steps."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dperm.collect import Collection
from dperm.collect.service.publishing import Publisher
from dperm.collect.store.counters import Snapshot
from dperm.collect.store.steps import PublishedState
from dperm.collect.store.store import Entry, Store, open_store
from dperm.errors import StoreError


def _address(store: Any) -> str:
    return store.database.url if hasattr(store.database, "url") else str(store.database.path)


def _add(store: Store, one: Collection, first: int, n: int = 1, day: int = 0) -> None:
    keys = np.arange(first, first + n)
    store.add([Entry(one.digest, keys, np.ones(n, np.uint64), keys % one.n_cells)], 86_400.0 * day)


def _read(publisher: Publisher, one: Collection, window: int | None = None) -> dict[str, Any]:
    return json.loads(publisher.estimate(one, window))


def _asked(publisher: Publisher, one: Collection, window: int | None = None) -> np.ndarray:
    """The published number of answers to each statistic."""
    return np.array(_read(publisher, one, window)["statistics"]["n"])


def test_two_services_publish_the_same_steps(store: Store, daily: Collection, again: Callable[[], Store]) -> None:
    """One report arrives between the first requests to the two services."""
    first, second = Publisher(store.steps), Publisher(again().steps)
    _add(store, daily, 0, 20)
    one = _read(first, daily)
    _add(store, daily, 20)
    other = _read(second, daily)
    assert (one["n"], one["reports"], other["n"], other["reports"]) == (20, 20, 20, 21)
    assert one["statistics"] == other["statistics"]
    _add(store, daily, 21, 19)
    assert [_read(p, daily)["n"] for p in (second, first)] == [40, 40]


def test_a_restarted_service_publishes_the_same_steps(
    store: Store, daily: Collection, address: Callable[[Store], str]
) -> None:
    seen = set()
    for k in range(70):
        _add(store, daily, k)
        with open_store(address(store)) as started:
            found = _read(Publisher(started.steps), daily)
        assert found["next_at"] == found["n"] + 20
        seen.add((found["n"], json.dumps(found["statistics"])))
    assert sorted(n for n, _ in seen) == [0, 20, 40, 60]


@pytest.mark.parametrize("ends", [(21,), (5, 10, 15, 65)])
def test_no_single_report_shows_in_a_window_of_any_service(
    ends: tuple[int, ...], store: Store, daily: Collection, again: Callable[[], Store]
) -> None:
    """Reports that one service showed in another window stay there for all services, and after a restart."""
    others = [store, again()]
    publishers = [Publisher(other.steps) for other in others]
    last = {window: np.zeros(daily.task.sketch.size, np.int64) for window in range(len(ends) + 1)}
    for k in range(80):
        _add(store, daily, k, day=sum(k >= end for end in ends))
        if k % 7 == 3:
            publishers[1] = Publisher(others[1].steps)
        for publisher in (publishers[k % 2], publishers[1 - k % 2]):
            whole = _read(publisher, daily)
            found = {window: _asked(publisher, daily, window) for window in last}
            assert {int(w): n for w, n in whole["windows"].items()} == {w: x.sum() for w, x in found.items() if x.sum()}
            assert whole["n"] == sum(x.sum() for x in found.values())
            for window, now in found.items():
                assert (now - last[window]).min() >= 0
                assert (now - last[window]).sum() == 0 or (now - last[window]).sum() >= 20
            last = found
    assert whole["n"] == 80  # and none is lost


def test_two_services_take_a_due_step_only_once(
    store: Store, daily: Collection, again: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found that a step is due, with different numbers of reports."""
    other, look, late = again(), store.steps.read, [True]

    def overtaken(*given: Any) -> Any:
        found = look(*given)
        if late.pop() if late else False:
            _add(other, daily, 20)
            assert other.steps.publish(daily)[0].n == 21
        return found

    _add(store, daily, 0, 20)
    monkeypatch.setattr(store.steps, "read", overtaken)
    state, reports = store.steps.publish(daily)
    assert (state.number, state.n, reports) == (1, 21, 21)


def test_a_service_waits_while_another_writes_its_step(
    store: Store, daily: Collection, again: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else may write between reading the number and writing."""
    other, write, late = again(), store.database.many, []
    _add(store, daily, 0, 20)
    store.steps.publish(daily)
    _add(store, daily, 20, 20)
    with ThreadPoolExecutor(1) as pool:

        def slowly(*given: Any) -> None:
            late.append(pool.submit(other.steps.publish, daily))
            time.sleep(0.3)
            assert not late[0].done()
            write(*given)

        monkeypatch.setattr(store.database, "many", slowly)
        assert store.steps.publish(daily)[0].n == 40
        state, reports = late[0].result(30)
    assert (state.number, state.n, reports) == (2, 40, 40)


def test_many_services_publish_one_sequence_of_steps(
    store: Store, daily: Collection, again: Callable[[], Store]
) -> None:
    done = threading.Event()

    def count() -> None:
        try:
            for k in range(200):
                _add(store, daily, k, day=k // 70)
        finally:
            done.set()

    def read(other: Store) -> set[tuple[int, str, str]]:
        publisher, seen = Publisher(other.steps), set()
        while True:
            last = done.is_set()
            found = _read(publisher, daily)
            seen.add((found["n"], json.dumps(found["statistics"]), json.dumps(found["windows"])))
            if last:
                return seen

    others = [store, again(), again(), again()]
    with ThreadPoolExecutor(5) as pool:
        counting = pool.submit(count)
        reading = [pool.submit(read, other) for other in others]
        seen = set().union(*(one.result() for one in reading))
        counting.result()
    numbers = sorted(n for n, _, _ in seen)
    assert len(numbers) > 3
    assert min(np.diff(numbers)) >= 20  # and no number has two estimates


def test_counting_does_not_wait_while_a_step_is_computed(
    store: Store, daily: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, free = PublishedState.after, []

    def after(self: PublishedState, found: Any) -> PublishedState:
        _add(store, daily, 1000)  # would wait for ever if the step held the lock
        free.append(store.database.lock.locked())
        return computed(self, found)

    monkeypatch.setattr(PublishedState, "after", after)
    _add(store, daily, 0, 20)
    assert store.steps.publish(daily)[0].n == 20
    assert free == [False]


def test_a_database_of_the_previous_version_is_converted(
    store: Store, daily: Collection, again: Callable[[], Store]
) -> None:
    _add(store, daily, 0, 30)
    with store.database.writing() as connection:
        for table in ("dperm_steps", "dperm_published"):
            connection.execute(f"DROP TABLE {table}")
    newer = again()
    assert _read(Publisher(newer.steps), daily)["n"] == 30
    _add(newer, daily, 30)
    assert _read(Publisher(again().steps), daily)["n"] == 30


_KEPT = ("dperm_about", "dperm_steps", "dperm_published", "dperm_counters", "dperm_spent_1")


def _set_back(store: Store, kept: dict[str, list[tuple[Any, ...]]]) -> None:
    with store.database.writing() as connection:
        for table, rows in kept.items():
            connection.execute(f"DELETE FROM {table}")
            for row in rows:
                store.database.rows(connection, f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        if not hasattr(store.database, "url"):  # its newest ids are in a table of their own
            connection.execute("DELETE FROM dperm_recent_1")


def test_a_database_that_was_set_back_under_a_running_service(
    store: Store, daily: Collection, again: Callable[[], Store]
) -> None:
    """It reaches the same number with another state: the two are not confused, and neither overwrites the other."""
    running, other = Publisher(store.steps), again()
    _add(store, daily, 0, 20)
    _read(running, daily)
    with store.database.reading() as connection:
        kept = {table: store.database.rows(connection, f"SELECT * FROM {table}") for table in _KEPT}
    _add(store, daily, 20, 25, day=1)
    assert _read(running, daily)["windows"] == {"0": 20, "1": 25}
    remembered, _ = store.steps.read(daily)
    _set_back(store, kept)
    _add(other, daily, 100, 30, day=2)
    state, _ = other.steps.publish(daily)
    assert state.number == remembered.number == 2
    assert _read(running, daily)["windows"] == {"0": 20, "2": 30}
    assert store.steps.read(daily, remembered)[0].visible.windows == {0: 20, 2: 30}
    with store.database.writing() as connection:
        assert not store.steps.replace(connection, remembered.identity, state, [])
    _add(other, daily, 200, 30, day=3)
    assert store.steps.publish(daily, remembered)[0].visible.windows == {0: 20, 2: 30, 3: 30}


def test_states_without_stamps_are_replaced_by_stamped_ones(
    store: Store, daily: Collection, again: Callable[[], Store]
) -> None:
    _add(store, daily, 0, 20)
    store.steps.publish(daily)
    with store.database.writing() as connection:
        connection.execute("DELETE FROM dperm_about WHERE name <> 'collector'")
    older = again()
    state, _ = older.steps.publish(daily)
    assert (state.identity, state.n) == ((1, ""), 20)
    _add(older, daily, 20, 20)
    state, _ = older.steps.publish(daily, state)
    assert (state.number, state.n, len(state.stamp)) == (2, 40, 32)
    assert store.steps.read(daily)[0].identity == state.identity


def test_a_read_only_database_shows_its_last_published_state(
    store: Store, daily: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> Any:
        raise StoreError("the disk is full")

    _add(store, daily, 0, 25)
    publisher = Publisher(store.steps)
    assert _read(publisher, daily)["n"] == 25
    _add(store, daily, 25, 25)
    with monkeypatch.context() as broken:
        broken.setattr(store.database, "writing", full)
        found = _read(publisher, daily)
        assert (found["n"], found["reports"], found["next_at"]) == (25, 50, 45)
    assert _read(publisher, daily)["n"] == 50


def test_a_year_of_small_windows_is_one_step(store: Store, daily: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step after a merge may have them all; reading all counters for each window would take minutes."""
    rows = [[day, cell, 1] for day in range(366) for cell in (day % 7, 9)]
    rows += [[0, 8, 30], [-3, 4, 25]]
    store.counters.merge({"format": "dperm counts 1", "task": daily.digest, "collectors": {"x": rows}})
    with monkeypatch.context() as whole:
        whole.setattr(Snapshot, "cells", None)
        state, reports = store.steps.publish(daily)
    assert (state.n, reports) == (787, 787)
    assert state.visible.windows == {-3: 25, 0: 762}
    assert state.visible.cells().tolist() == store.steps.read(daily)[1].cells().tolist()


def _files(store: Any) -> bytes:
    """The bytes of the published states on disk, as a reader of the disk would find them."""
    if not hasattr(store.database, "url"):
        return b"".join(path.read_bytes() for path in store.database.path.parent.glob(store.database.path.name + "*"))
    import psycopg

    with psycopg.connect(store.database.url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        folder, path = connection.execute(
            "SELECT current_setting('data_directory'), pg_relation_filepath('dperm_published')"
        ).fetchone()
    return (Path(folder) / path).read_bytes()


def test_a_tidied_database_keeps_only_the_last_step(store: Store, collections: dict[str, Collection]) -> None:
    """Rows that move to other pages because new windows are added leave no copy either."""
    one, rng = Collection("hourly", collections["marginals"].model, window=3600), np.random.default_rng(1)
    store.register(one)
    nothing, states = PublishedState(0, *[Snapshot(one, [])] * 3), []
    for k in range(20):
        cells, keys = rng.integers(0, one.n_cells, 5000), np.arange(5000 * k, 5000 * k + 5000)
        store.add([Entry(one.digest, keys, np.ones(5000, np.uint64), cells)], 3600.0 * (k % 8))
        state, _ = store.steps.publish(one)
        states.append({content for _, _, _, content in state.changed_rows(nothing)})
    assert state.number == 20
    earlier = set().union(*states) - states[-1]
    assert len(earlier) > 50
    assert any(content in _files(store) for content in earlier)  # or the test would see nothing
    assert store.tidy()
    after = _files(store)
    assert all(content in after for content in states[-1])
    assert not [content for content in earlier if content in after]
