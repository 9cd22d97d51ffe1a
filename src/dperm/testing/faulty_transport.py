"""A coordinator's transport that misbehaves: what travels twice, late, early or changed must do no harm.

Any transport may lose, repeat and delay messages, so a new one is tested with this around it: requests are repeated,
replayed, sent out of order and changed, and what the parties make of them is kept.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace

from dperm.errors import DpermError
from dperm.vertical.transport.base import Arrived, Event, Transport
from dperm.vertical.transport.envelope import REFUSAL, REPLY, Envelope, refusal_error

__all__ = ["FaultyTransport"]

#: requests of the beginning are left alone, so that there is something to replay
_FIRST = 3


class FaultyTransport:
    """Sends every request twice, and with it one from long ago, one from the future and one that is changed.

    Parameters
    ----------
    inner : Transport
        What really carries envelopes.
    victim : str
        The party that gets more than it should.
    die_at : int, optional
        Step at whose first reply the coordinator breaks off.
    """

    def __init__(self, inner: Transport, victim: str, die_at: int | None = None) -> None:
        self._inner, self._victim, self._die_at = inner, victim, die_at
        self._sent: list[Envelope] = []
        #: sentences with which requests were refused
        self.refused: list[str] = []
        #: by party and step: digests of what was answered, masked arrays aside
        self.answers: dict[tuple[str, int], list[str]] = defaultdict(list)

    def connected(self) -> frozenset[str]:
        """Parties that are there."""
        return self._inner.connected()

    def send(self, party: str, envelope: Envelope) -> bool:
        """Send, and more than that to the victim."""
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
        """Return what happens next, and keep what was said."""
        event = self._inner.collect(timeout)
        if isinstance(event, Arrived):
            said = event.envelope
            if said.kind == REFUSAL:
                self.refused.append(str(refusal_error(said)))
            if said.kind == REPLY:
                self.answers[event.party, said.step].append(_plain(said))
                if said.step == self._die_at:
                    raise DpermError("the coordinator breaks off here.")
        return event

    def close(self, reason: str = "") -> None:
        """Close what carries envelopes."""
        self._inner.close(reason)


def _plain(said: Envelope) -> str:
    message = said.message()
    made = hashlib.sha256(message.kind.encode())
    for name in sorted(set(message.arrays) - message.summed):
        made.update(name.encode() + message.arrays[name].tobytes())
    return made.hexdigest()
