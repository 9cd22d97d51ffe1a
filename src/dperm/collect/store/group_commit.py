"""Group commit: reports of a few milliseconds share one transaction, and are acknowledged after it."""

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

#: a transaction begins at least so long after the one before; reports that waited for that one wait no more
GAP_SECONDS = 0.005
#: without new reports for so long, the database is tidied; after an attempt that failed, twice as long, up to the most
QUIET_SECONDS = 0.5
MOST_QUIET_SECONDS = 60.0
#: reports that may wait before new ones are turned away
MOST_WAITING = 50_000


class GroupCommit:
    """Collects entries and writes them in the order of their arrival, one transaction at a time.

    Parameters
    ----------
    store : Store
        Where reports are counted.
    metrics : ServiceMetrics
        What is measured.
    clock : callable
        Seconds since 1970; decides the counting window.
    """

    def __init__(self, store: Store, metrics: ServiceMetrics, clock: Callable[[], float] = time.time) -> None:
        self._store, self._metrics, self._clock = store, metrics, clock
        self._waiting: list[tuple[Entry, asyncio.Future[Outcome]]] = []
        self._n_waiting = 0
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "dperm-store")
        self._runner: asyncio.Task[None] | None = None
        self._ending = False
        self._tidy, self._quiet = False, QUIET_SECONDS  # whoever wrote last may have been killed before it tidied
        self.failing: str | None = None

    def start(self) -> None:
        """Begin to write."""
        self._runner = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write what is waiting, then end."""
        self._ending = True
        self._wake.set()
        if self._runner is not None:
            await self._runner
        self._thread.shutdown(wait=True)

    @property
    def full(self) -> bool:
        """Whether so many reports are waiting that a new one should come later."""
        return self._n_waiting >= MOST_WAITING

    async def add(self, entry: Entry) -> Outcome:
        """Count an entry's reports; returns when they are on disk."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, future))
        self._n_waiting += len(entry.keys)
        self._wake.set()
        return await future

    def disturb(self) -> None:
        """Say that something in the database was replaced: it is tidied in the next quiet moment."""
        self._tidy, self._quiet = False, QUIET_SECONDS
        self._wake.set()

    async def try_again(self) -> None:
        """After a failure, find out whether the database can be used again."""
        if self.failing is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.probe)
            self.failing = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        started = -GAP_SECONDS
        while not self._ending or self._waiting:
            try:
                await asyncio.wait_for(self._wake.wait(), None if self._tidy else self._quiet)
            except TimeoutError:
                self._tidy, self._quiet = True, min(2.0 * self._quiet, MOST_QUIET_SECONDS)
                done = False
                with suppress(Exception):  # the next report will tell; whoever writes them must not end here
                    done = await loop.run_in_executor(self._thread, self._store.tidy)
                self._tidy = self._tidy and done  # somebody may have disturbed it meanwhile
                continue
            await asyncio.sleep(max(0.0, GAP_SECONDS - (time.perf_counter() - started)))
            batch, self._waiting = self._waiting, []
            self._wake.clear()
            if not batch:
                continue
            entries = [entry for entry, _ in batch]
            started = time.perf_counter()
            self._tidy, self._quiet = False, QUIET_SECONDS
            outcomes: list[Any]
            try:
                outcomes = await loop.run_in_executor(self._thread, self._store.add, entries, self._clock())
                self.failing = None
            except Exception as error:
                self.failing = str(error) if isinstance(error, StoreError) else f"unexpected {type(error).__name__}"
                outcomes = [StoreError(self.failing)] * len(batch)
            self._metrics.committed(time.perf_counter() - started, ok=self.failing is None)
            self._n_waiting -= sum(len(entry.keys) for entry in entries)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.cancelled():  # the device went away; its report is counted all the same
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    self._metrics.counted(outcome)
                    future.set_result(outcome)
        if not self._tidy:  # nobody may come back to do it
            with suppress(Exception):
                await loop.run_in_executor(self._thread, self._store.tidy)
