"""Group commit tidies the database when no reports arrive, after a step, and at the end."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

from dperm.collect import Collection
from dperm.collect.service import group_commit, publishing
from dperm.collect.service.group_commit import GroupCommit
from dperm.collect.service.metrics import ServiceMetrics
from dperm.collect.service.service import Service
from dperm.collect.store.store import Entry, Store


def test_a_service_tidies_after_a_step(
    store: Store, logistic: Collection, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more reports arrive, but a request takes a step: the previous state must not stay in the file."""
    monkeypatch.setattr(group_commit, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(publishing, "FRESH_SECONDS", 0.0)
    daily = Collection("daily", logistic.model, window=86_400)
    store.register(daily)
    tidied: list[float] = []
    keys = np.arange(20)
    store.add([Entry(daily.digest, keys, np.ones(20, np.uint64), keys % daily.n_cells)], 0.0)
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


def test_a_service_that_ends_early_tidies(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_request_to_tidy_during_tidying_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
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
