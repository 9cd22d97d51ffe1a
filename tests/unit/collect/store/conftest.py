"""A collection with windows of a day, and further services on the same database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from dperm.collect import Collection
from dperm.collect.service import publishing
from dperm.collect.store.store import Store, open_store


@pytest.fixture(autouse=True)
def _read_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FRESH_SECONDS", 0.0)


@pytest.fixture
def daily(store: Store, logistic: Collection) -> Collection:
    one = Collection("daily", logistic.model, window=86_400)
    store.register(one)
    return one


@pytest.fixture
def address() -> Callable[[Store], str]:
    """Returns where a store is, with its password."""
    return lambda store: getattr(store.database, "url", None) or str(store.database.path)  # type: ignore[attr-defined]


@pytest.fixture
def again(store: Store, address: Callable[[Store], str]) -> Iterator[Callable[[], Store]]:
    """Opens the same database once more, as another service would."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(open_store(address(store)))
