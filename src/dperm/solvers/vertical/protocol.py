"""The protocol between a vertical method and the runtime: messages, and the interfaces of the two programs.

The coordinator's program sends every party one request per round; a party's program answers one request at a time.
Neither depends on how messages travel, so the same programs run in one process, between processes and on another
engine. A program can save and restore its whole state: the runtime stores state and reply together before it sends a
reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.types import FloatArray, IntArray

__all__ = ["CoordinatorProgram", "Fact", "Message", "PartyProgram", "TrainedParty"]

Fact = str | int | float | bool | None


@dataclass(frozen=True)
class Message:
    """Named arrays and public facts.

    Parameters
    ----------
    kind : str
        Kind of request or reply.
    arrays : mapping of str to array
        Numeric arrays (float64, int64, uint64 or uint8). Their number, types and shapes are public.
    facts : mapping of str to str, int, float, bool or None
        Public facts.
    summed : frozenset of str
        Integer arrays (int64) of a reply of which the coordinator needs only the total over all parties; the runtime
        may mask them.
    """

    kind: str
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    summed: frozenset[str] = frozenset()


class PartyProgram(Protocol):
    """Program of a party; it owns the party's holder, and only ``answer`` changes its state."""

    #: the releases of the whole run with their noise; every party charges all of them to its own ledger
    calibrated: CalibratedPlan
    #: exact number of requests that it answers
    n_rounds: int

    def answer(self, request: Message) -> Message:
        """Answer the next request."""

    def state(self) -> Message:
        """Return everything needed to continue, without the party's data."""

    def restore(self, state: Message) -> None:
        """Continue from a state."""


class TrainedParty(PartyProgram, Protocol):
    """Program of a party in a method that trains a model."""

    def own_weights(self) -> FloatArray:
        """Return the weights of the party's own columns, from its own answers, after the last round."""


class CoordinatorProgram(Protocol):
    """Program of the coordinator; it may own the holder of the labels."""

    calibrated: CalibratedPlan
    n_rounds: int
    #: rounds completed so far
    round: int

    def requests(self) -> Mapping[str, Message]:
        """Return this round's request to each party, by name; the same until :meth:`absorb`."""

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        """Process the replies of one round; arrays named in ``summed`` are in ``totals`` and not in the replies."""

    def state(self) -> Message:
        """Return everything needed to continue, without the label holder's data."""

    def restore(self, state: Message) -> None:
        """Continue from a state."""

    def result(self) -> Any:
        """Return the result of the run, after the last round."""
