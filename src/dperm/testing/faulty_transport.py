"""A faulty transport for tests: messages that are repeated, delayed, early or changed must cause no harm.

Any transport may lose, repeat and delay messages. To test a new one, wrap it in :class:`FaultyTransport`, which repeats
requests, replays them, sends them out of order and changes them, and records the parties' replies.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace

from dperm.errors import DpermError
from dperm.vertical.transport.base import Arrived, Event, Transport
from dperm.vertical.transport.envelope import REFUSAL, REPLY, Envelope, refusal_error

__all__ = ["FaultyTransport"]

#: the first requests are sent without faults, so that there is something to replay
_FIRST = 3


class FaultyTransport:
    """Sends every request twice, together with an old one, one for a later step and a changed one.

    Parameters
    ----------
    inner : Transport
        The transport that carries the envelopes.
    victim : str
        The party that receives the additional requests.
    die_at : int, optional
        Step at whose first reply the coordinator stops with an error.
    """

    def __init__(self, inner: Transport, victim: str, die_at: int | None = None) -> None:
        self._inner, self._victim, self._die_at = inner, victim, die_at
        self._sent: list[Envelope] = []
        #: messages of the refusals
        self.refused: list[str] = []
        #: by party and step: digests of the replies, without masked arrays
        self.answers: dict[tuple[str, int], list[str]] = defaultdict(list)

    def connected(self) -> frozenset[str]:
        """Return the connected parties."""
        return self._inner.connected()

    def send(self, party: str, envelope: Envelope) -> bool:
        """Send a request, and faulty ones with it to the victim."""
        if party != self._victim:
            return self._inner.send(party, envelope)
        if len(self._sent) > _FIRST and self._sent[-1].step < envelope.step:
            last = self._sent[-1]
            changed = bytes(last.payload)[:-1] + b"!"
            self._inner.send(party, replace(last, payload=changed, known_content=None))
            self._inner.send(party, self._sent[2])
            self._inner.send(party, replace(envelope, step=envelope.step + 2))
        sent = self._inner.send(party, envelope)
        if sent:
            self._inner.send(party, envelope)
            self._sent.append(envelope)
        return sent

    def collect(self, timeout: float) -> Event | None:
        """Return the next event and record its reply or refusal."""
        event = self._inner.collect(timeout)
        if isinstance(event, Arrived):
            reply = event.envelope
            if reply.kind == REFUSAL:
                self.refused.append(str(refusal_error(reply)))
            if reply.kind == REPLY:
                self.answers[event.party, reply.step].append(_unmasked_digest(reply))
                if reply.step == self._die_at:
                    raise DpermError("the coordinator stops here, as the test asked.")
        return event

    def close(self, reason: str = "") -> None:
        """Close the inner transport."""
        self._inner.close(reason)


def _unmasked_digest(reply: Envelope) -> str:
    message = reply.message()
    digest = hashlib.sha256(message.kind.encode())
    for name in sorted(set(message.arrays) - message.summed):
        digest.update(name.encode() + message.arrays[name].tobytes())
    return digest.hexdigest()
