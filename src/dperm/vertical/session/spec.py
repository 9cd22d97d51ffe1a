"""The public description of a run, which every participant sees before it agrees, and what a method's handlers do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidInput, ProtocolError
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import InnerScope
from dperm.solvers.vertical.protocol import CoordinatorProgram, Fact, Message, PartyProgram
from dperm.vertical.identity.names import require_safe_name

__all__ = ["CHECK", "JOIN", "START", "CoordinatorHandler", "PartyHandler", "PreparedRun", "RunSpec"]

#: the steps of every run before the rounds of its method
JOIN, CHECK, START = range(3)


@dataclass(frozen=True, eq=False)
class RunSpec:
    """What is computed, by which parties, with which options; it never changes during a run.

    Attributes
    ----------
    run : str
        Name of the run, different for every run.
    method : str
        Name of the method.
    parties : tuple of str
        The parties that take part.
    options : mapping
        Public options of the method, as JSON values.
    secure_sum : bool
        Whether the parties mask arrays of which the coordinator needs only the total.
    facts : mapping of str to mapping
        Public facts that each party declared when it joined; empty before that.
    """

    run: str
    method: str
    parties: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    secure_sum: bool = False
    facts: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_safe_name(self.run, "the name of a run")
        for party in self.parties:
            require_safe_name(party, "the name of a party")
        if not self.parties or len(set(self.parties)) < len(self.parties):
            raise InvalidInput("a run needs at least one party, and each only once.")
        if self.secure_sum and len(self.parties) < 2:
            raise InvalidInput("a secure sum needs at least two parties: the sum of one party is its own value.")

    def with_facts(self, facts: Mapping[str, Mapping[str, Fact]]) -> RunSpec:
        """Return the description with the facts that the parties declared."""
        return replace(self, facts={name: dict(facts[name]) for name in self.parties})

    def without_facts(self) -> RunSpec:
        """Return the description as it was before any party joined."""
        return replace(self, facts={})

    def to_array(self) -> NDArray[np.uint8]:
        """Return the canonical bytes as an array for a message."""
        data = {
            "run": self.run,
            "method": self.method,
            "parties": list(self.parties),
            "options": dict(self.options),
            "secure_sum": self.secure_sum,
            "facts": {name: dict(facts) for name, facts in self.facts.items()},
        }
        return np.frombuffer(json.dumps(data, sort_keys=True, separators=(",", ":")).encode(), np.uint8)

    def __eq__(self, other: object) -> bool:
        # compares the encoded form, in which a list and a tuple among the options are the same
        return isinstance(other, RunSpec) and self.to_array().tobytes() == other.to_array().tobytes()

    def __hash__(self) -> int:
        return hash(self.to_array().tobytes())

    @classmethod
    def from_array(cls, array: NDArray[np.uint8]) -> RunSpec:
        """Inverse of :meth:`to_array`."""
        try:
            data = json.loads(np.asarray(array, np.uint8).tobytes())
            return cls(
                run=data["run"],
                method=str(data["method"]),
                parties=tuple(data["parties"]),
                options=dict(data["options"]),
                secure_sum=bool(data["secure_sum"]),
                facts={str(name): dict(facts) for name, facts in data["facts"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ProtocolError("the description of a run cannot be read.") from None


@dataclass(frozen=True)
class PreparedRun:
    """What a run will cost a participant; ``ledger`` and ``calibrated`` are None if nothing is released.

    ``rows`` is a keyed fingerprint of the table in its order and units. It is stored with the run, so that a changed
    table is noticed.
    """

    calibrated: CalibratedPlan | None = None
    ledger: Ledger | None = None
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    fingerprint: str | None = None
    unbounded: str | None = None
    rows: str | None = None


class PartyHandler(Protocol):
    """A party's side of a method: what it does with its own data and ledger at each stage of a run."""

    def join(self, spec: RunSpec) -> Mapping[str, Fact]:
        """Agree to a run and return public facts, or raise."""

    def prepare(self, spec: RunSpec) -> PreparedRun:
        """Return what the run costs this party."""

    def program(self, spec: RunSpec, scope: InnerScope | None) -> PartyProgram:
        """Return the party's program."""

    def finish(self, spec: RunSpec, program: PartyProgram, message: Message) -> None:
        """Store the party's result; ``message`` is the coordinator's last one. May be called again after a crash."""


class CoordinatorHandler(Protocol):
    """The coordinator's side of a method: the label holder's data, if it has any, and what becomes of the result."""

    def check(self, spec: RunSpec) -> None:
        """Refuse inconsistent facts of the parties before anything is charged."""

    def prepare(self, spec: RunSpec) -> PreparedRun:
        """Return what the run costs the label holder."""

    def program(self, spec: RunSpec, scope: InnerScope | None) -> CoordinatorProgram:
        """Return the coordinator's program."""

    def finish_messages(self, spec: RunSpec, program: CoordinatorProgram) -> Mapping[str, Message]:
        """Return the last message to each party, of kind ``finish``."""

    def finish(self, spec: RunSpec, program: CoordinatorProgram) -> Any:
        """Store and return the result. May be called again after a crash."""
