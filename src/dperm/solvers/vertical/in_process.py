"""Run a vertical method in one process, and count the bytes that its messages would take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dperm.errors import InvalidInput
from dperm.solvers.vertical.protocol import CoordinatorProgram, Message, PartyProgram
from dperm.types import IntArray

__all__ = ["MessageLog", "message_bytes", "run_in_process"]

_PER_FACT = 8  # bytes counted for a public fact


def message_bytes(message: Message) -> int:
    """Return the bytes of a message's content: its arrays, and eight bytes for every fact."""
    return sum(int(value.nbytes) for value in message.arrays.values()) + _PER_FACT * len(message.facts)


@dataclass
class MessageLog:
    """Bytes sent and received by every party and, if ``keep`` is set, all messages of a run in order."""

    keep: bool = False
    requests: list[Mapping[str, Message]] = field(default_factory=list)
    replies: list[Mapping[str, Message]] = field(default_factory=list)
    uplink_bytes: dict[str, int] = field(default_factory=dict)
    downlink_bytes: dict[str, int] = field(default_factory=dict)

    def add(self, requests: Mapping[str, Message], replies: Mapping[str, Message]) -> None:
        """Count one round."""
        for name, message in requests.items():
            self.downlink_bytes[name] = self.downlink_bytes.get(name, 0) + message_bytes(message)
        for name, message in replies.items():
            self.uplink_bytes[name] = self.uplink_bytes.get(name, 0) + message_bytes(message)
        if self.keep:
            self.requests.append(requests)
            self.replies.append(replies)


def run_in_process(
    coordinator: CoordinatorProgram,
    parties: Mapping[str, PartyProgram],
    log: MessageLog | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """Carry out all rounds and return the coordinator's result.

    ``log`` records the messages; ``progress`` is called with the rounds done and the total number of rounds.
    """
    while coordinator.round < coordinator.n_rounds:
        requests = coordinator.requests()
        if set(requests) != set(parties):
            raise InvalidInput("the coordinator's parties are not the parties of this run.")
        replies = {name: parties[name].answer(request) for name, request in requests.items()}
        if log is not None:
            log.add(requests, replies)
        coordinator.absorb(*_summed(replies))
        if progress is not None:
            progress(coordinator.round, coordinator.n_rounds)
    return coordinator.result()


def _summed(replies: Mapping[str, Message]) -> tuple[dict[str, Message], dict[str, IntArray]]:
    """Remove summed arrays from the replies and add them up, modulo 2^64 as a masked sum would."""
    totals: dict[str, IntArray] = {}
    rest: dict[str, Message] = {}
    for name, reply in replies.items():
        for key in reply.summed:
            value = reply.arrays[key]
            totals[key] = value.copy() if key not in totals else totals[key] + value  # int64 wraps around
        kept = {key: value for key, value in reply.arrays.items() if key not in reply.summed}
        rest[name] = Message(reply.kind, kept, reply.facts)
    return rest, totals
