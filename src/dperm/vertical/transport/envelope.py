"""Envelopes: a message together with the run, step, attempt and state it belongs to."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property

from dperm.errors import BudgetRefused, DpermError, PeerRefused, ProtocolError, StateLost
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.identity.names import is_safe_name
from dperm.vertical.transport.wire import DEFAULT_LIMIT, Reader, checksum, decode, digest, encode, text

__all__ = [
    "FIRST",
    "NONCE_BYTES",
    "REFUSAL",
    "RENEWAL",
    "REPLY",
    "REQUEST",
    "Envelope",
    "next_digest",
    "refusal",
    "refusal_error",
]

VERSION = 1
#: a renewal answers a request that carries an old nonce of the party: it contains the new nonce and nothing else
REQUEST, REPLY, REFUSAL, RENEWAL = range(4)
NONCE_BYTES = 16

_MAGIC = b"dpve"

#: sent to the coordinator where a party's own error message could reveal something about its data
_FIXED_SENTENCE = "it cannot continue; its own log says why."


@dataclass(frozen=True)
class Envelope:
    """One message in transit.

    Attributes
    ----------
    kind : int
        Request, reply, refusal or renewal.
    run, party : str
        The run, and the party that receives the request or sends the reply.
    step : int
        Number of the request within the run, from 0.
    attempt : int
        How often the coordinator has repeated this step after a restart.
    state : bytes
        Digest of everything the party answered before this step.
    payload : bytes
        Encoded message.
    nonces : bytes
        For a secure sum: a reply carries the party's own nonce, a request carries those of all parties in the run's
        order. A party draws a new nonce whenever it loads a run from its disk. Nonces are not part of ``content``, so
        that the same request can be repeated with newer ones.
    """

    kind: int
    run: str
    party: str
    step: int
    attempt: int
    state: bytes
    payload: bytes | memoryview
    known_content: bytes | None = field(default=None, repr=False, compare=False)
    nonces: bytes = b""

    @cached_property
    def content(self) -> bytes:
        """Checksum of the payload; it reveals damage and changed requests."""
        return checksum(self.payload) if self.known_content is None else self.known_content

    def head(self) -> bytes:
        """Return everything but the payload; the payload's checksum is included."""
        return b"".join(
            (
                _MAGIC,
                struct.pack("<BB", VERSION, self.kind),
                text(self.run),
                text(self.party),
                struct.pack("<II", self.step, self.attempt),
                self.state,
                self.content,
                struct.pack("<H", len(self.nonces)),
                self.nonces,
            )
        )

    def encode(self) -> bytes:
        """Return the envelope's bytes."""
        return b"".join((self.head(), self.payload))

    def __len__(self) -> int:
        return len(self.payload) + 4 + 2 + 4 + len(self.run) + len(self.party) + 8 + 32 + 16 + 2 + len(self.nonces)

    @classmethod
    def decode(cls, data: bytes | memoryview, limit: int = DEFAULT_LIMIT) -> Envelope:
        """Read an envelope; :meth:`message` decodes the payload later, with the caller's size limit."""
        if len(data) > limit + 1024:
            raise ProtocolError(f"an envelope of {len(data)} bytes was refused: at most {limit} are accepted.")
        read = Reader(data, "an envelope")
        if bytes(read.take(4)) != _MAGIC:
            raise read.damaged("it is not a dperm envelope")
        version, kind = read.unpack("BB")
        if version != VERSION or kind > RENEWAL:
            raise read.damaged(f"it has version {version}, and this dperm reads version {VERSION}")
        run, party = read.text(), read.text()
        if not (is_safe_name(run) and is_safe_name(party)):
            raise read.damaged("the name of the run or the party is not allowed")
        step, attempt = read.unpack("II")
        state, content = bytes(read.take(32)), bytes(read.take(16))
        nonces = bytes(read.take(*read.unpack("H")))
        payload = read.rest()
        if checksum(payload) != content:
            raise read.damaged("it was damaged in transit (its checksum differs)")
        return cls(kind, run, party, step, attempt, state, payload, content, nonces)

    def message(self, limit: int = DEFAULT_LIMIT) -> Message:
        """Return the decoded message."""
        return decode(self.payload, limit)

    def answer(self, kind: int, payload: bytes, content: bytes | None = None, nonce: bytes = b"") -> Envelope:
        """Return an envelope that answers this one; ``content`` is the payload's checksum if already computed."""
        where = (self.run, self.party, self.step, self.attempt, self.state)
        return Envelope(kind, *where, payload, content, nonce)


#: state digest of a party that has answered nothing
FIRST = bytes(32)


def next_digest(before: bytes, step: int, request: bytes, reply: Message) -> bytes:
    """Return the digest of a party's answers after one more step.

    It depends only on messages that were sent, so it reveals nothing that they do not reveal. Summed arrays are left
    out: they are sent masked, and a digest of the values would let others test guesses.
    """
    rest = {name: array for name, array in reply.arrays.items() if name not in reply.summed}
    plain = encode(Message(reply.kind, rest, reply.facts))
    return digest(b"".join((b"dperm state", before, struct.pack("<I", step), request, checksum(plain))))


def refusal(request: Envelope, error: DpermError) -> Envelope:
    """Return the envelope that refuses a request; its text does not depend on data."""
    if isinstance(error, BudgetRefused):
        code, sentence = "budget", "its limits or its ledger's cap do not allow this run; nothing was answered."
    elif isinstance(error, StateLost):
        code, sentence = "state", str(error)
    elif isinstance(error, ProtocolError | PeerRefused):
        code, sentence = "protocol", str(error)
    else:
        code, sentence = "failed", _FIXED_SENTENCE
    return request.answer(REFUSAL, encode(Message("refusal", facts={"code": code, "sentence": sentence})))


def refusal_error(envelope: Envelope) -> DpermError:
    """Return the error that a refusal reports."""
    facts = envelope.message(limit=1 << 16).facts
    kind = BudgetRefused if facts.get("code") == "budget" else PeerRefused
    sentence = "".join(c for c in str(facts.get("sentence", "")) if c.isprintable())[:500]
    return kind(f"{envelope.party} refused step {envelope.step} of run {envelope.run!r}: {sentence}")
