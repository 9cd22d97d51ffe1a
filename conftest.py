"""Makes noise repeatable: a test that passed once passes again, on any machine and in any order.

Tests check noise in thousands of places, each with a small chance of a false alarm; with fresh noise one run in a few
would fail. So noise is keyed by the name of the test (or of the shared fixture) instead of by the operating system;
so are the fingerprints of tables, whose sketches are random samples of rows.
``make test-fresh`` runs the same tests with the operating system's keys; tests marked ``fresh_noise`` always use them.
Programs that a test starts run as they do for users: their noise is always fresh.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import settings

from dperm.privacy.ledger import fingerprints
from dperm.privacy.randomness import keys_from

FRESH = bool(os.environ.get("DPERM_FRESH_NOISE"))

settings.register_profile("repeatable", derandomize=True)


@contextmanager
def _keys_named(name: str) -> Iterator[None]:
    """Derive keys from ``name`` and a running number; in a forked process also from its id, so that they differ.

    As ``dperm.testing.repeatable_noise`` does, which is not used here: importing ``dperm.testing`` takes seconds, also
    for a single test that needs nothing of it. Fingerprints share the running number: other numbers would change the
    noise with which every statistical test was looked at.
    """
    usual, process, numbers = fingerprints.new_key, os.getpid(), itertools.count(1)

    def key() -> bytes:
        number, here = next(numbers), os.getpid()  # each number once, also among threads
        return hashlib.sha256(f"{name} {number} {here if here != process else ''}".encode()).digest()

    fingerprints.new_key = key
    try:
        with keys_from(key):
            yield
    finally:
        fingerprints.new_key = usual


def _without_folders(nodeid: str) -> str:
    """The name of a test without its folders: a test that moves keeps its noise."""
    file, separator, rest = nodeid.partition("::")
    return file.rpartition("/")[2] + separator + rest


def pytest_configure(config: pytest.Config) -> None:
    if not FRESH:
        settings.load_profile("repeatable")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    if FRESH or item.get_closest_marker("fresh_noise"):
        return (yield)
    with _keys_named(_without_folders(item.nodeid)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[Any]:
    # a fixture that several tests share must not depend on which of them runs first
    if FRESH or fixturedef.scope == "function":
        return (yield)
    with _keys_named(f"{_without_folders(fixturedef.baseid)}::{fixturedef.argname}[{request.param_index}]"):
        return (yield)
