"""The service under load within one process: slow and many devices, a database that fails, nothing logged."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dperm.collect import Collection
from dperm.collect.service import group_commit
from dperm.collect.service.service import Service
from dperm.collect.service.sources import SourceLimit
from dperm.collect.store.store import Store, open_store
from dperm.errors import StoreError

ID = "00112233445566778899aabbccddeeff"


def _run(store: Store, use: Callable[[Any], Awaitable[None]], client: Any, limit: SourceLimit | None = None) -> Service:
    async def main() -> Service:
        service = Service(store, sources=limit or SourceLimit(0.0))
        async with service._lifespan(None):  # type: ignore[arg-type]
            await use(client(service))
        return service

    return asyncio.run(main())


def _report(one: Collection, **changes: Any) -> bytes:
    return json.dumps({"task": one.digest, "id": ID, "j": 0, "b": 1, **changes}).encode()


@pytest.fixture
def sqlite(tmp_path: Path, logistic: Collection) -> Store:
    opened_store = open_store(tmp_path / "collect.db", create=True)
    opened_store.register(logistic)
    return opened_store


def test_a_slow_body_is_cut_off(
    sqlite: Store, logistic: Collection, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dperm.collect.service.service.BODY_SECONDS", 0.05)

    async def use(to: Any) -> None:
        async def never() -> Any:
            await asyncio.sleep(30)

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "path": "/v1/logistic/reports", "method": "POST", "headers": []}
        await to.service(scope, never, send)
        assert sent[0]["status"] == 408

    _run(sqlite, use, client)


def test_a_database_that_fails_and_comes_back(
    sqlite: Store, logistic: Collection, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(to: Any) -> None:
        path, working = "/v1/logistic/reports", sqlite.database.writing

        def broken(*_: Any) -> Any:
            raise StoreError("the disk is full")

        monkeypatch.setattr(sqlite.database, "writing", broken)
        status, headers, answer = await to.request("POST", path, _report(logistic))
        assert (status, headers["retry-after"]) == (503, "2")
        assert b"disk" not in answer
        assert (await to.request("GET", "/health"))[0] == 503
        monkeypatch.setattr(sqlite.database, "writing", working)
        # before the next report: a balancer sends none while health is bad
        assert (await to.request("GET", "/health"))[0] == 200
        assert (await to.request("POST", path, _report(logistic)))[0] == 201
        assert sqlite.counts(logistic).n_people == 1

    _run(sqlite, use, client)


def test_too_many_waiting_reports_are_refused_for_now(
    sqlite: Store, logistic: Collection, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "MOST_WAITING", 10)
    go, working = threading.Event(), sqlite.add
    monkeypatch.setattr(sqlite, "add", lambda *given: go.wait(10) and working(*given))

    async def use(to: Any) -> None:
        bodies = [_report(logistic, id=os.urandom(16).hex()) for _ in range(30)]
        sent = [asyncio.create_task(to.request("POST", "/v1/logistic/reports", body)) for body in bodies]
        await asyncio.sleep(0.1)
        go.set()
        answers = [await one for one in sent]
        statuses = [status for status, _, _ in answers]
        assert sorted(set(statuses)) == [201, 429]
        assert all(headers["retry-after"] == "2" for status, headers, _ in answers if status == 429)
        assert sqlite.counts(logistic).n_people == statuses.count(201) == 10

    _run(sqlite, use, client)


def test_nothing_about_a_device_is_kept_or_logged(
    sqlite: Store, logistic: Collection, client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    caplog.set_level(0)
    about = {"user-agent": "Rare Browser 7", "cookie": "session=chocolate", "x-forwarded-for": "198.51.100.77"}

    async def use(to: Any) -> None:
        for _ in range(5):
            body = _report(logistic, id=os.urandom(16).hex())
            await to.request("POST", "/v1/logistic/reports", body, about)
        await to.request("POST", "/v1/logistic/reports", b"{", about)
        for path in ("/v1/logistic/estimate", "/metrics", "/v1/logistic/counts", "/health", "/v1"):
            body = (await to.request("GET", path, headers=about))[2]
            assert not any(part in body for part in (b"Rare", b"chocolate", b"198.51", b"203.0.113"))

    _run(sqlite, use, client, SourceLimit(1.0, 3, forwarded=True))
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")
    for part in ("Rare Browser", "chocolate", "198.51.100.77", "203.0.113.9"):
        assert part.encode() not in kept
        assert part not in caplog.text


def test_reports_share_transactions(sqlite: Store, logistic: Collection, client: Any) -> None:
    """Reports that arrive together are written together."""

    async def use(to: Any) -> None:
        bodies = [_report(logistic, id=os.urandom(16).hex()) for _ in range(200)]
        answers = await asyncio.gather(*(to.request("POST", "/v1/logistic/reports", body) for body in bodies))
        assert all(status == 201 for status, _, _ in answers)
        assert to.service.metrics.commits["done"] < 20

    service = _run(sqlite, use, client)
    assert service.metrics.reports["accepted"] == 200


def test_waiting_reports_are_written_before_the_service_ends(tmp_path: Path, logistic: Collection, client: Any) -> None:
    store = open_store(tmp_path / "collect.db", create=True)
    store.register(logistic)
    sent: list[Any] = []

    async def use(to: Any) -> None:
        bodies = [_report(logistic, id=os.urandom(16).hex()) for _ in range(50)]
        sent.extend(asyncio.ensure_future(to.request("POST", "/v1/logistic/reports", body)) for body in bodies)
        await asyncio.sleep(0.001)

    async def main() -> None:
        service = Service(store, sources=SourceLimit(0.0))
        async with service._lifespan(None):  # type: ignore[arg-type]
            await use(client(service))
        assert [(await one)[0] for one in sent] == [201] * 50

    asyncio.run(main())
    with open_store(tmp_path / "collect.db") as again:
        assert again.counts(logistic).n_people == 50


def test_nothing_is_acknowledged_before_it_is_on_disk(
    sqlite: Store, logistic: Collection, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, working = threading.Event(), sqlite.add
    monkeypatch.setattr(sqlite, "add", lambda *given: go.wait(10) and working(*given))

    async def use(to: Any) -> None:
        sent = asyncio.create_task(to.request("POST", "/v1/logistic/reports", _report(logistic)))
        done, _ = await asyncio.wait([sent], timeout=0.3)
        assert not done
        go.set()
        assert (await sent)[0] == 201

    _run(sqlite, use, client)


def test_reports_that_waited_for_a_transaction_do_not_wait_for_the_gap(
    sqlite: Store, logistic: Collection, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gap is between the beginnings of transactions: it is not added to a slow one."""
    monkeypatch.setattr(group_commit, "GAP_SECONDS", 0.8)
    began: list[float] = []
    ended: list[float] = []
    working = sqlite.add

    def slow(*given: Any) -> Any:
        began.append(time.perf_counter())
        time.sleep(0.9)
        found = working(*given)
        ended.append(time.perf_counter())
        return found

    monkeypatch.setattr(sqlite, "add", slow)

    async def use(to: Any) -> None:
        sent = []
        for _ in range(2):
            body = _report(logistic, id=os.urandom(16).hex())
            sent.append(asyncio.create_task(to.request("POST", "/v1/logistic/reports", body)))
            await asyncio.sleep(0.1)
        assert [(await one)[0] for one in sent] == [201, 201]

    _run(sqlite, use, client)
    assert began[1] - ended[0] < 0.8  # a gap that is added makes it longer than that, on any machine


def test_a_quiet_service_tidies_its_database(
    sqlite: Store, logistic: Collection, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "QUIET_SECONDS", 0.05)

    async def use(to: Any) -> None:
        assert (await to.request("POST", "/v1/logistic/reports", _report(logistic)))[0] == 201
        deadline = time.monotonic() + 10
        while (tmp_path / "collect.db-wal").stat().st_size > 0:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    _run(sqlite, use, client)


def test_tidying_that_was_prevented_is_tried_again(
    sqlite: Store, logistic: Collection, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "QUIET_SECONDS", 0.02)
    said: list[Any] = [False, StoreError("gone"), True]
    tried: list[Any] = []

    def tidy() -> bool:
        tried.append(said[len(tried)])
        if isinstance(tried[-1], Exception):
            raise tried[-1]
        return bool(tried[-1])

    monkeypatch.setattr(sqlite, "tidy", tidy)

    async def use(to: Any) -> None:
        assert (await to.request("POST", "/v1/logistic/reports", _report(logistic)))[0] == 201
        deadline = time.monotonic() + 10
        while len(tried) < len(said):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        assert tried == said  # and no more once it is done

    _run(sqlite, use, client)
