"""Public estimates in steps, and counters for the operator only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dperm.collect import Collection
from dperm.collect.service import publishing
from dperm.collect.service.publishing import Publisher
from dperm.collect.service.service import Service
from dperm.collect.store.steps import step_size
from dperm.collect.store.store import Entry, Store, open_store

SECRET = "0123456789abcdef" * 4


@pytest.fixture
def daily(logistic: Collection) -> Collection:
    return Collection("daily", logistic.model, window=86_400)


@pytest.fixture
def sqlite(tmp_path: Path, daily: Collection) -> Iterator[Store]:
    with open_store(tmp_path / "collect.db", create=True) as store:
        store.register(daily)
        yield store


def _add(store: Store, one: Collection, first: int, n: int, moment: float = 0.0) -> None:
    keys = np.arange(first, first + n)
    store.add([Entry(one.digest, keys, np.ones(n, np.uint64), keys % one.n_cells)], moment)


def test_step_sizes() -> None:
    assert [step_size(n) for n in (0, 100, 2000, 2100, 10**6)] == [20, 20, 20, 21, 10_000]


def test_no_single_report_shows_in_estimates(sqlite: Store, daily: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every report the estimate is requested: it stays the same until many more have arrived."""
    monkeypatch.setattr(publishing, "FRESH_SECONDS", 0.0)
    publisher, states, counted = Publisher(sqlite.steps), [], []
    for k in range(0, 120):
        _add(sqlite, daily, k, 1, 86_400.0 * (k // 60))
        # windows and the whole are of one moment: their difference is no single report either
        parts = [json.loads(publisher.estimate(daily, window)) for window in (None, 0, 1)]
        counted.append(parts[0].pop("reports"))
        assert parts[0]["n"] == parts[1]["n"] + parts[2]["n"] == sum(parts[0]["windows"].values())
        assert parts[0]["next_at"] == parts[0]["n"] + 20
        states.append((parts[0]["n"], json.dumps(parts[0]["statistics"])))
    assert counted == list(range(1, 121))  # the count is live
    assert sorted({n for n, _ in states}) == [0, 20, 40, 60, 80, 100, 120]
    assert len(set(states)) == 7


@pytest.mark.parametrize("ends", [(19,), (20,), (21,), (50,), (50, 51, 52, 53), (5, 10, 15, 95)])
def test_no_single_report_shows_in_a_window(
    ends: tuple[int, ...], sqlite: Store, daily: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that has just begun or ended has few reports of a step: they are not shown on their own."""
    monkeypatch.setattr(publishing, "FRESH_SECONDS", 0.0)
    publisher = Publisher(sqlite.steps)
    last = {window: np.zeros(daily.task.sketch.size, np.int64) for window in range(len(ends) + 1)}
    for k in range(120):
        _add(sqlite, daily, k, 1, 86_400.0 * sum(k >= end for end in ends))
        whole = json.loads(publisher.estimate(daily, None))
        found = {window: json.loads(publisher.estimate(daily, window)) for window in last}
        assert {int(w): n for w, n in whole["windows"].items()} == {w: x["n"] for w, x in found.items() if x["n"]}
        assert whole["n"] == sum(x["n"] for x in found.values())
        for window, estimate in found.items():
            now = np.array(estimate["statistics"]["n"])
            assert (now - last[window]).min() >= 0
            assert (now - last[window]).sum() == 0 or (now - last[window]).sum() >= 20
            last[window] = now
    assert whole["n"] == 120  # and none is lost
    expected = np.bincount(np.arange(120) % daily.n_cells // 2, minlength=daily.task.sketch.size)
    assert sum(last.values()).tolist() == expected.tolist() == whole["statistics"]["n"]


def test_a_large_window_is_shown_as_it_is(sqlite: Store, daily: Collection) -> None:
    for window, n in enumerate((50, 3, 30, 5)):
        _add(sqlite, daily, 100 * window, n, 86_400.0 * window)
    assert json.loads(Publisher(sqlite.steps).estimate(daily, 2))["windows"] == {"0": 58, "2": 30}


def test_counters_are_read_once_a_second(sqlite: Store, daily: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, look = [], sqlite.steps.read
    monkeypatch.setattr(sqlite.steps, "read", lambda *given: looked.append(given) or look(*given))
    publisher = Publisher(sqlite.steps)
    for window in (None, None, 0, 1, None):
        publisher.estimate(daily, window)
    assert len(looked) == 1


@pytest.mark.parametrize("secret", [None, SECRET])
def test_counters_are_for_the_operator(sqlite: Store, daily: Collection, client: Any, secret: str | None) -> None:
    _add(sqlite, daily, 0, 3)

    async def main() -> None:
        to = client(Service(sqlite, counts_secret=secret))
        wrong = ({}, {"authorization": ""}, {"authorization": "Bearer None"}, {"authorization": SECRET})
        for headers in (*wrong, {"authorization": f"Bearer {SECRET[:-1]}"}, {"authorization": f"Bearer {SECRET}\xff"}):
            status, answered, body = await to.request("GET", "/v1/daily/counts", headers=headers)
            assert (status, set(json.loads(body))) == (403, {"error"})
            assert "access-control-allow-origin" not in answered
        known = {"authorization": f"Bearer {SECRET}"}
        status, answered, body = await to.request("GET", "/v1/daily/counts", headers=known)
        assert status == (403 if secret is None else 200)
        assert not {"access-control-allow-origin", "cross-origin-resource-policy"} & set(answered)
        if secret is not None:
            assert sum(n for rows in json.loads(body)["collectors"].values() for _, _, n in rows) == 3
            status, answered, _ = await to.request("GET", "/v1/nothing/counts", headers=known)
            assert (status, "access-control-allow-origin" in answered) == (404, False)

    asyncio.run(main())
