"""A collector that is killed, flooded and disconnected: nothing acknowledged is lost, nothing counts twice."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from postgres_server import Unavailable, postgres_server

from dperm.collect import Collection
from dperm.collect.store.store import open_store


def _body(one: Collection, k: int) -> str:
    report = {"task": one.digest, "id": f"{k:032x}", "j": k % 8, "b": k % 2}
    return json.dumps(report).ljust(224)


async def _post(url: str, body: str) -> int:
    """Send one report on a connection of its own; 0 if there was no answer."""
    parts = urlsplit(url)
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return 0
    try:
        head = f"POST /v1/speed/reports HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body.encode())
        line = await reader.readline()
        return int(line.split()[1]) if line else 0
    except OSError:
        return 0
    finally:
        writer.close()


def _shuffled_id(k: int) -> int:
    """Spread ids over the whole range, the same for the same k."""
    return (k * 0x9E3779B97F4A7C15F39CC0605CEDC835 + 12345) % 2**128


def _emptied(url: str) -> str:
    """The tests' PostgreSQL, emptied of what another test left in it."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return url


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_kill_under_load_loses_and_doubles_nothing(
    database: str, start: Callable[..., Any], speed: Collection, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = str(tmp_path / "collect.db")
    if database == "postgresql":
        address = _emptied(request.getfixturevalue("postgres_url"))
    ids = [_shuffled_id(k) for k in range(800)]
    acknowledged: set[int] = set()

    async def load(url: str, todo: list[int], kill_after: int, kill: Callable[[], None]) -> None:
        left = iter(todo)

        async def one_by_one() -> None:
            for k in left:
                if await _post(url, _body(speed, ids[k])) in (200, 201):
                    acknowledged.add(k)
                    if len(acknowledged) == kill_after:
                        kill()

        await asyncio.gather(*(one_by_one() for _ in range(16)))

    kills = [150, 400]
    for round_ in range(len(kills) + 1):
        collector = start(database=address)
        todo = [k for k in range(len(ids)) if k not in acknowledged]  # everybody who got no answer tries again
        last = round_ == len(kills)
        asyncio.run(load(collector.url, todo, -1 if last else kills[round_], collector.kill))
        if last:
            assert collector.stop() == 0
    assert len(acknowledged) == len(ids)
    with open_store(address) as store:
        counts = store.counts(store.find("speed"))
    expected = [0] * 16
    for key in ids:
        expected[key % 8 * 2 + key % 2] += 1
    assert counts.by_answer.ravel().tolist() == expected


def test_an_orderly_shutdown_finishes_requests_in_progress(
    start: Callable[..., Any], speed: Collection, tmp_path: Path
) -> None:
    collector = start()

    async def run() -> list[int]:
        sent = [asyncio.create_task(_post(collector.url, _body(speed, _shuffled_id(k)))) for k in range(100)]
        await asyncio.sleep(0.05)
        collector.process.terminate()
        return [await one for one in sent]

    statuses = asyncio.run(run())
    assert collector.process.wait(30) == 0
    with open_store(tmp_path / "collect.db") as store:
        assert store.counts(store.find("speed")).n_people == statuses.count(201) > 0
    assert collector.log.read_text() == ""


def test_idle_and_slow_clients_are_refused_with_an_answer(start: Callable[..., Any], speed: Collection) -> None:
    """Of ten thousand silent connections a bounded number is held; the others are refused, and reports still arrive."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10_000
    if hard != resource.RLIM_INFINITY and hard < wanted + 500:
        wanted = hard - 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + 500) if hard > 0 else wanted + 500, hard))
    collector = start("--most-connections", "200", "--idle-seconds", "2")
    where = urlsplit(collector.url)
    held: list[socket.socket] = []
    try:
        for _ in range(wanted):
            held.append(socket.create_connection((where.hostname, where.port), timeout=30))
        refused = 0
        for one in held[::100]:
            one.settimeout(0.2)
            try:
                answer = one.recv(400)
            except TimeoutError:
                continue
            if not answer:  # held for a while, then closed because it said nothing
                continue
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert answer.endswith(b'{"error":"too many connections: try again in a while"}')
            refused += 1
        assert refused >= len(held[::100]) // 3
    finally:
        for one in held:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    deadline = time.monotonic() + 30
    while asyncio.run(_post(collector.url, _body(speed, 1))) != 201:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with urllib.request.urlopen(f"{collector.url}/metrics") as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    assert float(lines["dperm_refused_connections_total"]) >= wanted / 3
    # half a request, then silence: closed after the limit
    with socket.create_connection((where.hostname, where.port), timeout=30) as slow:
        slow.sendall(b"POST /v1/speed/reports HTTP/1.1\r\nhost")
        started = time.monotonic()
        assert slow.recv(100) == b""
        assert time.monotonic() - started < 10
    # whole requests, then one byte of another now and then: the limit begins anew with every answer
    with socket.create_connection((where.hostname, where.port), timeout=30) as slow:
        for _ in range(3):
            slow.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            seen = b""
            while not seen.endswith(b"}"):
                part = slow.recv(1000)
                assert part
                seen += part
            time.sleep(1.2)
        started = time.monotonic()
        slow.settimeout(0.4)
        for byte in b"GET /health HTTP/1.1\r\nhost: x\r\n":
            try:
                slow.sendall(bytes([byte]))
                assert slow.recv(100) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert time.monotonic() - started < 6
    assert collector.log.read_text() == ""


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_nothing_about_a_device_is_kept_or_printed(
    database: str, start: Callable[..., Any], speed: Collection, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = str(tmp_path / "collect.db")
    if database == "postgresql":
        address = _emptied(request.getfixturevalue("postgres_url"))
    collector = start("--source-rate", "1", "--source-burst", "4", "--forwarded-for", database=address)
    about = {"User-Agent": "Rare Browser 7", "Cookie": "session=chocolate", "X-Forwarded-For": "198.51.100.77"}
    for k in range(3):
        body = _body(speed, _shuffled_id(k)).encode()
        request = urllib.request.Request(f"{collector.url}/v1/speed/reports", body, about, method="POST")
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 201
    bad = urllib.request.Request(f"{collector.url}/v1/speed/reports?who=ada", b"{", about, method="POST")
    for status in (400, 429):  # the fifth request is beyond the limit of its source
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(bad)
        assert refused.value.code == status
        refused.value.close()
    with socket.create_connection(urlsplit(collector.url).netloc.split(":"), timeout=30) as broken:
        broken.sendall(b"\x16\x03\x01 nonsense of Rare Browser 7\r\n\r\n")
        broken.recv(1000)
    assert collector.stop() == 0
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    if database == "postgresql":
        kept += _everything_in(address)
    assert speed.digest.encode() in kept
    # the collections that it serves and that somebody does not speak HTTP, nothing more
    printed = collector.printed().replace("WARNING:  Invalid HTTP request received.\n", "")
    limit = "  reports: 1 a minute, 4 at once, from the address in X-Forwarded-For\n"
    assert printed == f"  speed version 1, epsilon 1, hash {speed.digest}\n{limit}"
    for part in (b"Rare Browser", b"chocolate", b"198.51.100.77", b"127.0.0.1", b"who=ada"):
        assert part not in kept


def _everything_in(url: str) -> bytes:
    """All rows of all tables, including the database's own records of connections and statements."""
    import psycopg

    out = []
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (name,) in [*tables, ("pg_stat_activity",)]:
            out += [str(row) for row in connection.execute(f"SELECT * FROM {name}")]
    return "\n".join(out).encode()


def _health(url: str) -> int:
    try:
        with urllib.request.urlopen(f"{url}/health") as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_postgresql_stops_and_starts_again(start: Callable[..., Any], speed: Collection) -> None:
    """While the server is down, reports are refused for now; nothing is lost, and health recovers first."""
    try:
        with postgres_server() as server:
            collector = start(database=server.url)
            assert asyncio.run(_post(collector.url, _body(speed, _shuffled_id(1)))) == 201
            server.stop()
            assert asyncio.run(_post(collector.url, _body(speed, _shuffled_id(2)))) == 503
            assert _health(collector.url) == 503
            server.start()
            assert _health(collector.url) == 200
            assert [asyncio.run(_post(collector.url, _body(speed, _shuffled_id(k)))) for k in (1, 2, 3)] == [
                200,
                201,
                201,
            ]
            assert collector.stop() == 0
            with open_store(server.url) as store:
                assert store.counts(store.find("speed")).n_people == 3
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_postgresql_cuts_connections(start: Callable[..., Any], speed: Collection, postgres_url: str) -> None:
    """The connection is lost in the middle of the work: the next report uses a new one."""
    import psycopg

    with psycopg.connect(_emptied(postgres_url), autocommit=True) as connection:
        collector = start(database=postgres_url)
        assert asyncio.run(_post(collector.url, _body(speed, _shuffled_id(1)))) == 201
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dperm collect'"
        connection.execute(cut)
        statuses = [asyncio.run(_post(collector.url, _body(speed, _shuffled_id(2)))) for _ in range(3)]
        assert statuses[0] in (201, 503)
        assert statuses[-1] in (200, 201)
        connection.execute("ALTER TABLE dperm_counters RENAME TO elsewhere")
        assert asyncio.run(_post(collector.url, _body(speed, _shuffled_id(3)))) == 503
        assert _health(collector.url) == 503
        connection.execute("ALTER TABLE elsewhere RENAME TO dperm_counters")
        assert asyncio.run(_post(collector.url, _body(speed, _shuffled_id(3)))) == 201
    with open_store(postgres_url) as store:
        assert store.counts(store.find("speed")).n_people == 3
    assert os.environ.get("PGPASSWORD", "no password") not in collector.log.read_text()
