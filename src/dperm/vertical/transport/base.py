"""The interface of a transport as the coordinator's session uses it, and the transport within one process."""

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
    """A party has connected, for the first time or again: send it again what it has not answered."""

    party: str


@dataclass(frozen=True)
class Lost:
    """The link to a party broke."""

    party: str
    why: str = ""


@dataclass(frozen=True)
class Arrived:
    """An envelope from a party; the transport has verified the party's name."""

    party: str
    envelope: Envelope


Event = Connected | Lost | Arrived


class Transport(Protocol):
    """Carries envelopes between the coordinator of one run and its parties.

    It may lose, repeat and delay messages. It must not change them, and it must know who sent them.
    """

    def connected(self) -> frozenset[str]:
        """Return the parties that are connected now."""

    def send(self, party: str, envelope: Envelope) -> bool:
        """Send an envelope; return False if the party is not connected."""

    def collect(self, timeout: float) -> Event | None:
        """Return the next event, or None if there is none within ``timeout`` seconds."""

    def close(self, reason: str = "") -> None:
        """Inform all parties that the run has ended; ``reason`` says why if it failed."""


class InProcess:
    """All parties in this process, each with a thread of its own.

    Parameters
    ----------
    handlers : mapping of str to callable
        Each party's ``handle`` of its session.
    """

    def __init__(self, handlers: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.handlers = dict(handlers)
        self._events: queue.Queue[Event] = queue.Queue()
        # one thread per party, as on a network link: a party answers requests in their order
        self._workers = {name: ThreadPoolExecutor(1, thread_name_prefix=name) for name in self.handlers}

    def connected(self) -> frozenset[str]:
        return frozenset(self.handlers)

    def send(self, party: str, envelope: Envelope) -> bool:
        self._workers[party].submit(self._answer, party, envelope.encode())
        return True

    def _answer(self, party: str, data: bytes) -> None:
        try:
            self._events.put(Arrived(party, Envelope.decode(self.handlers[party](data))))
        except Exception as error:
            self._events.put(Lost(party, type(error).__name__))

    def collect(self, timeout: float) -> Event | None:
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self, reason: str = "") -> None:
        for worker in self._workers.values():
            worker.shutdown(wait=True, cancel_futures=True)
