"""What the coordinator's session needs of a transport, and the transport inside one process."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from dperm.vertical.transport.envelope import Envelope

__all__ = ["Arrived", "Connected", "Event", "InProcess", "Lost", "Transport"]


@dataclass(frozen=True)
class Connected:
    """A party is there, for the first time or again: what it has not answered must be sent again."""

    party: str


@dataclass(frozen=True)
class Lost:
    """The link to a party broke."""

    party: str
    why: str = ""


@dataclass(frozen=True)
class Arrived:
    """An envelope from a party, whose name the transport vouches for."""

    party: str
    envelope: Envelope


Event = Connected | Lost | Arrived


class Transport(Protocol):
    """Carries envelopes between the coordinator of one run and its parties.

    It may lose, repeat and delay messages; it must not change them, and must know who sent them.
    """

    def connected(self) -> frozenset[str]:
        """Parties that are there now."""

    def send(self, party: str, envelope: Envelope) -> bool:
        """Send, or return False if the party is not there."""

    def collect(self, timeout: float) -> Event | None:
        """Return what happens next, None if nothing does for ``timeout`` seconds."""

    def close(self, farewell: str = "") -> None:
        """Tell all parties that the run is over; ``farewell`` says why if it did not end well."""


class InProcess:
    """All parties in this process, each with a thread of its own.

    Parameters
    ----------
    handlers : mapping of str to callable
        Each party's ``handle`` of its session.
    """

    def __init__(self, handlers: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self._handlers = dict(handlers)
        self._events: queue.Queue[Event] = queue.Queue()
        # one thread each, as on a link: a party answers in the order in which it was asked
        self._workers = {name: ThreadPoolExecutor(1, thread_name_prefix=name) for name in self._handlers}

    def connected(self) -> frozenset[str]:
        return frozenset(self._handlers)

    def send(self, party: str, envelope: Envelope) -> bool:
        self._workers[party].submit(self._answer, party, envelope.encode())
        return True

    def _answer(self, party: str, data: bytes) -> None:
        try:
            self._events.put(Arrived(party, Envelope.decode(self._handlers[party](data))))
        except Exception as error:
            self._events.put(Lost(party, type(error).__name__))

    def collect(self, timeout: float) -> Event | None:
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self, farewell: str = "") -> None:
        for worker in self._workers.values():
            worker.shutdown(wait=True, cancel_futures=True)
