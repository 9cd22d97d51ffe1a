"""Rows in memory: one block, or one for each processor.

Dense tables of some size are split into one block of rows for each thread. Compiled loops and array operations of
different blocks then run at the same time. Smaller tables, and sparse ones, stay one block.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import cache
from itertools import pairwise
from queue import Full, Queue
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from dperm.data.design.matrix import DesignMatrix, Scaling, Shape
from dperm.data.design.scaling import mostly_zeros
from dperm.data.executors.executor import Block, Executor, TargetView, Work
from dperm.data.holding.design_data import DesignData
from dperm.types import FloatArray

__all__ = ["MemoryExecutor", "Threads", "n_threads", "one_thread_for_linear_algebra", "read_ahead"]

T = TypeVar("T")
R = TypeVar("R")

#: smaller tables are computed faster than they are handed to another thread and back
_LEAST_ENTRIES = 1 << 21


def n_threads() -> int:
    """Return how many threads to use: those that ``OMP_NUM_THREADS`` allows, else one for each processor.

    >>> n_threads() >= 1
    True
    """
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        processors = os.cpu_count() or 1
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return max(1, int(given)) if given.isdigit() else max(1, processors)


@cache
def _linear_algebra() -> Any:
    return ThreadpoolController()


def one_thread_for_linear_algebra() -> AbstractContextManager[Any]:
    """Let libraries for linear algebra use one thread, while a fit runs.

    Their threads would compete with ours. And they round differently on another number of threads: the public
    computations between two releases would then have other bits, and so would the model.
    """
    limit: AbstractContextManager[Any] = _linear_algebra().limit(limits=1, user_api="blas")
    return limit


class Threads:
    """A pool of threads that is started when it is needed and ends with its owner."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield the results in order; few items are taken ahead, and one thread alone is this one."""
        if self.count == 1:
            yield from map(function, items)
            return
        if self._pool is None or self._process != os.getpid():  # threads do not survive a fork
            self._pool, self._process = ThreadPoolExecutor(self.count, "dperm"), os.getpid()
            weakref.finalize(self, self._pool.shutdown, wait=False)
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(self._pool.submit(function, item))
                if len(pending) > self.count:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            wait(pending)  # after an error nothing may still compute on the rows


def read_ahead(items: Iterable[T], most: int = 2) -> Iterator[T]:
    """Yield the items, which a thread of its own makes: while one is used, the next ``most`` are read.

    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    read: Queue[tuple[T | None, BaseException | None]] = Queue(most)
    stopped = threading.Event()

    def put(item: T | None, error: BaseException | None) -> None:
        while not stopped.is_set():
            with contextlib.suppress(Full):
                read.put((item, error), timeout=0.1)
                return

    def run() -> None:
        try:
            for item in items:
                put(item, None)
                if stopped.is_set():
                    return
            put(None, StopIteration())
        except BaseException as error:  # raised again where the items are used
            put(None, error)

    thread = threading.Thread(target=run, name="dperm reader", daemon=True)
    thread.start()
    try:
        while True:
            item, error = read.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()


class MemoryExecutor(Executor):
    """Blocks in the memory of this process."""

    def __init__(self, X: Any, target: FloatArray, scaling: Scaling, intercept: float = 0.0) -> None:
        n, n_features = X.shape
        self.n_rows = n
        self.shape = Shape.of(n, n_features, scaling.clip, scaling.row_norm, intercept, scaling.spread)
        self._threads = Threads(n_threads())
        whole = sp.issparse(X) or self._threads.count == 1 or n * n_features < _LEAST_ENTRIES or mostly_zeros(X)
        if whole:
            design = DesignMatrix.from_array(X, scaling, intercept)
            self._blocks = [Block(design, target, 0)]
            return
        ends = np.linspace(0, n, self._threads.count + 1).astype(int).tolist()
        parts = [slice(a, b) for a, b in pairwise(ends)]

        def block(part: slice) -> Block:
            return Block(DesignMatrix.from_array(X[part], scaling, shape=self.shape), target[part], part.start)

        self._blocks = list(self._threads.map(block, parts))

    def parts(self, work: Work, view: TargetView) -> Iterator[FloatArray]:
        if len(self._blocks) == 1:
            yield self._blocks[0].part(work, view)
        else:
            yield from self._threads.map(lambda block: block.part(work, view), self._blocks)

    def only_block(self, view: TargetView) -> DesignData | None:
        return self._blocks[0].seen(view) if len(self._blocks) == 1 else None
