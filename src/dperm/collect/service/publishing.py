"""Public estimates, published in steps: two successive estimates never differ by a single report.

Proof: ``collect/store/store.proof.md``.
"""

from __future__ import annotations

import json
import time
from typing import Any

from dperm.collect.description import Collection
from dperm.collect.service.results import estimate_document
from dperm.collect.store.steps import PublishedState, Steps
from dperm.errors import StoreError

__all__ = ["Publisher"]

#: the database is read at most once in so many seconds
FRESH_SECONDS = 1.0
#: estimates of single windows that are kept in memory; one has some kilobytes
_MOST_WINDOWS = 1000


class _CachedEstimates:
    """The estimates of a collection's published state, computed as they are asked for."""

    def __init__(self, state: PublishedState) -> None:
        self.state, self.snapshot = state, state.visible
        self.live: dict[str, Any] = {"next_at": state.next_at, "windows": self.snapshot.windows}
        self.read_at = 0.0
        self.by_window: dict[int | None, dict[str, Any]] = {}


class Publisher:
    """Makes a collection's estimates; those of all its windows come from one moment.

    Parameters
    ----------
    steps : Steps
        The published states.

    Attributes
    ----------
    changes : int
        How often a new state was found. The state before it may still be in the database's files.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._cached: dict[str, _CachedEstimates] = {}
        self.changes = 0

    def estimate(self, one: Collection, window: int | None) -> bytes:
        """Return the estimate as JSON; one caller at a time."""
        cached = self._current(one, window)
        return json.dumps({**cached.by_window[window], **cached.live}, allow_nan=False).encode()

    def draws(self, one: Collection) -> dict[str, Any]:
        """Return the test of how often questions were drawn, of the published estimate; one caller at a time."""
        tested: dict[str, Any] = self._current(one, None).by_window[None]["draws"]
        return tested

    def _current(self, one: Collection, window: int | None) -> _CachedEstimates:
        cached = self._cached.get(one.digest)
        if cached is None or time.monotonic() - cached.read_at >= FRESH_SECONDS:
            cached = self._cached[one.digest] = self._refreshed(one, cached)
        if window not in cached.by_window:
            if len(cached.by_window) > _MOST_WINDOWS:
                cached.by_window.clear()
            cached.by_window[window] = estimate_document(one, cached.snapshot.counts(window))
        return cached

    def _refreshed(self, one: Collection, cached: _CachedEstimates | None) -> _CachedEstimates:
        known = None if cached is None else cached.state
        try:
            state, reports = self._steps.publish(one, known)
        except StoreError:
            # a database that cannot be written may still be readable: show its last state
            state, found = self._steps.read(one, known)
            reports = found.n
        if cached is None or state.identity != cached.state.identity:
            cached = _CachedEstimates(state)
            self.changes += 1
        cached.live["reports"], cached.read_at = reports, time.monotonic()
        return cached
