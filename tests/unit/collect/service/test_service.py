"""The service within one process: what it accepts, refuses, publishes and never stores."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dperm.collect import Collection, simulate
from dperm.collect.sdk.python import Device
from dperm.collect.sdk.python.device import parse_task
from dperm.collect.service import wire
from dperm.collect.service.service import Service
from dperm.collect.service.sources import SourceLimit
from dperm.collect.service.tokens import mint
from dperm.collect.store.store import Store, open_store
from dperm.privacy import RandomSource

ID = "00112233445566778899aabbccddeeff"
SECRET = "0123456789abcdef" * 4
OPERATOR = {"authorization": f"Bearer {SECRET}"}


def _run(store: Store, use: Callable[[Any], Awaitable[None]], client: Any, **options: Any) -> Service:
    async def main() -> Service:
        service = Service(store, **options)
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


def test_one_report(sqlite: Store, logistic: Collection, client: Any) -> None:
    async def use(to: Any) -> None:
        path = "/v1/logistic/reports"
        status, headers, body = await to.request("POST", path, _report(logistic))
        assert (status, json.loads(body)) == (201, {"accepted": 1, "duplicates": 0, "conflicts": 0})
        assert headers["access-control-allow-origin"] == "*"
        assert "set-cookie" not in headers
        # sending it again changes nothing; another answer under the same id is refused
        assert (await to.request("POST", path, _report(logistic)))[0] == 200
        assert (await to.request("POST", path, _report(logistic, b=0)))[0] == 409
        status, _, body = await to.request("GET", "/v1/logistic/estimate")
        assert status == 200
        assert json.loads(body)["reports"] == 1
        assert sqlite.counts(logistic).n_people == 1
        assert (await to.request("GET", "/health"))[0] == 200
        assert b'dperm_reports_total{outcome="accepted"} 1' in (await to.request("GET", "/metrics"))[2]

    _run(sqlite, use, client)


def test_many_reports_and_packed_ones(sqlite: Store, logistic: Collection, client: Any) -> None:
    reports = [{"id": os.urandom(16).hex(), "j": k % 8, "b": k % 2} for k in range(100)]
    body = json.dumps({"task": logistic.digest, "reports": reports}).encode()
    packed = wire.pack(logistic.digest, os.urandom(16 * 300), np.arange(300) % 8, np.arange(300) % 2)
    same = wire.pack(
        logistic.digest, bytes.fromhex("".join(r["id"] for r in reports)), np.arange(100) % 8, np.arange(100) % 2
    )
    kind = {"content-type": wire.PACKED, **OPERATOR}

    async def use(to: Any) -> None:
        path = "/v1/logistic/reports"
        assert json.loads((await to.request("POST", path, body, OPERATOR))[2])["accepted"] == 100
        # parts of a body are put together
        halves = [packed[:1000], packed[1000:]]
        assert json.loads((await to.request("POST", path, halves, kind))[2])["accepted"] == 300
        # both forms of one report are the same report
        assert json.loads((await to.request("POST", path, same, kind))[2])["duplicates"] == 100
        expected = np.concatenate([np.arange(100), np.arange(300)])
        cells = np.bincount(expected % 8 * 2 + expected % 2, minlength=16)
        assert np.array_equal(sqlite.counts(logistic).by_answer.ravel(), cells)

    _run(sqlite, use, client, batch_secret=SECRET)


@pytest.mark.parametrize("secret", [None, SECRET])
def test_batches_need_the_secret(sqlite: Store, logistic: Collection, client: Any, secret: str | None) -> None:
    """Without it a batch counts nothing, in either form and whatever is claimed; single reports need no secret."""
    reports = [{"id": os.urandom(16).hex(), "j": 0, "b": 0} for _ in range(20_000)]
    body = json.dumps({"task": logistic.digest, "reports": reports[:2]}).encode()
    packed = wire.pack(logistic.digest, os.urandom(16 * 20_000), np.zeros(20_000), np.zeros(20_000))
    one = json.dumps({"task": logistic.digest, "reports": reports[:1]}).encode()
    kind = {"content-type": wire.PACKED}
    wrong = ["", "Bearer None", "Bearer ", SECRET, f"Bearer {SECRET[:-1]}", f"bearer {SECRET}", f"Bearer {SECRET}\xff"]

    async def use(to: Any) -> None:
        path = "/v1/logistic/reports"
        for claimed in wrong + ([f"Bearer {SECRET}"] if secret is None else []):
            for content, headers in ((body, {}), (packed, kind)):
                status, _, answer = await to.request("POST", path, content, {**headers, "authorization": claimed})
                assert status == 403
                said = json.loads(answer)["error"]
                assert "several reports in one request need the operator's secret" in said
                assert said.startswith("the secret is wrong") == bool(claimed)
        assert sqlite.counts(logistic).n_people == 0
        assert (await to.request("POST", path, one))[0] == 201
        assert (await to.request("POST", path, packed[: 32 + 21], kind))[0] == 201
        if secret is not None:
            assert (await to.request("POST", path, body, OPERATOR))[0] == 201
        # a page of another site cannot send the secret: its browser asks first, and gets no permission
        allowed = (await to.request("OPTIONS", path))[1]["access-control-allow-headers"]
        assert allowed == "content-type"

    _run(sqlite, use, client, batch_secret=secret)


def test_sources_are_limited_one_by_one(sqlite: Store, logistic: Collection, client: Any) -> None:
    async def use(to: Any) -> None:
        path, statuses = "/v1/logistic/reports", []
        for k in range(6):
            status, headers, answer = await to.request("POST", path, _report(logistic, id=f"{k + 1:016x}" * 2))
            statuses.append(status)
        assert statuses == [201] * 3 + [429] * 3
        assert 1 <= int(headers["retry-after"]) <= 60
        assert "too many reports from this source" in json.loads(answer)["error"]
        # the same report later, another source, and the operator
        to.address = "198.51.100.4"
        assert (await to.request("POST", path, _report(logistic, id=f"{6:016x}" * 2)))[0] == 201
        to.address = "203.0.113.9"
        for k in range(10, 20):
            assert (await to.request("POST", path, _report(logistic, id=f"{k + 1:016x}" * 2), OPERATOR))[0] == 201
        assert (await to.request("GET", "/v1/logistic/estimate"))[0] == 200  # reading is not limited
        assert b"dperm_limited_reports_total 3" in (await to.request("GET", "/metrics"))[2]

    _run(sqlite, use, client, sources=SourceLimit(1.0, 3), batch_secret=SECRET)


def test_an_attack_is_marked_everywhere(sqlite: Store, logistic: Collection, client: Any) -> None:
    """Estimate and metrics say it; both use the published state, and so change together."""
    n = 400

    async def use(to: Any) -> None:
        path = "/v1/logistic/reports"
        kind = {"content-type": wire.PACKED, **OPERATOR}
        rng = np.random.default_rng(0)
        honest = rng.choice(8, n, p=logistic.task.probabilities)
        await to.request("POST", path, wire.pack(logistic.digest, os.urandom(16 * n), honest, honest % 2), kind)
        data = json.loads((await to.request("GET", "/v1/logistic/estimate"))[2])
        assert not data["suspicious"]
        text = (await to.request("GET", "/metrics"))[2].decode()
        assert 'dperm_suspicious{collection="logistic",version="1"} 0' in text
        assert json.loads((await to.request("GET", "/v1"))[2])[0]["suspicious"] is False
        forged = wire.pack(logistic.digest, os.urandom(16 * n), np.zeros(n), np.zeros(n))
        await to.request("POST", path, forged, kind)
        await asyncio.sleep(1.1)  # estimates are kept for a second
        data = json.loads((await to.request("GET", "/v1/logistic/estimate"))[2])
        assert data["suspicious"]
        assert data["draws"]["p"] < 1e-6
        text = (await to.request("GET", "/metrics"))[2].decode()
        assert 'dperm_suspicious{collection="logistic",version="1"} 1' in text
        assert json.loads((await to.request("GET", "/v1"))[2])[0]["suspicious"] is True
        assert data["draws"]["most_drawn"][0]["question"] == "target × seconds"
        stated = next(line for line in text.splitlines() if line.startswith("dperm_draws_p{"))
        assert float(stated.split()[1]) == pytest.approx(data["draws"]["p"], rel=1e-4)

    _run(sqlite, use, client, batch_secret=SECRET)


_BAD: dict[str, tuple[Any, int]] = {
    "not json": (b"{", 400),
    "a list": (b"[]", 400),
    "deep": (b"[" * 5000, 400),
    "bytes": (b"\xff\xfe\x00", 400),
    "another task": ({"task": "0" * 64}, 400),
    "no task": ({"task": None}, 400),
    "large j": ({"j": 8}, 400),
    "negative j": ({"j": -1}, 400),
    "j is true": ({"j": True}, 400),
    "j is a fraction": ({"j": 0.5}, 400),
    "j is infinite": (b'{"j": 1e999}', 400),
    "huge j": ({"j": 10**30}, 400),
    "large b": ({"b": 2}, 400),
    "b is text": ({"b": "1"}, 400),
    "short id": ({"id": "00"}, 400),
    "capital id": ({"id": ID.upper()}, 400),
    "id with a line end": ({"id": ID + "\n"}, 400),
    "something private beside it": ({"name": "Ada"}, 400),
    "token of nobody": ({"token": ID}, 400),
    "no reports": ({"reports": []}, 400),
    "reports and more": ({"reports": [{"id": ID, "j": 0, "b": 0}]}, 400),
}


@pytest.mark.parametrize("what", _BAD)
def test_malformed_reports_count_nothing(what: str, sqlite: Store, logistic: Collection, client: Any) -> None:
    given, expected = _BAD[what]
    body = given if isinstance(given, bytes) else _report(logistic, **given)

    async def use(to: Any) -> None:
        status, _, answer = await to.request("POST", "/v1/logistic/reports", body)
        assert status == expected
        assert set(json.loads(answer)) == {"error"}
        assert b"Ada" not in answer
        assert sqlite.counts(logistic).n_people == 0

    _run(sqlite, use, client)


def test_a_bad_report_among_good_ones_counts_none(sqlite: Store, logistic: Collection, client: Any) -> None:
    reports = [{"id": os.urandom(16).hex(), "j": 0, "b": 0} for _ in range(5)] + [{"id": ID, "j": 0, "b": 7}]
    packed = wire.pack(logistic.digest, os.urandom(32), [0, 9], [0, 1])

    async def use(to: Any) -> None:
        path = "/v1/logistic/reports"
        body = json.dumps({"task": logistic.digest, "reports": reports}).encode()
        assert (await to.request("POST", path, body, OPERATOR))[0] == 400
        for broken in (packed, packed[:-1], packed[:32], b""):
            assert (await to.request("POST", path, broken, {"content-type": wire.PACKED, **OPERATOR}))[0] == 400
        assert sqlite.counts(logistic).n_people == 0

    _run(sqlite, use, client, batch_secret=SECRET)


def test_large_bodies_other_methods_and_addresses(sqlite: Store, logistic: Collection, client: Any) -> None:
    async def use(to: Any) -> None:
        path = "/v1/logistic/reports"
        assert (await to.request("POST", path, b"", {"content-length": str(wire.MOST_BYTES + 1)}))[0] == 413
        assert (await to.request("POST", path, [b" " * 300_000] * 4))[0] == 413
        many = json.dumps({"task": logistic.digest, "reports": [0] * (wire.MOST_REPORTS + 1)}).encode()
        assert (await to.request("POST", path, many))[0] == 413
        assert (await to.request("GET", path))[0] == 405
        assert (await to.request("DELETE", "/v1/logistic/estimate"))[0] == 405
        status, headers, _ = await to.request("OPTIONS", path)
        assert status == 204
        assert headers["access-control-allow-headers"] == "content-type"
        for missing in (
            "/v1/nothing/estimate",
            "/v1/nothing/schema",
            "/nothing",
            "/v1/logistic/nothing",
        ):
            assert (await to.request("GET", missing))[0] == 404
        assert (await to.request("POST", "/v1/nothing/reports", _report(logistic)))[0] == 404
        for bad in ("version=x", "window=1.5", "version=1&version=1"):
            assert (await to.request("GET", f"/v1/logistic/estimate?{bad}"))[0] == 400
        assert (await to.request("GET", "/v1/logistic/estimate?version=2"))[0] == 404
        status, headers, body = await to.request("GET", "/v1/logistic/schema?version=1")
        assert body.decode() == logistic.text
        assert headers["etag"] == f'"{logistic.digest}"'
        assert json.loads((await to.request("GET", "/v1"))[2])[0]["hash"] == logistic.digest
        described = json.loads((await to.request("GET", "/openapi.json"))[2])
        assert {"405", "408"} <= described["paths"]["/v1/{task}/reports"]["post"]["responses"].keys()
        assert all("405" in one["get"]["responses"] for one in described["paths"].values() if "get" in one)

    _run(sqlite, use, client)


def test_tokens_are_needed_and_spent_once(tmp_path: Path, logistic: Collection, client: Any) -> None:
    one, key = Collection("asked", logistic.model, tokens=True), os.urandom(32)
    store = open_store(tmp_path / "collect.db", create=True)
    store.register(one)
    store.register(logistic)
    token, other = mint(key, one.digest), mint(os.urandom(32), one.digest)
    task = parse_task(one.text)
    report = Device(tmp_path / "a.json").report(task, [1, 0], "left", token=token).encode()
    forged = Device(tmp_path / "b.json").report(task, [1, 0], "left", token=other).encode()
    plain = wire.pack(one.digest, bytes.fromhex(token[:32]), [0], [0])

    async def use(to: Any) -> None:
        path = "/v1/asked/reports"
        assert len(report) == len(forged) == 224
        assert (await to.request("POST", path, forged))[0] == 403
        assert (await to.request("POST", path, _report(one)))[0] == 400
        assert (await to.request("POST", path, report))[0] == 201
        assert (await to.request("POST", path, report))[0] == 200
        # packed: id, j, b, code
        again = mint(key, one.digest)
        kind = {"content-type": wire.PACKED}
        body = plain[:32] + bytes.fromhex(again[:32]) + bytes(5) + bytes.fromhex(again[32:])
        assert (await to.request("POST", path, body, kind))[0] == 201
        assert (await to.request("POST", path, body[:-1] + b"\x00", kind))[0] in (403, 200)
        # a token of one collection is worth nothing in another
        wrong = body.replace(bytes.fromhex(one.digest), bytes.fromhex(logistic.digest))
        assert (await to.request("POST", "/v1/logistic/reports", wrong, kind))[0] == 400

    _run(store, use, client, token_key=key)


def test_only_half_of_an_id_is_kept(sqlite: Store, logistic: Collection, client: Any, tmp_path: Path) -> None:
    async def use(to: Any) -> None:
        assert (await to.request("POST", "/v1/logistic/reports", _report(logistic)))[0] == 201

    _run(sqlite, use, client)
    with closing(sqlite3.connect(tmp_path / "collect.db")) as raw:
        tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        values = {value for table in tables for row in raw.execute(f"SELECT * FROM {table}") for value in row}
    first, second = (int.from_bytes(bytes.fromhex(half), "little", signed=True) for half in (ID[:16], ID[16:]))
    assert first in values
    assert second not in values
    assert ID.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.one_of(
        st.binary(max_size=300),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(st.sampled_from(["task", "id", "j", "b", "reports", "token", "x"]), inner, max_size=5)
            ),
            max_leaves=12,
        ),
    )
)
def test_any_body_is_read_or_refused(body: Any, logistic: Collection) -> None:
    """Any body gives an entry of this collection or a refusal."""
    known = {logistic.digest: logistic}
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    if isinstance(body, dict):
        body = {**body, "task": logistic.digest}
        text = json.dumps(body).encode()
    for read, given_bytes in ((wire.read_json, text), (wire.read_packed, bytes.fromhex(logistic.digest) + text)):
        try:
            entry = read(given_bytes, "logistic", known, None, operator=True)
        except wire.Rejected:
            continue
        assert 0 < len(entry.keys) == len(entry.cells) == len(entry.secrets)
        assert 0 <= min(entry.cells) <= max(entry.cells) < logistic.n_cells


def test_simulated_people_send_what_devices_send(collections: dict[str, Collection]) -> None:
    """The vectorised records are those of the Python client, and every kind of collection can be estimated."""
    from dperm.collect.sdk.python import record
    from dperm.collect.service.results import estimate_document

    rng, source = np.random.default_rng(4), RandomSource()
    for name, one in collections.items():
        X, y = simulate.draw_people(one, 40, rng)
        made = simulate.device_records(one, X, y)
        document = one.document()
        for k in range(40):
            own = record(document, X[k].tolist(), None if y is None else y[k])
            np.testing.assert_allclose(made[k], own, rtol=1e-12, atol=1e-12)
        counts = one.task.no_counts()
        assert estimate_document(one, counts)["model"] is None or name in ("marginals", "smooth")
        for reports in simulate.report_batches(one, 200_000, 100_000, rng, source):
            counts += one.task.count(reports)
        data = json.loads(json.dumps(estimate_document(one, counts), allow_nan=False))
        assert data["n"] == 200_000
        assert data["model"] is not None, (name, data["reason"])
        # (m / n) width (e^epsilon + 1) / (e^epsilon - 1) of one bit; 2.16 at epsilon 1
        if one.task.n_levels == 2:
            factor = 1.0 / np.tanh(one.task.epsilon / 2.0)
            most = float(np.max((one.task.sketch.high - one.task.sketch.low) / counts.n)) * factor
            assert data["poisoning"]["one_fake_moves_a_mean_by_at_most"] == pytest.approx(most, rel=1e-6)
            assert f"times {factor:.4g}" in data["poisoning"]["statement"]


def test_estimates_are_close_to_the_truth(collections: dict[str, Collection]) -> None:
    from dperm.collect.service.results import estimate_document

    rng, source = np.random.default_rng(6), RandomSource(1)
    one = collections["marginals"]
    counts = one.task.no_counts()
    for reports in simulate.report_batches(one, 1_000_000, 250_000, rng, source):
        counts += one.task.count(reports)
    shares = estimate_document(one, counts)["model"]["shares"]
    truth = np.linspace(0.2, 0.8, 12)
    inside = [
        low - 0.02 <= value <= high + 0.02
        for (low, high), value in zip((s["interval"] for s in shares), truth, strict=True)
    ]
    assert sum(inside) >= 11
    pair = one.estimate_model.query(counts, {"q0": 1, "q11": 1})
    assert abs(pair["value"] - 0.16) < 0.05 + 2 * pair["deviation"]
