"""Keys of the limit per source that repeat: whether two sources share a place must not change from run to run."""

from __future__ import annotations

import hashlib
import itertools
from types import SimpleNamespace

import pytest

from dperm.collect.service import sources


@pytest.fixture(autouse=True)
def repeatable_places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Number the keys of a test; a test marked ``fresh_noise`` has the operating system's."""
    if request.node.get_closest_marker("fresh_noise"):
        return
    numbers = itertools.count(1)

    def token_bytes(n: int) -> bytes:
        return hashlib.sha256(f"source key {next(numbers)}".encode()).digest()[:n]

    monkeypatch.setattr(sources, "secrets", SimpleNamespace(token_bytes=token_bytes))
