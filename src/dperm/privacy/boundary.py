"""The mechanism boundary: the place where a private value becomes a released one, made visible to checks.

Normally nobody looks and nothing here does anything. A check (:mod:`dperm.testing`, :mod:`dperm.audit`) installs an
:class:`Observer` with :func:`observing`. It then sees every charge, every evaluated query and every use of a mechanism
or of a local report, and it may put other values in their place, for example values that ignore the data. What an
observer sees is private, so a check must run on data that its user may see. An observer can neither skip a charge nor
evaluate a query.

The observer is one for the whole process, threads included: a release in another thread must not escape a check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import Event

__all__ = ["Observer", "current_observer", "observed_report", "observing"]

Report = TypeVar("Report", bound=Callable[..., Any])


class Observer:
    """Sees what happens at the mechanism boundary; this base class changes nothing."""

    def charged(self, query: str, event: Event, units: int = 1) -> None:
        """Called after a release was charged to its plan, as ``units`` of those that the plan calls ``query``."""

    def evaluated(self, query: Any, value: Any, facts: Any) -> Any:
        """Return what the mechanism gets for a query that was charged and evaluated; ``facts`` are public."""
        return value

    def apply(self, mechanism: Any, value: Any, sensitivity: float, bound: float, source: Any) -> Any:
        """Return the released value in place of ``mechanism.apply``."""
        return mechanism.draw(value, sensitivity, bound, source)

    def report(self, kind: Any, values: Any, draw: Callable[[Any], Any]) -> Any:
        """Return the local reports of people who hold ``values``; ``draw`` randomises the values it is given."""
        return draw(values)


_OBSERVER: Observer | None = None


def current_observer() -> Observer | None:
    """Return the observer, None outside checks."""
    return _OBSERVER


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Let ``observer`` see the mechanism boundary of this process; there is one at a time."""
    global _OBSERVER
    if _OBSERVER is not None:
        raise InvalidInput("the mechanism boundary is already observed: end the other check first.")
    _OBSERVER = observer
    try:
        yield
    finally:
        _OBSERVER = None


def observed_report(report: Report) -> Report:
    """Let an observer see the reports of a local mechanism; for its method ``report(self, values, ...)``."""

    @wraps(report)
    def seen(self: Any, values: Any, *args: Any, **options: Any) -> Any:
        if _OBSERVER is None:
            return report(self, values, *args, **options)
        return _OBSERVER.report(self, values, lambda other: report(self, other, *args, **options))

    return cast(Report, seen)
