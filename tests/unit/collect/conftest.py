"""Collections of every kind, small enough for fast tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dperm.collect import Collection
from dperm.collect.store.store import Store, open_store

_BOUNDS = {"features": [[0.0, -1.0], [10.0, 1.0]]}
_LOGISTIC = {"kind": "logistic", "epsilon": 1.0, "names": ["seconds", "mood"], "bounds": _BOUNDS, "degree": 2}
_DECLARED = {"centre": [0.0, 1.0, -2.0], "scale": [1.0, 2.0, 0.5], "clip": 2.0, "row_norm": 1.5}

MODELS: dict[str, dict[str, Any]] = {
    "logistic": {**_LOGISTIC, "classes": ["left", "stayed"]},
    "quartic": {**_LOGISTIC, "classes": [False, True], "degree": 4, "fit_intercept": False},
    "three-classes": {**_LOGISTIC, "classes": [1, 2, 3]},
    "levels": {**_LOGISTIC, "classes": [0, 1], "epsilon": 3.0, "n_levels": 16},
    "few-levels": {**_LOGISTIC, "classes": [0, 1], "epsilon": 1.5, "n_levels": 3},
    "linear": {
        "kind": "linear",
        "epsilon": 0.5,
        "names": ["a", "b", "c"],
        "bounds": _DECLARED,
        "target": [10.0, 30.0],
    },
    "marginals": {
        "kind": "marginals",
        "epsilon": 1.0,
        "columns": [f"q{k}" for k in range(12)],
        "k": 4,
        "n_people": 10**6,
    },
    "smooth": {
        "kind": "smooth",
        "epsilon": 2.0,
        "columns": ["x", "y"],
        "low": [0.0, -3.0],
        "high": [10.0, 5.0],
        "n_degrees": 6,
        "decay": 0.5,
    },
    "theta-grid": {"kind": "theta-grid", "epsilon": 1.0, "loss": "logistic", "n_parameters": 2, "bound": 2.0},
    "hinge": {"kind": "theta-grid", "epsilon": 1.0, "loss": "smoothed-hinge", "n_parameters": 3, "bound": 1.0},
}


@pytest.fixture(scope="session")
def collections() -> dict[str, Collection]:
    return {name: Collection(name, model) for name, model in MODELS.items()}


@pytest.fixture(scope="session")
def logistic(collections: dict[str, Collection]) -> Collection:
    return collections["logistic"]


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        address = str(tmp_path / "collect.db")
    else:
        import psycopg

        address = request.getfixturevalue("postgres_url")
        with psycopg.connect(address, autocommit=True) as connection:  # the server outlives a test
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
    with open_store(address, create=True) as opened:
        yield opened


class Client:
    """Speaks ASGI to a service in this process."""

    def __init__(self, service: Any) -> None:
        self.service, self.address = service, "203.0.113.9"

    async def request(
        self, method: str, path: str, body: bytes | list[bytes] = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        parts = [body] if isinstance(body, bytes) else list(body)
        path, _, query = path.partition("?")
        given = {"host": "x", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in given.items()],
            "client": (self.address, 1),
            "server": ("x", 80),
        }
        sent: list[Any] = []

        async def receive() -> Any:
            if not parts:
                return {"type": "http.disconnect"}
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.service(scope, receive, send)
        out = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        return sent[0]["status"], out, b"".join(m.get("body", b"") for m in sent[1:])


@pytest.fixture
def client() -> type[Client]:
    return Client
