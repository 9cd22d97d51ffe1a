"""The binary encoding of messages: canonical, so that equal messages have equal bytes; decoding executes no code.

Layout, all numbers little-endian::

    "dpvm" version:u8 kind:str
    n_arrays:u16   (name:str  type:u8 summed:u8 n_axes:u8 axes:u64... raw bytes) in order of name
    n_facts:u16    (name:str  tag:u8 value) in order of name

where ``str`` is a u16 length and UTF-8 bytes. Numbers have a fixed width, so the length of a message depends only on
its kind, names, types and shapes and on the lengths of its texts. All of these are public; no value changes it.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from dperm.errors import InvalidInput, ProtocolError
from dperm.solvers.vertical.protocol import Fact, Message

__all__ = [
    "DEFAULT_LIMIT",
    "VERSION",
    "Reader",
    "checksum",
    "decode",
    "digest",
    "encode",
    "encoded_parts",
    "encoded_size",
    "text",
]

VERSION = 1
#: default limit on the bytes of one message: eight columns of 16 million people
DEFAULT_LIMIT = 1 << 30

_MAGIC = b"dpvm"
_TYPES: tuple[np.dtype[Any], ...] = tuple(np.dtype(t) for t in ("<f8", "<i8", "<u8", "|u1"))
_MOST_AXES = 4
_MOST_NAMES = 1024
_NONE, _FALSE, _TRUE, _INT, _FLOAT, _STR = range(6)
_INT64 = range(-(1 << 63), 1 << 63)


def digest(data: bytes | memoryview) -> bytes:
    """Return the SHA-256 digest."""
    return hashlib.sha256(data).digest()


_GMAC = AESGCM(b"dperm checksums, not a secret..!")


def checksum(data: bytes | memoryview) -> bytes:
    """Return a 16-byte checksum against accidental damage, ten times as fast to compute as a digest.

    It is AES-GMAC with a public key: accidental damage changes it, but it is easy to make other data with the same
    checksum on purpose. No guarantee depends on it: links are authenticated by TLS, folders belong to their owner, and
    a party repeats an answered step from its disk, whatever the request contains.
    """
    return _GMAC.encrypt(bytes(12), b"", data)


def encode(message: Message) -> bytes:
    """Return the canonical bytes of a message."""
    return b"".join(encoded_parts(message))


def encoded_size(message: Message) -> int:
    """Return the number of bytes of a message, without copying its arrays."""
    return sum(len(part) for part in encoded_parts(message))


def encoded_parts(message: Message) -> Iterable[bytes | memoryview]:
    """Yield the canonical bytes of a message in parts, without copying its arrays."""
    yield _MAGIC + bytes([VERSION]) + text(message.kind)
    unknown = message.summed - message.arrays.keys()
    if unknown:
        raise InvalidInput(f"a message sums {min(unknown)!r}, which is not one of its arrays.")
    yield _count(len(message.arrays))
    for name in sorted(message.arrays):
        array = np.asarray(message.arrays[name])
        summed = name in message.summed
        code = _type_code(name, array)
        if summed and code != 1:
            raise InvalidInput(f"array {name!r} is to be summed, so it must hold whole numbers (int64).")
        if array.ndim > _MOST_AXES:
            raise InvalidInput(f"array {name!r} has {array.ndim} axes; {_MOST_AXES} are allowed.")
        yield text(name) + struct.pack(f"<BBB{array.ndim}Q", code, summed, array.ndim, *array.shape)
        raw = np.ascontiguousarray(array, _TYPES[code])
        yield raw.reshape(-1).view(np.uint8).data if raw.size else b""
    yield _count(len(message.facts))
    for name in sorted(message.facts):
        yield text(name) + _fact(name, message.facts[name])


def _count(n: int) -> bytes:
    if n > _MOST_NAMES:
        raise InvalidInput(f"a message has {n} arrays or facts; {_MOST_NAMES} are allowed.")
    return struct.pack("<H", n)


def _type_code(name: str, array: NDArray[Any]) -> int:
    try:
        return _TYPES.index(array.dtype.newbyteorder("<"))
    except ValueError:
        raise InvalidInput(
            f"array {name!r} has type {array.dtype}; messages carry float64, int64, uint64 and uint8."
        ) from None


def text(value: str) -> bytes:
    """Return the bytes of a text, preceded by their length."""
    raw = value.encode("utf-8")
    if len(raw) > 0xFFFF:
        raise InvalidInput("a text of a message is longer than 65,535 bytes.")
    return struct.pack("<H", len(raw)) + raw


def _fact(name: str, value: Fact) -> bytes:
    if value is None:
        return bytes([_NONE])
    if isinstance(value, bool | np.bool_):
        return bytes([_TRUE if value else _FALSE])
    if isinstance(value, int | np.integer):
        if int(value) not in _INT64:
            raise InvalidInput(f"fact {name!r} does not fit 64 bits.")
        return struct.pack("<Bq", _INT, int(value))
    if isinstance(value, float | np.floating):
        return struct.pack("<Bd", _FLOAT, float(value))
    if isinstance(value, str):
        return bytes([_STR]) + text(value)
    raise InvalidInput(f"fact {name!r} is a {type(value).__name__}; facts are texts, numbers, booleans or None.")


class Reader:
    """Reads bytes in order and refuses to read past the end."""

    def __init__(self, data: bytes | memoryview, what: str = "a message") -> None:
        self._data = memoryview(data).cast("B")
        self._at = 0
        self._what = what

    def take(self, n: int) -> memoryview:
        """Return the next ``n`` bytes."""
        if n > len(self._data) - self._at:
            raise self.damaged("it is cut off")
        self._at += n
        return self._data[self._at - n : self._at]

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Return the next numbers."""
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def text(self) -> str:
        """Return the next text."""
        (length,) = self.unpack("H")
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError:
            raise self.damaged("a text is not UTF-8") from None

    def rest(self) -> memoryview:
        """Return all remaining bytes."""
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        """Refuse remaining bytes."""
        if self._at != len(self._data):
            raise self.damaged("bytes are left over")

    def damaged(self, why: str) -> ProtocolError:
        """Return the error for unreadable bytes."""
        return ProtocolError(f"{self._what} cannot be read: {why}.")


def decode(data: bytes | memoryview, limit: int = DEFAULT_LIMIT) -> Message:
    """Decode canonical bytes; anything else is refused.

    Raises
    ------
    ProtocolError
        The bytes are too many, truncated, of another version or not canonical.
    """
    if len(data) > limit:
        raise ProtocolError(f"a message of {len(data)} bytes was refused: at most {limit} are accepted.")
    read = Reader(data)
    if bytes(read.take(4)) != _MAGIC:
        raise read.damaged("it is not a dperm message")
    (version,) = read.unpack("B")
    if version != VERSION:
        raise read.damaged(f"it has version {version}, and this dperm reads version {VERSION}")
    kind = read.text()
    arrays: dict[str, NDArray[Any]] = {}
    summed: set[str] = set()
    for name in _names(read):
        code, is_summed, n_axes = read.unpack("BBB")
        if code >= len(_TYPES) or is_summed > (code == 1) or n_axes > _MOST_AXES:
            raise read.damaged("an array has an unknown type")
        shape = read.unpack(f"{n_axes}Q")
        size = math.prod(shape)
        if max(shape, default=0) > limit or size * _TYPES[code].itemsize > limit:
            raise read.damaged("an array is larger than the message")
        raw = read.take(size * _TYPES[code].itemsize)
        arrays[name] = np.frombuffer(raw, _TYPES[code]).reshape(shape).astype(_TYPES[code].newbyteorder("="))
        if is_summed:
            summed.add(name)
    facts = {name: _read_fact(read) for name in _names(read)}
    read.end()
    return Message(kind, arrays, facts, frozenset(summed))


def _names(read: Reader) -> Iterable[str]:
    (count,) = read.unpack("H")
    if count > _MOST_NAMES:
        raise read.damaged("it has too many arrays or facts")
    before: str | None = None
    for _ in range(count):
        name = read.text()
        if before is not None and name <= before:
            raise read.damaged("names are not in order")
        before = name
        yield name


def _read_fact(read: Reader) -> Fact:
    (tag,) = read.unpack("B")
    if tag == _NONE:
        return None
    if tag in (_FALSE, _TRUE):
        return bool(tag == _TRUE)
    if tag == _INT:
        return int(read.unpack("q")[0])
    if tag == _FLOAT:
        return float(read.unpack("d")[0])
    if tag == _STR:
        return read.text()
    raise read.damaged("a fact has an unknown type")
