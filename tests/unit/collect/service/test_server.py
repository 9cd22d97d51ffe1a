"""Connections over real sockets that last too long: which ones are closed, and which are not."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from dperm.collect import Collection
from dperm.collect.service.server import bounded_protocol, serve
from dperm.collect.service.service import Service
from dperm.collect.store.store import Store, open_store


@pytest.fixture
def sqlite(tmp_path: Path, logistic: Collection) -> Store:
    opened_store = open_store(tmp_path / "collect.db", create=True)
    opened_store.register(logistic)
    return opened_store


def _served(store: Store, use: Callable[[Service, int], Awaitable[None]], *, idle: float, in_progress: float) -> None:
    async def main() -> None:
        service = Service(store)
        http = bounded_protocol(service, 100, idle, in_progress)
        # uvicorn's own limit on silence would cut first
        server = uvicorn.Server(uvicorn.Config(service, http=http, log_level="warning", timeout_keep_alive=60))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            running = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                await asyncio.sleep(0.01)
            try:
                await use(service, listener.getsockname()[1])
            finally:
                server.should_exit = True
                await running

    asyncio.run(main())


def test_a_client_that_reads_no_answers_is_disconnected(sqlite: Store) -> None:
    """Its answers fill the buffers of the system: the next answer would wait for ever."""

    async def use(service: Service, port: int) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, b"GET /page/task.js HTTP/1.1\r\nhost: x\r\n\r\n" * 2000)
            await asyncio.sleep(0.7)
            assert service.metrics.connections == 1  # late already, but it has time for an answer under way
            deadline = time.monotonic() + 10
            while service.metrics.connections:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)

    _served(sqlite, use, idle=0.3, in_progress=1.5)


def test_a_connection_stays_open_during_a_slow_commit(
    sqlite: Store, logistic: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is on silence: a device whose report is being written gets its answer."""
    working = sqlite.add
    monkeypatch.setattr(sqlite, "add", lambda *given: time.sleep(1.0) or working(*given))
    body = json.dumps({"task": logistic.digest, "id": "0" * 32, "j": 0, "b": 1}).encode()

    async def use(service: Service, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST /v1/logistic/reports HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        assert (await reader.readline()).startswith(b"HTTP/1.1 201 ")
        answer: Any = await reader.readuntil(b"}")
        assert b'"accepted":1' in answer
        # then silence: closed after the limit
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert service.metrics.connections == 0
        writer.close()

    _served(sqlite, use, idle=0.3, in_progress=10.0)


def test_objects_loaded_before_the_service_are_exempt_from_garbage_collection(
    sqlite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searching them takes Python a tenth of a second, in which no report is answered."""
    before, searched = gc.get_freeze_count(), []

    def run(server: uvicorn.Server, sockets: Any = None) -> None:
        searched.append((gc.get_freeze_count() - before, len(gc.get_objects())))

    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr("dperm.collect.service.server.signal.signal", lambda *_: None)
    serve(Service(sqlite), port=0)
    ((frozen, left),) = searched
    assert left < 0.1 * frozen
    assert gc.get_freeze_count() == 0  # whoever called it has all of it back
    gc.freeze()  # as a server does that goes on to fork
    try:
        theirs = gc.get_freeze_count()
        serve(Service(sqlite), port=0)
        assert gc.get_freeze_count() >= theirs
    finally:
        gc.unfreeze()
