"""Keyed hashes of columns, compiled: sums over rows of a mixed cell, so that neither rows nor columns have an order.

A cell's 64 bits are combined with a key and mixed by the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast
splittable pseudorandom number generators", OOPSLA 2014). The mixed zero is subtracted, so zeros may be left out and the
hash of a sparse column takes the time of its entries. The sums go into sealed sketches only: they must tell columns
apart, and need not withstand anybody who knows the key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.kernels.compiling import kept_njit

__all__ = ["ColumnHashes", "add_dense", "add_sparse"]

Words = NDArray[np.uint64]

_MINUS_ZERO = np.uint64(1 << 63)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _BUCKET, _ONE = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(58), np.uint64(1)
_ZERO = np.uint64(0)
#: rows at a time: a hundred columns of them fit into a processor's cache
_STRIP = 256


class ColumnHashes:
    """The sum of every column modulo 2^64, and which of 64 buckets its values other than zero fall into."""

    def __init__(self, n_columns: int, key: int) -> None:
        self.key = np.uint64(key)
        self.sums: Words = np.zeros(n_columns, np.uint64)
        self.buckets: Words = np.zeros(n_columns, np.uint64)


@kept_njit(nogil=True)
def _mixed(word: Any, key: Any) -> Any:
    x = word ^ key
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@kept_njit(nogil=True)
def _dense(words: Words, key: Any, sums: Words, buckets: Words) -> None:
    at_zero = _mixed(_ZERO, key)
    for start in range(0, words.shape[0], _STRIP):
        stop = min(start + _STRIP, words.shape[0])
        for j in range(words.shape[1]):
            total, seen = sums[j], buckets[j]
            for i in range(start, stop):
                word = words[i, j]
                if word != _ZERO and word != _MINUS_ZERO:
                    mixed = _mixed(word, key)
                    total += mixed - at_zero
                    seen |= _ONE << (mixed >> _BUCKET)
            sums[j], buckets[j] = total, seen


@kept_njit(nogil=True)
def _sparse(words: Words, indices: Any, key: Any, sums: Words, buckets: Words) -> None:
    at_zero = _mixed(_ZERO, key)
    for position in range(len(words)):
        word, j = words[position], indices[position]
        if word != _ZERO and word != _MINUS_ZERO:
            mixed = _mixed(word, key)
            sums[j] += mixed - at_zero
            buckets[j] |= _ONE << (mixed >> _BUCKET)


def add_dense(words: Words, into: ColumnHashes) -> None:
    """Add rows of words, the bits of doubles."""
    _dense(words, into.key, into.sums, into.buckets)


def add_sparse(words: Words, indices: Any, into: ColumnHashes) -> None:
    """Add stored entries by their column; there is at most one for each cell."""
    _sparse(words, indices, into.key, into.sums, into.buckets)
