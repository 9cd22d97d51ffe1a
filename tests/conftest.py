"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from postgres_server import Unavailable, postgres_server
from programs import find_chromium
from spark_session import Unavailable as NoSpark
from spark_session import spark_session

#: folders and files whose tests take most of the time: contract suites, audits and whole programs
_LONG = (
    "tests/contracts/",
    "tests/audit/",
    "tests/e2e/",
    "tests/unit/estimators/central/test_sklearn_checks.py",
    "tests/unit/estimators/local/test_sklearn_checks.py",
    "tests/unit/privacy/ledger/test_processes.py",
    "tests/unit/test_docs.py",
    "tests/unit/test_mutants.py",
    "tests/unit/test_repeatable_noise.py",
    "tests/unit/vertical/session/test_protocol.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(_LONG):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium, which ``make test`` installs if it can. Without one, tests skip; under ``CI`` they fail."""
    found = find_chromium()
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium: run python tests/programs.py")
    return found


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session. Its tests run only where they are asked for, so they never skip."""
    try:
        with spark_session() as session:
            yield session
    except NoSpark as reason:
        pytest.fail(str(reason))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Address of a real PostgreSQL server, one per test process."""
    try:
        with postgres_server() as server:
            yield server.url
    except Unavailable as reason:
        pytest.skip(str(reason))
