"""Noise that can be drawn twice: the keys of all random sources come from a name instead of the operating system."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dperm.privacy.ledger import fingerprints
from dperm.privacy.randomness import keys_from

__all__ = ["keys_named"]


@contextmanager
def keys_named(name: str) -> Iterator[None]:
    """Derive the keys of random sources and of fingerprints from ``name`` and running numbers.

    In a forked process also from its id, so that two processes do not draw the same noise. Sources stay marked as
    secure, because a seeded source changes reports and takes other branches. Fingerprints have numbers of their own:
    whether a key was already on disk changes no noise.
    """
    usual, process = fingerprints.new_key, os.getpid()

    def keys(prefix: str) -> Callable[[], bytes]:
        numbers = itertools.count(1)

        def key() -> bytes:
            number, here = next(numbers), os.getpid()  # each number once, also among threads
            forked = f" {here}" if here != process else ""
            return hashlib.sha256(f"{prefix} {number}{forked}".encode()).digest()

        return key

    fingerprints.new_key = keys(f"fingerprints {name}")
    try:
        with keys_from(keys(name)):
            yield
    finally:
        fingerprints.new_key = usual
