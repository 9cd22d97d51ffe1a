"""What is published is kept in the database: services that share it, or start again, publish the same steps."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dperm.collect import Collection
from dperm.collect.service import group_commit, publishing
from dperm.collect.service.group_commit import GroupCommit
from dperm.collect.service.metrics import ServiceMetrics
from dperm.collect.service.publishing import Publisher
from dperm.collect.service.service import Service
from dperm.collect.store.counters import Snapshot
from dperm.collect.store.steps import PublishedState
from dperm.collect.store.store import Entry, Store, open_store
from dperm.errors import StoreError


@pytest.fixture(autouse=True)
def _always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FRESH_SECONDS", 0.0)


@pytest.fixture
def daily(store: Store, logistic: Collection) -> Collection:
    one = Collection("daily", logistic.model, window=86_400)
    store.register(one)
    return one


@pytest.fixture
def again(store: Store) -> Iterator[Callable[[], Store]]:
    """Opens the same database once more, as another service would."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(open_store(_address(store)))


def _address(store: Any) -> str:
    return store.database.url if hasattr(store.database, "url") else str(store.database.path)


def _add(store: Store, one: Collection, first: int, n: int = 1, day: int = 0) -> None:
    keys = np.arange(first, first + n)
    store.add([Entry(one.digest, keys, np.ones(n, np.uint64), keys % one.n_cells)], 86_400.0 * day)


def _read(publisher: Publisher, one: Collection, window: int | None = None) -> dict[str, Any]:
    return json.loads(publisher.estimate(one, window))


def _asked(publisher: Publisher, one: Collection, window: int | None = None) -> np.ndarray:
    """How many answered each statistic, of what is published."""
    return np.array(_read(publisher, one, window)["statistics"]["n"])


def test_two_services_publish_the_same_steps(store: Store, daily: Collection, again: Callable[[], Store]) -> None:
    """One report comes between the first time that one is asked and the first time that the other is."""
    first, second = Publisher(store.steps), Publisher(again().steps)
    _add(store, daily, 0, 20)
    one = _read(first, daily)
    _add(store, daily, 20)
    other = _read(second, daily)
    assert (one["n"], one["reports"], other["n"], other["reports"]) == (20, 20, 20, 21)
    assert one["statistics"] == other["statistics"]
    _add(store, daily, 21, 19)
    assert [_read(p, daily)["n"] for p in (second, first)] == [40, 40]


def test_a_service_that_is_started_again_publishes_no_other_step(store: Store, daily: Collection) -> None:
    seen = set()
    for k in range(70):
        _add(store, daily, k)
        with open_store(_address(store)) as started:
            found = _read(Publisher(started.steps), daily)
        assert found["next_at"] == found["n"] + 20
        seen.add((found["n"], json.dumps(found["statistics"])))
    assert sorted(n for n, _ in seen) == [0, 20, 40, 60]


@pytest.mark.parametrize("ends", [(21,), (5, 10, 15, 65)])
def test_no_single_report_shows_in_a_window_of_any_service(
    ends: tuple[int, ...], store: Store, daily: Collection, again: Callable[[], Store]
) -> None:
    """What one service showed in another window stays there for all of them, and after a start."""
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


def test_a_step_that_another_service_took_first_is_taken_once(
    store: Store, daily: Collection, again: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that a step is due, with another number of reports."""
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


def test_a_step_that_is_being_written_is_waited_for(
    store: Store, daily: Collection, again: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the number and the writing nobody else may write."""
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


def test_many_services_at_once_publish_one_row_of_steps(
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


def test_whoever_counts_does_not_wait_while_a_step_is_computed(
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


def test_a_database_of_the_version_before(store: Store, daily: Collection, again: Callable[[], Store]) -> None:
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
    """It comes to the same number with another state: neither is taken for the other, nor written over it."""
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


def test_a_database_without_stamps(store: Store, daily: Collection, again: Callable[[], Store]) -> None:
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


def test_a_database_that_cannot_be_written_shows_what_it_published(
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
    """The first step after a merge may have them all; looking through everything for each would take minutes."""
    rows = [[day, cell, 1] for day in range(366) for cell in (day % 7, 9)]
    rows += [[0, 8, 30], [-3, 4, 25]]
    store.counters.merge({"format": "dperm counts 1", "task": daily.digest, "collectors": {"x": rows}})
    with monkeypatch.context() as whole:
        whole.setattr(Snapshot, "cells", None)
        state, reports = store.steps.publish(daily)
    assert (state.n, reports) == (787, 787)
    assert state.visible.windows == {-3: 25, 0: 762}
    assert state.visible.cells().tolist() == store.steps.read(daily)[1].cells().tolist()


# ------------------------------------------------------------------------------------------ copies
class _Collector:
    """Publishes reports that have a statistic each, so that what is published tells which they are."""

    def __init__(self, one: Collection, reports: list[tuple[int, int]], state: PublishedState) -> None:
        self.one, self.reports, self.state = one, reports, state

    @property
    def found(self) -> Snapshot:
        each = [(day, np.array([2 * report]), np.array([1])) for day, report in self.reports]
        return Snapshot(self.one, each).compact()

    def run(self, rng: np.random.Generator, first: int, n: int, day: int) -> list[np.ndarray]:
        """Count reports, some of a day that has just ended, and return what is published meanwhile, day by day."""
        out, rare = [], rng.random() / 4
        for k in range(n):
            day += rng.random() < rare
            self.reports.append((max(0, day - int(rng.random() < 0.1)), first + k))
            if rng.random() < 0.5 and self.found.n >= self.state.next_at:
                self.state = self.state.after(self.found)
                days = [self.state.visible.cells(d) for d in range(_DAYS)]
                out.append(np.array(days)[:, ::2])
        return out


_DAYS = 40


@pytest.mark.parametrize("seed", range(12))
def test_a_copy_and_its_original_never_differ_by_few_reports(seed: int, collections: dict[str, Collection]) -> None:
    """Every sum over days that one of them ever publishes differs from every one of the other by 20 reports, or 0."""
    one, rng, none = collections["marginals"], np.random.default_rng(seed), Snapshot(collections["marginals"], [])
    original = _Collector(one, [], PublishedState(0, none, none, none))
    before = original.run(rng, 0, int(rng.integers(40, 120)), 0)
    copy = _Collector(one, list(original.reports), original.state.for_copy(original.found))
    day = max(d for d, _ in original.reports)
    ours, theirs = original.run(rng, 200, 100, day), copy.run(rng, 400, 100, day)
    assert len(ours) > 1
    assert len(theirs) > 1
    assert theirs[-1].sum() == len(copy.reports) or copy.found.n < copy.state.next_at
    for a, b in itertools.combinations([*before, *ours, *theirs], 2):
        assert set(np.unique(a)) <= {0, 1}
        same = (np.ones(_DAYS, bool), *np.eye(_DAYS, dtype=bool), *(rng.random((20, _DAYS)) < 0.5))
        other = rng.random((20, 2, _DAYS)) < 0.5
        for days, those in (*((one, one) for one in same), *other):
            few = np.abs(a[days].sum(axis=0) - b[those].sum(axis=0)).sum()
            assert few == 0 or few >= 20


def test_what_a_copy_held_is_shown_with_enough_that_came_later(store: Store, daily: Collection) -> None:
    """The original may have shown a window of the time of the copy with one report more."""
    _add(store, daily, 0, 40, day=0)
    assert _read(Publisher(store.steps), daily)["n"] == 40
    _add(store, daily, 100, 30, day=1)
    store.mark_as_copy()
    store.mark_as_copy()  # a copy of the copy, before anything came
    publisher = Publisher(store.steps)
    assert (_read(publisher, daily)["n"], _read(publisher, daily)["next_at"]) == (40, 90)
    _add(store, daily, 200, 3, day=1)
    _add(store, daily, 300, 16, day=2)
    assert _read(publisher, daily)["windows"] == {"0": 40}
    _add(store, daily, 400, 1, day=2)
    assert _read(publisher, daily)["windows"] == {"0": 40, "2": 50}  # not {"1": 33, ...}
    _add(store, daily, 500, 25, day=1)
    assert _read(Publisher(store.steps), daily)["windows"] == {"0": 40, "1": 25, "2": 50}


@pytest.mark.parametrize("between", ["SELECT number FROM dperm_steps", "FROM dperm_merged", "DELETE"])
def test_a_database_that_is_told_to_be_a_copy_waits_with_steps_and_reports(
    between: str, store: Store, daily: Collection, again: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another service is busy at whatever moment: what it showed stays shown, and what it counted stays counted."""
    other, rows, late = again(), store.database.rows, []
    _add(store, daily, 0, 20)
    assert store.steps.publish(daily)[0].n == 20

    def step() -> PublishedState:
        _add(other, daily, 20, 20)
        return other.steps.publish(daily)[0]

    with ThreadPoolExecutor(1) as pool:

        def slowly(connection: Any, sql: str, *given: Any) -> Any:
            if between in sql and not late:
                late.append(pool.submit(step))
                time.sleep(0.3)
            return rows(connection, sql, *given)

        with monkeypatch.context() as slow:
            slow.setattr(store.database, "rows", slowly)
            store.mark_as_copy()
        shown = late[0].result(20)
    state, found = store.steps.read(daily)
    assert found.n == 40
    assert state.visible.cells().tolist() == shown.visible.cells().tolist()
    assert state.number == shown.number == 3
    assert state.held.n == 0


def test_a_copy_loses_no_collection_that_another_service_added(
    store: Store, daily: Collection, collections: dict[str, Collection], again: Callable[[], Store]
) -> None:
    other = again()
    added = next(one for one in collections.values() if one.name != daily.name)
    other.register(added)
    _add(other, added, 0, 3)
    with pytest.raises(StoreError, match=r"a collection was added to .* meanwhile"):
        store.mark_as_copy()
    assert other.counts(added).n_people == 3


def test_a_backup_waits_for_reports_of_its_own(logistic: Collection, tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db", create=True) as a:
        a.register(logistic)
        _add(a, logistic, 0, 45)
        a.backup(tmp_path / "copy.db")
        assert a.steps.read(logistic)[0].n == 45  # published before, so that the copy holds little back
        _add(a, logistic, 100, 20)
        assert _read(Publisher(a.steps), logistic)["n"] == 65
        a.backup(tmp_path / "later.db")
    for name, shown in (("copy.db", 45), ("later.db", 65)):
        with open_store(tmp_path / name) as copy:
            _add(copy, logistic, 1000, 19)
            assert _read(Publisher(copy.steps), logistic)["n"] == shown
            _add(copy, logistic, 2000, 1)
            assert _read(Publisher(copy.steps), logistic)["n"] == shown + 20


def test_a_backup_that_is_not_finished_is_none(
    logistic: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy without a name of its own would publish steps that differ from the original's by one report."""
    seen = []

    def fails(_: Store) -> None:
        seen.append((tmp_path / "copy.db").exists())
        raise StoreError("the disk is full")

    with open_store(tmp_path / "a.db", create=True) as a:
        a.register(logistic)
        _add(a, logistic, 0, 25)
        with monkeypatch.context() as broken:
            broken.setattr(Store, "mark_as_copy", fails)
            with pytest.raises(StoreError, match="full"):
                a.backup(tmp_path / "copy.db")
        assert seen == [False]
        assert not [path for path in tmp_path.iterdir() if not path.name.startswith("a.db")]
        a.backup(tmp_path / "copy.db")
        with open_store(tmp_path / "copy.db") as copy:
            assert copy.counters.collector != a.counters.collector


# ------------------------------------------------------------------------------------------ what stays on disk
def _files(store: Any) -> bytes:
    """The very bytes of what is published, as somebody with the disk would find them."""
    if not hasattr(store.database, "url"):
        return b"".join(path.read_bytes() for path in store.database.path.parent.glob(store.database.path.name + "*"))
    import psycopg

    with psycopg.connect(store.database.url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        folder, path = connection.execute(
            "SELECT current_setting('data_directory'), pg_relation_filepath('dperm_published')"
        ).fetchone()
    return (Path(folder) / path).read_bytes()


def test_a_quiet_database_keeps_the_last_step_alone(store: Store, collections: dict[str, Collection]) -> None:
    """Rows that move to other pages, because new windows make more of them, leave no copy either."""
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


def test_a_service_tidies_after_a_step(
    store: Store, daily: Collection, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reports any more, but somebody asks: the state before must not stay in the file."""
    monkeypatch.setattr(group_commit, "QUIET_SECONDS", 0.05)
    tidied: list[float] = []
    _add(store, daily, 0, 20)
    tidy = store.tidy
    monkeypatch.setattr(store, "tidy", lambda: tidied.append(time.monotonic()) or tidy())

    async def main() -> None:
        service = Service(store)
        service.commits.start()
        await asyncio.sleep(0.5)
        started = len(tidied)
        assert started >= 1  # for a service before this one that was killed
        to = client(service)
        await to.request("GET", "/v1/daily/estimate")
        await asyncio.sleep(0.5)
        first = len(tidied)
        assert first > started
        await to.request("GET", "/v1/daily/estimate")  # nothing new
        await asyncio.sleep(0.3)
        assert len(tidied) == first
        await service.commits.stop()
        assert len(tidied) == first

    asyncio.run(main())


def test_a_service_that_ends_before_a_quiet_moment_tidies(monkeypatch: pytest.MonkeyPatch) -> None:
    tidied = []

    class Quick:
        def tidy(self) -> bool:
            tidied.append(1)
            return True

    async def main() -> None:
        box = GroupCommit(Quick(), ServiceMetrics())  # type: ignore[arg-type]
        box.start()
        box.request_tidying()
        await asyncio.sleep(0.02)
        await box.stop()

    asyncio.run(main())
    assert len(tidied) == 1


def test_a_disturbance_while_tidying_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "QUIET_SECONDS", 0.02)
    entered, go, tidied = threading.Event(), threading.Event(), []

    class Slow:
        def tidy(self) -> bool:
            tidied.append(1)
            entered.set()
            return go.wait(10)

    async def main() -> None:
        box = GroupCommit(Slow(), ServiceMetrics())  # type: ignore[arg-type]
        box.start()
        box.request_tidying()
        await asyncio.to_thread(entered.wait, 10)
        box.request_tidying()
        go.set()
        await asyncio.sleep(0.3)
        await box.stop()

    asyncio.run(main())
    assert len(tidied) == 2
