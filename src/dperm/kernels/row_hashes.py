"""Keyed hashes of rows, compiled: four sums per row, modulo 2^64, of products of 32-bit halves of its cells.

The sum is NH (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC", CRYPTO 1999): with the two halves ``low``, ``high``
of a cell and two 32-bit keys ``a``, ``b`` of its column, it adds ``(low + a mod 2^32) (high + b mod 2^32) - a b``. The
last term makes a cell of zero bits add nothing, so zeros may be left out and the hash of a sparse row takes the time of
its entries. Two different rows have equal sums with probability at most 2^-32 over the keys, for each of the four sums
independently. All arithmetic is exact, so storage, order of columns in memory and blocks change no bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.kernels.compiling import kept_njit

__all__ = ["N_SUMS", "dense_sums", "sparse_sums"]

#: sums per row; each needs two keys per column
N_SUMS = 4

Words = NDArray[np.uint64]
Keys = NDArray[np.uint32]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MINUS_ZERO = np.uint64(1 << 63)


@kept_njit(nogil=True)
def _dense(words: Words, keys: Keys, at_zero: Words, out: Words) -> None:
    n, d = words.shape
    for i in range(n):
        row = words[i]
        for s in range(out.shape[1]):
            a, b = keys[2 * s], keys[2 * s + 1]
            total = np.uint64(0)
            for j in range(d):
                word = row[j] if row[j] != _MINUS_ZERO else np.uint64(0)
                total += (((word & _LOW) + a[j]) & _LOW) * (((word >> _HALF) + b[j]) & _LOW)
            out[i, s] = total - at_zero[s]


@kept_njit(nogil=True)
def _sparse(words: Words, indices: Any, indptr: Any, keys: Keys, out: Words) -> None:
    for i in range(out.shape[0]):
        for s in range(out.shape[1]):
            out[i, s] = np.uint64(0)
        for position in range(indptr[i], indptr[i + 1]):
            word, key = words[position], keys[indices[position]]
            if word == _MINUS_ZERO:
                continue
            low, high = word & _LOW, word >> _HALF
            for s in range(out.shape[1]):
                a, b = np.uint64(key[2 * s]), np.uint64(key[2 * s + 1])
                out[i, s] += ((low + a) & _LOW) * ((high + b) & _LOW) - a * b


def dense_sums(words: Words, keys: Keys) -> Words:
    """Return the sums of every row of ``words``, the bits of doubles; ``keys`` has one line per column.

    >>> keys = np.arange(16, dtype=np.uint32).reshape(2, 8)
    >>> dense_sums(np.zeros((1, 2), np.uint64), keys).tolist()
    [[0, 0, 0, 0]]
    """
    by_key = np.ascontiguousarray(keys.T)
    at_zero = (by_key[0::2].astype(np.uint64) * by_key[1::2]).sum(axis=1, dtype=np.uint64)
    out = np.empty((len(words), N_SUMS), np.uint64)
    _dense(words, by_key, at_zero, out)
    return out


def sparse_sums(words: Words, indices: Any, indptr: Any, keys: Keys) -> Words:
    """Return the same sums for compressed rows with at most one stored entry per cell."""
    out = np.empty((len(indptr) - 1, N_SUMS), np.uint64)
    _sparse(words, indices, indptr, keys, out)
    return out
