"""Which code may touch private values: queries and mechanisms with a proof, enrolled in the contract suites.

A holder calls ``evaluate`` of the query and ``draw`` of the mechanism that it is given, so both run with the exact
value in their hands. Python cannot stop such code from keeping a copy. Checks therefore refuse any other class.
"""

from __future__ import annotations

import threading
from dataclasses import fields, is_dataclass
from typing import Any

from dperm.data.holding.holder import Query
from dperm.privacy.accounting.events import Event
from dperm.privacy.boundary import Observer
from dperm.privacy.mechanisms.joint_selection import JointSelection
from dperm.privacy.mechanisms.printed import LaplaceInsideMax, LaplaceMax, UncertifiedLaplaceInsideMax
from dperm.privacy.mechanisms.standard import MECHANISMS, Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.queries import QUERIES
from dperm.queries.greedy import GradientCoordinateL1, GreedyGradients
from dperm.queries.sharing import (
    BlockMinimiser,
    ColumnValues,
    InverseRoot,
    PartialPredictions,
    PlainGradient,
    SharedSlopes,
    Stationarity,
)
from dperm.queries.transcript import NormalSketch
from dperm.testing._violation import demand

__all__ = [
    "OTHER_MECHANISMS",
    "OTHER_QUERIES",
    "SHARED_QUERIES",
    "RegisteredOnly",
    "demand_registered",
    "demand_registered_query",
]

#: queries that may be released and are not in QUERIES, each with its reason
OTHER_QUERIES: dict[type[Query], str] = {
    GreedyGradients: "for printed noise only, which carries no guarantee; proof: queries/greedy.proof.md",
    NormalSketch: "for printed noise only, which carries no guarantee; proof: queries/transcript.proof.md",
    GradientCoordinateL1: "the registered GradientCoordinate in another norm; proof: queries/greedy.proof.md",
}

#: queries that are shared inside a trusted domain; they state no sensitivity, so a holder cannot release them
SHARED_QUERIES: dict[type[Query], str] = {
    BlockMinimiser: "a party's exact step of a method of multipliers",
    ColumnValues: "a column for the coordinator of a greedy method",
    InverseRoot: "a party's own scaling",
    PartialPredictions: "a party's part of every prediction",
    PlainGradient: "gradients of a run without noise",
    SharedSlopes: "the label holder's slopes for the parties",
    Stationarity: "how far a party is from its optimum",
}

#: mechanisms that are not in MECHANISMS, each with its reason
OTHER_MECHANISMS: dict[type[Mechanism], str] = {
    JointSelection: "a party's part of one registered selection; proof: mechanisms/joint_selection.proof.md",
    LaplaceInsideMax: "printed noise, whose event is tested in exact probabilities; proof: mechanisms/printed.proof.md",
    LaplaceMax: "printed noise, whose event is tested in exact probabilities; proof: mechanisms/printed.proof.md",
    UncertifiedLaplaceInsideMax: "printed noise of unbounded cost, for comparison; proof: mechanisms/printed.proof.md",
}

#: packages whose classes may be fields of a query: ``evaluate`` calls them, a loss for example, with private values
_TRUSTED_FIELDS = ("builtins", "dperm", "numpy", "scipy")

_NO_MECHANISM = "a release was charged and no registered mechanism drew its noise."


def demand_registered(mechanism: Mechanism) -> None:
    """Refuse a mechanism that no check covers.

    Covered are the classes in :data:`MECHANISMS`, whose law is checked, and those in :data:`OTHER_MECHANISMS`. A class
    that derives from one of them is another class, wherever it is defined.
    """
    covered = type(mechanism) in (*MECHANISMS.values(), *OTHER_MECHANISMS) and not _own_methods(mechanism)
    demand(
        covered, f"{type(mechanism).__name__} draws noise of its own but is not in MECHANISMS, so no check covers it."
    )


def demand_registered_query(query: Any) -> None:
    """Refuse a query that no check covers.

    Covered are the classes in :data:`QUERIES`, whose sensitivity is checked, and those in :data:`OTHER_QUERIES`. What
    their fields hold, such as a loss, must come from dperm, numpy or scipy.
    """
    name = type(query).__name__
    demand(
        type(query) in (*QUERIES.values(), *OTHER_QUERIES) and not _own_methods(query),
        f"{name} evaluates private data by itself but is not in QUERIES, so no check covers it.",
    )
    for one in fields(query) if is_dataclass(query) else ():
        value = getattr(query, one.name, None)
        code = value if hasattr(value, "__code__") or isinstance(value, type) else type(value)
        package = str(code.__module__).partition(".")[0]
        demand(package in _TRUSTED_FIELDS, f"the field {one.name!r} of {name} holds code that no check covers.")


class RegisteredOnly(Observer):
    """Demands that every release uses a registered query, and the registered mechanism that was charged."""

    def __init__(self) -> None:
        # charge and query of the release that a thread is making: an observer sees all threads of its process
        self._open = threading.local()
        self._unused: dict[int, Event] = {}

    @property
    def query(self) -> Any:
        """The query that this thread evaluated last."""
        return getattr(self._open, "query", None)

    def charged(self, query: str, event: Event, units: int = 1) -> None:
        """Keep the charge for the mechanism that follows in the same thread; the one before must have been used."""
        demand(threading.get_ident() not in self._unused, _NO_MECHANISM)
        self._unused[threading.get_ident()] = event

    def evaluated(self, query: Any, value: Any, facts: Any) -> Any:
        """Check the query; its value goes on unchanged."""
        demand_registered_query(query)
        self._open.query = query
        return value

    def apply(self, mechanism: Mechanism, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        """Check the mechanism and draw its noise."""
        demand_registered(mechanism)
        charge = self._unused.pop(threading.get_ident(), None)
        demand(
            charge is None or mechanism.event(self.query.replacement_ratio) == charge,
            f"{type(mechanism).__name__} draws other noise than was charged.",
        )
        return self.drawn(mechanism, value, sensitivity, bound, source)

    def drawn(self, mechanism: Mechanism, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        """Return the released value; for checks that replace it."""
        return mechanism.draw(value, sensitivity, bound, source)

    def finish(self) -> None:
        """Demand that the last release of every thread reached a mechanism too."""
        demand(not self._unused, _NO_MECHANISM)


def _own_methods(thing: Any) -> set[str]:
    """Return the names of methods that the object itself has in place of its class's."""
    known = {one.name for one in fields(thing)} if is_dataclass(thing) else set()
    return {name for name in vars(thing) if name not in known and callable(getattr(type(thing), name, None))}
