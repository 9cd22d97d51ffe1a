"""Estimates for everybody, in steps: no two that follow each other differ by one report. Proof: ``store.proof.md``."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from dperm.collect.counters import Snapshot
from dperm.collect.database import IntArray
from dperm.collect.results import published
from dperm.collect.schema import Collection
from dperm.collect.store import Store

__all__ = ["LEAST_STEP", "Publisher", "step"]

#: counters are looked at at most once in so many seconds
FRESH_SECONDS = 1.0
#: an estimate waits for so many new reports, or for one in a hundred of those it has, whichever is more
LEAST_STEP = 20
_SHARE = 100


def step(n: int) -> int:
    """Return how many new reports the estimate after one of ``n`` reports waits for."""
    return max(LEAST_STEP, n // _SHARE)


class _State:
    """What is published of a collection: its counters at one moment, and how many reports there are by now.

    Parameters
    ----------
    counted : Snapshot
        The counters of the moment.
    moved : list
        What is shown in another window than the one that counted it, as rows to be added to the counters.
    """

    def __init__(self, counted: Snapshot, moved: list[tuple[int, IntArray, IntArray]]) -> None:
        self.counted, self._moved = counted, moved
        self.snapshot, self.n = Snapshot(counted.collection, [*counted.rows, *moved]), counted.n
        self.reports, self.looked = 0, -FRESH_SECONDS
        self.texts: dict[int | None, dict[str, Any]] = {}

    def after(self, found: Snapshot) -> _State:
        """Return the next state. A window's share of a step that is too small to be seen goes to the step's largest."""
        before = self.counted.windows
        grown = {window: n - before.get(window, 0) for window, n in found.windows.items()}
        largest, moved = max(grown, key=grown.__getitem__), list(self._moved)
        for window, n in grown.items():
            if 0 < n < LEAST_STEP and window != largest:
                more = found.cells(window) - self.counted.cells(window)
                at = np.flatnonzero(more)
                moved += [(window, at, -more[at]), (largest, at, more[at])]
        return _State(found, moved)


class Publisher:
    """Makes a collection's estimates, those of all its windows from the same moment.

    Parameters
    ----------
    store : Store
        Where reports are counted.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._states: dict[str, _State] = {}

    def estimate(self, one: Collection, window: int | None) -> bytes:
        """Return the estimate as JSON; one caller at a time."""
        state = self._states.setdefault(one.digest, _State(Snapshot(one, []), []))
        if time.monotonic() - state.looked >= FRESH_SECONDS:
            found = self._store.snapshot(one)
            reports = found.n
            if reports - state.n >= step(state.n):
                state = self._states[one.digest] = state.after(found)
            state.reports, state.looked = reports, time.monotonic()
        if window not in state.texts:
            if len(state.texts) > 1000:
                state.texts.clear()
            state.texts[window] = published(one, state.snapshot.counts(window))
        live = {"reports": state.reports, "next_at": state.n + step(state.n), "windows": state.snapshot.windows}
        return json.dumps({**state.texts[window], **live}, allow_nan=False).encode()
