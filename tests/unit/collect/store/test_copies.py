"""Copies of a database: they count under a new name and publish steps of their own reports only."""

from __future__ import annotations

import itertools
import json
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


def _add(store: Store, one: Collection, first: int, n: int = 1, day: int = 0) -> None:
    keys = np.arange(first, first + n)
    store.add([Entry(one.digest, keys, np.ones(n, np.uint64), keys % one.n_cells)], 86_400.0 * day)


def _read(publisher: Publisher, one: Collection, window: int | None = None) -> dict[str, Any]:
    return json.loads(publisher.estimate(one, window))


class _Collector:
    """Publishes reports with a statistic each, so that the published counts identify them."""

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
    """Every published sum over days of one differs from every one of the other by 20 reports or more, or by none."""
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


def test_held_reports_are_shown_together_with_enough_later_ones(store: Store, daily: Collection) -> None:
    """The original may have shown a window of that time with one more report."""
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
def test_marking_a_copy_excludes_steps_and_reports_of_other_services(
    between: str, store: Store, daily: Collection, again: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another service works at that moment: what it showed stays shown, and what it counted stays counted."""
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


def test_marking_a_copy_loses_no_collection_that_another_service_added(
    store: Store, daily: Collection, collections: dict[str, Collection], again: Callable[[], Store]
) -> None:
    other = again()
    added = next(one for one in collections.values() if one.name != daily.name)
    other.register(added)
    _add(other, added, 0, 3)
    with pytest.raises(StoreError, match=r"a collection was added to .* meanwhile"):
        store.mark_as_copy()
    assert other.counts(added).n_people == 3


def test_a_backup_publishes_only_after_reports_of_its_own(logistic: Collection, tmp_path: Path) -> None:
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


def test_an_unfinished_backup_leaves_no_file(
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
