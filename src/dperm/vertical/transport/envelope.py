"""Envelopes: a message with the run, the step, the attempt and the state it belongs to."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import cached_property

from dperm.errors import BudgetRefused, DpermError, InvalidInput, PeerRefused, ProtocolError, StateLost
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.transport.wire import DEFAULT_LIMIT, Reader, checksum, decode, digest, encode, text

__all__ = [
    "FIRST",
    "NONCE_BYTES",
    "REFUSAL",
    "RENEWAL",
    "REPLY",
    "REQUEST",
    "Envelope",
    "checked_name",
    "error_of",
    "next_digest",
    "refusal",
]

VERSION = 1
#: a renewal is a party's answer to a request with an old nonce of it: it says the new one and nothing else
REQUEST, REPLY, REFUSAL, RENEWAL = range(4)
NONCE_BYTES = 16

_MAGIC = b"dpve"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}[A-Za-z0-9]|[A-Za-z0-9]")

#: what the coordinator is told where a party's own error could say something about its data
FIXED_SENTENCE = "it cannot go on; its own log says why."


def checked_name(name: str, what: str) -> str:
    """Return the name of a run or a participant if it can be one: it names files and stands in certificates."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name:
        raise InvalidInput(
            f"{what} must be 1 to 64 letters, digits and single dots, dashes or underscores between them."
        )
    return name


@dataclass(frozen=True)
class Envelope:
    """One message on its way.

    Attributes
    ----------
    kind : int
        Request, reply, refusal or renewal.
    run, party : str
        The run, and the party that is asked or answers.
    step : int
        Number of the request within the run, from 0.
    attempt : int
        How often the coordinator took up this step again after a restart.
    state : bytes
        Digest of everything the party answered before this step.
    payload : bytes
        Encoded message.
    nonces : bytes
        Of a secure sum: in an answer the party's own nonce, in a request those of all parties in the run's order. A
        party draws a new one whenever it takes up a run from its disk; they stay out of the content, so that the same
        request can be repeated with newer ones.
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
        """Checksum of the payload, by which damage and a changed request are noticed."""
        return checksum(self.payload) if self.known_content is None else self.known_content

    def head(self) -> bytes:
        """Return everything but the payload; its checksum is part of it."""
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
        """Read an envelope; its message is read later, by who knows how large it may be."""
        if len(data) > limit + 1024:
            raise ProtocolError(f"an envelope of {len(data)} bytes was refused: at most {limit} are accepted.")
        read = Reader(data, "an envelope")
        if bytes(read.take(4)) != _MAGIC:
            raise read.damaged("it is not one of dperm's")
        version, kind = read.unpack("BB")
        if version != VERSION or kind > RENEWAL:
            raise read.damaged(f"it is of version {version}, and this dperm reads version {VERSION}")
        run, party = read.text(), read.text()
        if not (_NAME.fullmatch(run) and _NAME.fullmatch(party)) or ".." in run + party:
            raise read.damaged("the run or the party has no proper name")
        step, attempt = read.unpack("II")
        state, content = bytes(read.take(32)), bytes(read.take(16))
        nonces = bytes(read.take(*read.unpack("H")))
        payload = read.rest()
        if checksum(payload) != content:
            raise read.damaged("it was damaged on its way, its checksum differs")
        return cls(kind, run, party, step, attempt, state, payload, content, nonces)

    def message(self, limit: int = DEFAULT_LIMIT) -> Message:
        """Return the message inside."""
        return decode(self.payload, limit)

    def answer(self, kind: int, payload: bytes, content: bytes | None = None, nonce: bytes = b"") -> Envelope:
        """Return an envelope that answers this one; ``content`` is the payload's checksum if it is known."""
        where = (self.run, self.party, self.step, self.attempt, self.state)
        return Envelope(kind, *where, payload, content, nonce)


#: state digest of a party that has answered nothing
FIRST = bytes(32)


def next_digest(before: bytes, step: int, request: bytes, reply: Message) -> bytes:
    """Digest of a party's answers after one more step.

    It is a function of what travelled, never of a party's data, so it says nothing that the messages do not say.
    Arrays that are summed stay out of it: they travel masked, and a digest would let others test guesses of them.
    """
    rest = {name: array for name, array in reply.arrays.items() if name not in reply.summed}
    said = encode(Message(reply.kind, rest, reply.facts))
    return digest(b"".join((b"dperm state", before, struct.pack("<I", step), request, checksum(said))))


def refusal(asked: Envelope, error: DpermError) -> Envelope:
    """Return the envelope that refuses a request, without a word that could depend on data."""
    if isinstance(error, BudgetRefused):
        code, sentence = "budget", "its limits or its ledger's cap do not allow this run; nothing was answered."
    elif isinstance(error, StateLost):
        code, sentence = "state", str(error)
    elif isinstance(error, ProtocolError | PeerRefused):
        code, sentence = "protocol", str(error)
    else:
        code, sentence = "failed", FIXED_SENTENCE
    return asked.answer(REFUSAL, encode(Message("refusal", facts={"code": code, "sentence": sentence})))


def error_of(envelope: Envelope) -> DpermError:
    """Return the error that a refusal reports."""
    facts = envelope.message(limit=1 << 16).facts
    kind = BudgetRefused if facts.get("code") == "budget" else PeerRefused
    sentence = "".join(c for c in str(facts.get("sentence", "")) if c.isprintable())[:500]
    return kind(f"{envelope.party} refused step {envelope.step} of run {envelope.run!r}: {sentence}")
