"""Watching a fit from outside: how many steps are done, which tells nothing of the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dperm.solvers import Progress

__all__ = ["watched", "watching"]

_watcher: ContextVar[Progress | None] = ContextVar("dperm_progress", default=None)


@contextmanager
def watching(progress: Progress) -> Iterator[None]:
    """Call ``progress(steps done, steps in all)`` during every fit inside the block.

    A search (:class:`dperm.DPTuner`) calls nobody: the number of its runs is not released.

    >>> from dperm import Bounds, DPRidge
    >>> steps = []
    >>> with watching(lambda done, in_all: steps.append(done / in_all)):
    ...     model = DPRidge(bounds=Bounds(features=(0, 1), target=(0, 1))).fit([[0.0], [1.0]] * 50, [0.0, 1.0] * 50)
    >>> steps[-1]
    1.0
    """
    before = _watcher.set(progress)
    try:
        yield
    finally:
        _watcher.reset(before)


def watched() -> Progress | None:
    """Return who watches, if anybody."""
    return _watcher.get()
