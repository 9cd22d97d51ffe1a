"""Blinding of identifiers for alignment: points of P-256, represented by their x-coordinates.

The arithmetic comes from the library that dperm already uses for TLS and AES. P-256 has prime order, so every point
other than infinity generates it and a multiple never reveals more than the point. A point and its negative have the
same x-coordinate, and so do their multiples. Hence x(b (a P)) = x(a (b P)) can be computed from x-coordinates alone,
which is what a Diffie-Hellman exchange returns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray

from dperm.errors import ProtocolError

__all__ = ["POINT_BYTES", "Blinding"]

POINT_BYTES = 32
_CURVE = ec.SECP256R1()
_ECDH = ec.ECDH()


class Blinding:
    """A secret factor by which points are multiplied."""

    def __init__(self, secret: bytes | None = None) -> None:
        if secret is None:
            self._key = ec.generate_private_key(_CURVE)
        else:
            self._key = ec.derive_private_key(int.from_bytes(secret, "big"), _CURVE)

    @property
    def secret(self) -> bytes:
        """The factor, for its owner's disk only."""
        return self._key.private_numbers().private_value.to_bytes(32, "big")

    def blind(self, identifiers: Iterable[bytes]) -> NDArray[np.uint8]:
        """Map identifiers to points and multiply them."""
        return _rows(self._key.exchange(_ECDH, _hashed(identifier)) for identifier in identifiers)

    def multiply(self, points: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Multiply points that others have already multiplied."""
        try:
            return _rows(self._key.exchange(_ECDH, _point(row.tobytes())) for row in points)
        except ValueError:
            raise ProtocolError("a blinded identifier is not a point on the curve; the list was refused.") from None


def _rows(points: Iterable[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(points), np.uint8).reshape(-1, POINT_BYTES)


def _point(x: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, b"\x02" + x)


def _hashed(identifier: bytes) -> ec.EllipticCurvePublicKey:
    """Try x-coordinates from a hash until one is on the curve; the identifier's owner needs two tries on average."""
    for attempt in range(256):
        x = hashlib.sha256(b"dperm alignment" + bytes([attempt]) + identifier).digest()
        try:
            return _point(x)
        except ValueError:
            continue
    raise AssertionError("256 misses in a row have probability 2^-256")
