"""Collects what every release of a run really gives to its caller, next to what was charged for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.audit.releases.moves import GroupSamples, Move, ReportMove, move_for
from dperm.data.holding.holder import DataHolder
from dperm.privacy.accounting.events import Event
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.boundary import Observer, observing
from dperm.types import FloatArray

__all__ = ["ReleaseCollector", "collecting"]


@dataclass
class _Release:
    """A release that is being made."""

    name: str
    event: Event
    move: Move | None = None
    mechanism: Any = None
    n_evaluated: int = 0
    n_applied: int = 0


class ReleaseCollector(Observer):
    """Moves the value of about half of the releases to a worst-case neighbour's, and measures all outputs.

    Parameters
    ----------
    neighbours : Neighbours
        The relation of the audited run: it decides the sensitivity that a query declares.
    rng : numpy generator
        Decides which releases are moved.
    report_epsilon : float, optional
        Claimed epsilon of a person's local report; what the report itself states by default.

    Attributes
    ----------
    groups : dict
        By name in the plan.
    faults : set of str
        What went against the form of a release: one charge, one evaluation, one use of a mechanism.
    sequence : list of (str, array)
        Gaussian noise of all releases in their order, in units of the charged scale, with the name of the group.
    """

    def __init__(self, neighbours: Neighbours, rng: np.random.Generator, report_epsilon: float | None = None) -> None:
        self._neighbours, self._rng, self._report_epsilon = neighbours, rng, report_epsilon
        self.groups: dict[str, GroupSamples] = {}
        self.faults: set[str] = set()
        self.sequence: list[tuple[str, FloatArray]] = []
        self._open = threading.local()

    # ------------------------------------------------------------------------------- what the boundary shows
    def charged(self, query: str, event: Event, units: int = 1) -> None:
        if getattr(self._open, "release", None) is not None:
            self.faults.add(f"{self._open.release.name!r} was charged, and nothing was released for it")
        # releases that take the place of several planned ones are noised in other ways than these, and measured apart
        name = query if units == 1 else f"{query} ({type(event).__name__.lower()} in {units} units)"
        self._open.release = _Release(name, event)

    def evaluated(self, query: Any, value: Any, facts: Any) -> Any:
        release = self._current()
        if release is None:
            self.faults.add(f"{query.name!r} was evaluated without a charge")
            return value
        release.n_evaluated += 1
        sensitivity = query.sensitivity(facts, self._neighbours)
        release.move = move_for(query, value, facts, release.event, sensitivity, self._rng)
        return value if release.move is None else release.move.given

    def apply(self, mechanism: Any, value: Any, sensitivity: float, bound: float, source: Any) -> Any:
        release = self._current()
        if release is None:
            self.faults.add(f"{type(mechanism).__name__} was used without a charge")
        else:
            release.n_applied += 1
            release.mechanism = mechanism
        return mechanism.draw(value, sensitivity, bound, source)

    def report(self, kind: Any, values: Any, draw: Callable[[Any], Any]) -> Any:
        """Give every person one of the two most different values, by a coin, and measure the answers.

        A report that is made inside another one, such as that of a hash, is a part of it and is left alone.
        """
        if getattr(self._open, "reporting", False):
            return draw(values)
        moved = ReportMove(kind, len(np.asarray(values)), self._rng, self._report_epsilon)
        self._open.reporting = True
        try:
            answers = draw(moved.given)
        finally:
            self._open.reporting = False
        name = f"{getattr(kind, 'kind', type(kind).__name__)} report"
        group = self.groups.setdefault(name, GroupSamples(name, moved.event))
        group.count += len(moved.given)
        moved.measure(answers, kind, group)
        return answers

    def delivered(self, output: Any) -> None:
        """Measure what the caller of a release gets."""
        release, self._open.release = self._current(), None
        if release is None:
            self.faults.add("a value was released without a charge")
            return
        group = self.groups.setdefault(release.name, GroupSamples(release.name, release.event))
        group.count += 1
        if group.event != release.event:
            self.faults.add(f"releases of {release.name!r} are charged differently")
        if (release.n_evaluated, release.n_applied) != (1, 1):
            self.faults.add(
                f"one charge for {release.name!r} paid for {release.n_evaluated} evaluations and "
                f"{release.n_applied} uses of its mechanism"
            )
        if release.move is not None and release.mechanism is not None:
            group.last_noise = None
            release.move.measure(output, release.mechanism, group)
            if group.last_noise is not None:
                self.sequence.append((release.name, group.last_noise))

    def _current(self) -> _Release | None:
        return getattr(self._open, "release", None)


@contextmanager
def collecting(collector: ReleaseCollector) -> Iterator[None]:
    """Let the collector see the boundary of this process, and what ``DataHolder.release`` returns.

    The return value is taken outside the holder, so that nothing between mechanism and solver can change it unseen.
    """
    inner = DataHolder.release

    def release(self: DataHolder, query: Any, mechanism: Any, group: str | None = None, units: int = 1) -> Any:
        output = inner(self, query, mechanism, group, units)
        collector.delivered(output)
        return output

    DataHolder.release = release  # type: ignore[method-assign]
    try:
        with observing(collector):
            yield
    finally:
        DataHolder.release = inner  # type: ignore[method-assign]
