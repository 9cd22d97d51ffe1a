"""A fresh ledger address of every kind, and child processes that use it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tests' fingerprint key out of the user's folder."""
    home = tmp_path / "home"
    monkeypatch.setenv("DPERM_HOME", str(home))
    return home


@pytest.fixture
def database(postgres_url: str) -> str:
    """Address of an empty database."""
    name = f"ledger_{next(_numbers)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres_url.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["file", "server"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a ledger that does not exist yet and that processes can share."""
    if request.param == "server":
        return str(request.getfixturevalue("database"))
    return str(tmp_path / "budget.db")


@pytest.fixture(params=["memory", "file", "server"])
def any_address(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Address of a ledger of any kind; None is in memory."""
    if request.param == "server":
        return str(request.getfixturevalue("database"))
    return str(tmp_path / "budget.db") if request.param == "file" else None


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a real child process that runs a script; all are gone after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
