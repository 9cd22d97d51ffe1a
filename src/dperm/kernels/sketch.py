"""Random signs that everyone can derive from a public seed, and sums with them.

The signs are public, so they give no protection. They come from a hash, so every participant derives the same ones on
every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from dperm.types import FloatArray

__all__ = ["sign_rows", "sketched", "spread_back"]


_ROWS = 16


def sign_rows(seed: str, n_rows: int, n: int) -> Iterator[tuple[slice, FloatArray]]:
    """Blocks of rows of an n_rows x n matrix of signs."""
    for start in range(0, n_rows, _ROWS):
        part = slice(start, min(start + _ROWS, n_rows))
        packed = [hashlib.shake_256(f"{seed}/{k}".encode()).digest(-(-n // 8)) for k in range(part.start, part.stop)]
        bits = np.unpackbits(np.frombuffer(b"".join(packed), np.uint8).reshape(len(packed), -1), axis=1, count=n)
        signs: FloatArray = 2.0 * bits.astype(np.float64) - 1.0
        yield part, signs


def sketched(seed: str, n_rows: int, values: FloatArray) -> FloatArray:
    """Signs times values; exact for whole numbers whose sum of sizes stays below 2^53.

    >>> sketched("any", 3, np.zeros(5)).tolist()
    [0.0, 0.0, 0.0]
    """
    out = np.empty(n_rows)
    for part, signs in sign_rows(seed, n_rows, len(values)):
        out[part] = signs @ values
    return out


def spread_back(seed: str, n: int, sketch: FloatArray) -> FloatArray:
    """Transposed signs times a sketch, divided by its length: an estimate of the sketched values."""
    out = np.zeros(n)
    for part, signs in sign_rows(seed, len(sketch), n):
        out += signs.T @ sketch[part]
    return out / len(sketch)
