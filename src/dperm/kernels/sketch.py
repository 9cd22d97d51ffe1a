"""Random signs and normal numbers that everyone can derive from a public seed, and sums with them.

They are public, so they give no protection. They come from a hash, so every participant derives the same ones on every
machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from dperm.types import FloatArray

__all__ = ["NORMAL_BITS", "normal_steps", "sign_rows", "sketched", "spread_back"]


_ROWS = 16

#: a normal number of :func:`normal_steps` is below 2^3, since it comes from 32 bits
NORMAL_BITS = 3


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


@lru_cache(maxsize=1)  # a run asks for the same large matrix in every step
def normal_steps(seed: str, n_rows: int, n: int, bits: int) -> FloatArray:
    """Standard normal numbers in whole steps of 2^-bits, n_rows x n; read only."""
    out = np.empty((n_rows, n))
    for k in range(n_rows):
        drawn = np.frombuffer(hashlib.shake_256(f"{seed}/normal/{k}".encode()).digest(4 * n), np.uint32)
        out[k] = np.rint(np.ldexp(ndtri((drawn + 0.5) * 2.0**-32), bits))
    out.flags.writeable = False
    return out
