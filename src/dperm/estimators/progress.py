"""Reports the progress of fits: how many rows are read and steps are done, which reveals no value of the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dperm.solvers import Progress

__all__ = ["current_progress", "current_reading", "watching"]

#: the callback of the innermost :func:`watching`, if any
current_progress: ContextVar[Progress | None] = ContextVar("dperm_progress", default=None)
#: its callback for rows that are read
current_reading: ContextVar[Progress | None] = ContextVar("dperm_reading", default=None)


@contextmanager
def watching(progress: Progress, reading: Progress | None = None) -> Iterator[None]:
    """Call ``progress(steps done, steps in all)`` during every fit inside the block.

    ``reading(rows done, rows in all)`` is called before, while rows are read from files or on a Dask cluster.

    A search (:class:`dperm.DPTuner`) reports no progress: the number of its runs is not released.

    >>> from dperm import Bounds, DPRidge
    >>> steps = []
    >>> with watching(lambda done, in_all: steps.append(done / in_all)):
    ...     model = DPRidge(bounds=Bounds(features=(0, 1), target=(0, 1))).fit([[0.0], [1.0]] * 50, [0.0, 1.0] * 50)
    >>> steps[-1]
    1.0
    """
    before, before_reading = current_progress.set(progress), current_reading.set(reading)
    try:
        yield
    finally:
        current_progress.reset(before)
        current_reading.reset(before_reading)
