"""Counts how often queries are evaluated, wherever that happens: every evaluation must have been charged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dperm.data.holding.holder import Query
from dperm.testing._violation import ContractViolation

__all__ = ["Evaluations", "counted_evaluations", "no_evaluations"]


@dataclass
class Evaluations:
    """Number of evaluations of queries on private data."""

    count: int = 0


@contextmanager
def counted_evaluations(ignore: Callable[[Any], bool] = lambda data: False) -> Iterator[Evaluations]:
    """Count every call of a query's ``evaluate`` in this process, also those that do not come from a holder.

    An evaluation that calls another one counts once. Data for which ``ignore`` is true, such as a check's own stand-in,
    do not count.
    """
    counted, inside, lock = Evaluations(), threading.local(), threading.Lock()

    def counting(evaluate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def counted_evaluate(query: Any, data: Any) -> Any:
            if getattr(inside, "evaluation", False) or ignore(data):
                return evaluate(query, data)
            with lock:
                counted.count += 1
            inside.evaluation = True
            try:
                return evaluate(query, data)
            finally:
                inside.evaluation = False

        return counted_evaluate

    with _replaced(counting):
        yield counted


@contextmanager
def no_evaluations() -> Iterator[None]:
    """Refuse every evaluation of a query: for what must not use the data at all."""

    def refusing(evaluate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def refuse(query: Any, data: Any) -> Any:
            raise ContractViolation(f"{query.name!r} was evaluated where no data may be used.")

        return refuse

    with _replaced(refusing):
        yield


@contextmanager
def _replaced(wrap: Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]) -> Iterator[None]:
    """Replace ``evaluate`` of every query class that defines it."""
    classes = [cls for cls in _subclasses(Query) if "evaluate" in vars(cls)]
    usual = [vars(cls)["evaluate"] for cls in classes]
    for cls, evaluate in zip(classes, usual, strict=True):
        cls.evaluate = wrap(evaluate)
    try:
        yield
    finally:
        for cls, evaluate in zip(classes, usual, strict=True):
            cls.evaluate = evaluate


def _subclasses(cls: Any) -> set[Any]:
    return {cls, *(found for child in cls.__subclasses__() for found in _subclasses(child))}
