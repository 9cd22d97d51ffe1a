"""Group commit: reports that arrive within a few milliseconds share one transaction, and are acknowledged after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from dperm.collect.service.metrics import ServiceMetrics
from dperm.collect.store.store import Entry, Outcome, Store
from dperm.errors import StoreError

__all__ = ["GroupCommit"]

#: least time between the beginnings of two transactions; reports that waited for the first one wait no longer
GAP_SECONDS = 0.005
#: after so long without new reports the database is tidied; after a failed attempt twice as long, up to the maximum
QUIET_SECONDS = 0.5
MOST_QUIET_SECONDS = 60.0
#: waiting reports before new ones are refused
MOST_WAITING = 50_000


class GroupCommit:
    """Writes entries in the order of their arrival, one transaction at a time.

    Parameters
    ----------
    store : Store
        Where reports are counted.
    metrics : ServiceMetrics
        Where outcomes and durations are recorded.
    clock : callable
        Seconds since 1970; decides the counting window.

    Attributes
    ----------
    failure : str or None
        Why the last transaction failed; None if it did not.
    """

    def __init__(self, store: Store, metrics: ServiceMetrics, clock: Callable[[], float] = time.time) -> None:
        self._store, self._metrics, self._clock = store, metrics, clock
        self._waiting: list[tuple[Entry, asyncio.Future[Outcome]]] = []
        self._n_waiting = 0
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "dperm-store")
        self._runner: asyncio.Task[None] | None = None
        self._stopping = False
        # a service before this one may have been killed before it tidied
        self._is_tidy, self._quiet_seconds = False, QUIET_SECONDS
        self.failure: str | None = None

    def start(self) -> None:
        """Begin to write."""
        self._runner = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write the waiting reports, then end."""
        self._stopping = True
        self._wake.set()
        if self._runner is not None:
            await self._runner
        self._thread.shutdown(wait=True)

    @property
    def full(self) -> bool:
        """Whether so many reports are waiting that new ones are refused."""
        return self._n_waiting >= MOST_WAITING

    async def add(self, entry: Entry) -> Outcome:
        """Count an entry's reports; returns when they are on disk."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, future))
        self._n_waiting += len(entry.keys)
        self._wake.set()
        return await future

    def request_tidying(self) -> None:
        """Tidy the database when no reports arrive: something in it was replaced."""
        self._is_tidy, self._quiet_seconds = False, QUIET_SECONDS
        self._wake.set()

    async def check_recovery(self) -> None:
        """After a failure, raise if the database still cannot be written."""
        if self.failure is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.probe)
            self.failure = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        started = -GAP_SECONDS
        while not self._stopping or self._waiting:
            try:
                await asyncio.wait_for(self._wake.wait(), None if self._is_tidy else self._quiet_seconds)
            except TimeoutError:
                self._is_tidy, self._quiet_seconds = True, min(2.0 * self._quiet_seconds, MOST_QUIET_SECONDS)
                done = False
                with suppress(Exception):  # the next report shows what is wrong; this task must go on
                    done = await loop.run_in_executor(self._thread, self._store.tidy)
                self._is_tidy = self._is_tidy and done  # tidying may have been requested again meanwhile
                continue
            await asyncio.sleep(max(0.0, GAP_SECONDS - (time.perf_counter() - started)))
            batch, self._waiting = self._waiting, []
            self._wake.clear()
            if not batch:
                continue
            entries = [entry for entry, _ in batch]
            started = time.perf_counter()
            self._is_tidy, self._quiet_seconds = False, QUIET_SECONDS
            outcomes: list[Any]
            try:
                outcomes = await loop.run_in_executor(self._thread, self._store.add, entries, self._clock())
                self.failure = None
            except Exception as error:
                self.failure = str(error) if isinstance(error, StoreError) else f"unexpected {type(error).__name__}"
                outcomes = [StoreError(self.failure)] * len(batch)
            self._metrics.committed(time.perf_counter() - started, ok=self.failure is None)
            self._n_waiting -= sum(len(entry.keys) for entry in entries)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.cancelled():  # the device disconnected; its report is counted all the same
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    self._metrics.counted(outcome)
                    future.set_result(outcome)
        if not self._is_tidy:  # no later service may come to do it
            with suppress(Exception):
                await loop.run_in_executor(self._thread, self._store.tidy)
