"""Frames: envelopes are sent on a stream in pieces of 1 MiB, with a digest at the end.

A frame is a type byte and a body. The control frames ``hello``, ``welcome`` and ``bye`` carry a small JSON object.
``chunk`` carries a piece of an envelope: the envelope's number on this stream, the position of the piece, the total
length and, with the last piece, the digest of the envelope's head, which contains a checksum of the payload.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from dperm.errors import ProtocolError
from dperm.vertical.transport.envelope import Envelope
from dperm.vertical.transport.wire import DEFAULT_LIMIT, digest

__all__ = [
    "BYE",
    "CHUNK",
    "CHUNK_BYTES",
    "HELLO",
    "PROTOCOLS",
    "WELCOME",
    "Assembly",
    "chunks",
    "control_frame",
    "read_control_frame",
]

HELLO, WELCOME, CHUNK, BYE = range(4)
CHUNK_BYTES = 1 << 20
#: supported versions of this protocol, newest first
PROTOCOLS = (1,)

_HEAD = struct.Struct("<BIIIQH32s")
_NO_DIGEST = bytes(32)
_MOST_CONTROL_BYTES = 4096


def control_frame(kind: int, **facts: Any) -> bytes:
    """Return a control frame."""
    return bytes([kind]) + json.dumps(facts, sort_keys=True).encode()


def read_control_frame(frame: bytes) -> dict[str, Any]:
    """Return the facts of a control frame."""
    try:
        facts = json.loads(frame[1:]) if len(frame) <= _MOST_CONTROL_BYTES else None
    except (ValueError, RecursionError):  # thousands of nested brackets are short enough to pass the size check
        facts = None
    if not isinstance(facts, dict):
        raise ProtocolError("a control frame on the link cannot be read.")
    return facts


def chunks(number: int, envelope: Envelope) -> Iterator[bytes]:
    """Cut an envelope into frames."""
    head, payload = envelope.head(), memoryview(envelope.payload).cast("B")
    length = len(head) + len(payload)
    count = -(-length // CHUNK_BYTES)
    for i in range(count):
        start = i * CHUNK_BYTES - len(head)
        piece = payload[max(0, start) : start + CHUNK_BYTES]
        last = digest(head) if i == count - 1 else _NO_DIGEST
        yield b"".join((_HEAD.pack(CHUNK, number, i, count, length, len(head), last), head if i == 0 else b"", piece))


class Assembly:
    """Reassembles envelopes from frames; refuses missing, surplus and damaged pieces."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._data = memoryview(b"")
        self._filled = 0
        self._next = (0, 0, 0, 0, 0)

    def add(self, frame: bytes) -> Envelope | None:
        """Add a frame; return the envelope once it is complete."""
        piece = memoryview(frame)[_HEAD.size :]
        if len(frame) < _HEAD.size or len(piece) > CHUNK_BYTES:
            raise ProtocolError("a piece of a message has an impossible size.")
        _, number, place, count, length, head, head_digest = _HEAD.unpack_from(frame)
        if place == 0:
            if length > self._limit + 1024:
                raise ProtocolError(f"a message of {length} bytes was refused: at most {self._limit} are accepted.")
            # the system provides this memory only as pieces arrive: a declared length alone costs nothing
            self._data, self._filled = np.empty(length, np.uint8).data, 0
            self._next = (number, 0, count, length, head)
        if (number, place, count, length, head) != self._next or count != max(1, -(-length // CHUNK_BYTES)):
            raise ProtocolError("a piece of a message is missing, repeated or out of order.")
        if len(piece) > length - self._filled:
            raise ProtocolError("a piece of a message has an impossible size.")
        self._data[self._filled : self._filled + len(piece)] = piece
        self._filled += len(piece)
        self._next = (number, place + 1, count, length, head)
        if place + 1 < count:
            return None
        whole, self._data = self._data, memoryview(b"")
        if self._filled != length or digest(whole[:head]) != head_digest:
            raise ProtocolError("a message was damaged in transit: its digest differs.")
        return Envelope.decode(whole, self._limit)
