"""What a vertical method is to the runtime: two programs that exchange messages, and nothing else.

The coordinator's program asks every party once a round; a party's program answers one request at a time. Neither knows
how messages travel, so the same programs run in one process, between processes and on another engine. A program can
write down its whole state and take it up again: the runtime stores state and reply together before it sends a reply.
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
        What is asked or answered.
    arrays : mapping of str to array
        Numeric arrays (float64, int64, uint64 or uint8). Their number, types and shapes are public.
    facts : mapping of str to str, int, float, bool or None
        Public facts.
    summed : frozenset of str
        Arrays of whole numbers (int64) of a reply of which the coordinator needs only the total over all parties: the
        runtime may mask them.
    """

    kind: str
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    summed: frozenset[str] = frozenset()


class PartyProgram(Protocol):
    """A party's side of a method; it owns the party's holder and changes only by answering."""

    #: the whole run's releases with their noise: every party charges all of it to its own ledger
    calibrated: CalibratedPlan
    #: requests that it answers, neither fewer nor more
    n_rounds: int

    def answer(self, request: Message) -> Message:
        """Answer the next request."""

    def state(self) -> Message:
        """Return everything needed to go on, without the party's data."""

    def restore(self, state: Message) -> None:
        """Go on from a state."""


class TrainedParty(PartyProgram, Protocol):
    """A party's side of a method that trains a model."""

    def own_weights(self) -> FloatArray:
        """Return the weights of the party's own columns, from its own answers, after the last round."""


class CoordinatorProgram(Protocol):
    """The coordinator's side; it may own the label holder's holder."""

    calibrated: CalibratedPlan
    n_rounds: int
    #: rounds absorbed so far
    round: int

    def requests(self) -> Mapping[str, Message]:
        """Return this round's request to each party, by name; the same until :meth:`absorb`."""

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        """Take one round's replies; arrays named in ``summed`` are in ``totals`` and not in the replies."""

    def state(self) -> Message:
        """Return everything needed to go on, without the label holder's data."""

    def restore(self, state: Message) -> None:
        """Go on from a state."""

    def result(self) -> Any:
        """Return what was learnt, after the last round."""
