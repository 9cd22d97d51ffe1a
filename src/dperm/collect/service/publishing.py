"""Estimates for everybody, in steps: no two that follow each other differ by one report.

Proof: ``collect/store/store.proof.md``.
"""

from __future__ import annotations

import json
import time
from typing import Any

from dperm.collect.description import Collection
from dperm.collect.service.results import published
from dperm.collect.store.steps import Published
from dperm.collect.store.store import Store
from dperm.errors import StoreError

__all__ = ["Publisher"]

#: the database is looked at at most once in so many seconds
FRESH_SECONDS = 1.0


class _View:
    """What is published of a collection, as it was when somebody looked, with the estimates made from it."""

    def __init__(self, state: Published) -> None:
        self.state, self.snapshot = state, state.shown
        self.live: dict[str, Any] = {"next_at": state.next_at, "windows": self.snapshot.windows}
        self.looked = 0.0
        self.texts: dict[int | None, dict[str, Any]] = {}


class Publisher:
    """Makes a collection's estimates, those of all its windows from the same moment.

    Parameters
    ----------
    store : Store
        Where reports are counted, and where it is kept what is published of them.

    Attributes
    ----------
    changes : int
        How often what is published was found changed: the state before may still be in the database's files.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._views: dict[str, _View] = {}
        self.changes = 0

    def estimate(self, one: Collection, window: int | None) -> bytes:
        """Return the estimate as JSON; one caller at a time."""
        view = self._views.get(one.digest)
        if view is None or time.monotonic() - view.looked >= FRESH_SECONDS:
            view = self._views[one.digest] = self._look(one, view)
        if window not in view.texts:
            if len(view.texts) > 1000:
                view.texts.clear()
            view.texts[window] = published(one, view.snapshot.counts(window))
        return json.dumps({**view.texts[window], **view.live}, allow_nan=False).encode()

    def _look(self, one: Collection, view: _View | None) -> _View:
        known = None if view is None else view.state
        try:
            state, reports = self._store.publish(one, known)
        except StoreError:
            # a database that cannot be written has published what it has, and can be read
            state, found = self._store.look(one, known)
            reports = found.n
        if view is None or state.which != view.state.which:
            view = _View(state)
            self.changes += 1
        view.live["reports"], view.looked = reports, time.monotonic()
        return view
