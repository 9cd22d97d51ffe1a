"""Values that people report in the local model, compiled: each depends on that person's own record alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dperm.kernels.compiling import kept_njit
from dperm.types import FloatArray, IntArray

__all__ = ["monomials", "parities"]


@kept_njit(nogil=True)
def monomials(
    records: NDArray[np.generic], ball: int, reach: FloatArray, factors: IntArray, index: IntArray
) -> FloatArray:
    """Product of the entries ``factors[index[i]]`` of everybody's record.

    The first ``ball`` entries are scaled down to the unit ball, and every entry is clipped to its ``reach``. A factor
    equal to the length of a record counts as 1.
    """
    n, width = records.shape
    out = np.empty(n)
    for i in range(n):
        longest = 1.0
        for j in range(ball):
            longest = max(longest, abs(float(records[i, j])))
        total = 0.0
        for j in range(ball):  # divided by the largest entry first: the square of a huge one would overflow
            part = float(records[i, j]) / longest
            total += part * part
        length = max(longest * np.sqrt(total), 1.0)
        value = 1.0
        for k in range(factors.shape[1]):
            j = factors[index[i], k]
            if j < width:
                entry = float(records[i, j])
                if j < ball:
                    entry /= length
                value *= min(max(entry, -reach[j]), reach[j])
        out[i] = value
    return out


@kept_njit(nogil=True)
def parities(records: NDArray[np.generic], masks: IntArray, index: IntArray) -> FloatArray:
    """1 or -1 for an even or odd number of entries above 1/2 in the set ``masks[index[i]]`` of everybody's record."""
    n, width = records.shape
    out = np.empty(n)
    for i in range(n):
        mask, odd = masks[index[i]], False
        for j in range(width):
            if (mask >> j) & 1 and records[i, j] > 0.5:
                odd = not odd
        out[i] = -1.0 if odd else 1.0
    return out
