"""Which lattice cell a continuous noise sample falls into, decided in double precision where that is safe.

``word`` is a uniform 64-bit integer: its lowest bit is the sign, the other 63 bits give the first digits of the tail
probability p in (0, 1/2). The sample's magnitude is z = tail^-1(p), its cell floor(scale * z). Double arithmetic only
filters: an interval that certainly contains the true z is computed, and a draw is reported as undecided when the
interval crosses a cell boundary. The caller decides such draws with more digits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dperm.types import BoolArray, IntArray

__all__ = ["LIBM_ERROR", "filtered_cell", "filtered_cells"]

# Assumed bound on |computed - true| / (1 + z) for -ndtri(p) and -log(2p), rounding of p included. The tests measure
# the real error on the platform they run on: about 1e-15.
LIBM_ERROR = 2e-13

_SMALLEST = 1024  # below this the 63 digits determine p too coarsely: always undecided
_ROOT_2PI = math.sqrt(2.0 * math.pi)


def filtered_cell(word: int, scale: float, kind: str) -> tuple[int, bool]:
    """Cell of one magnitude, and whether it is decided: :func:`filtered_cells` without the cost of arrays."""
    digits = word >> 1
    p = (digits + 0.5) * 2.0**-64
    if kind == "gaussian":
        z = -float(special.ndtri(p))
        density = math.exp(-0.5 * z * z) / _ROOT_2PI
    else:
        z = -math.log(2.0 * p)
        density = p
    reach = LIBM_ERROR * (1.0 + z) + 2.0**-64 / max(density, 1e-300)
    low, high = math.floor((z - reach) * scale), math.floor((z + reach) * scale)
    return max(low, 0), low == high and low >= 0 and digits >= _SMALLEST


def filtered_cells(words: NDArray[np.uint64], scale: float, kind: str) -> tuple[IntArray, BoolArray, NDArray[np.intp]]:
    """Return cells of the magnitudes, signs, and the positions of undecided draws (their cells are guesses).

    ``kind`` is ``"gaussian"`` or ``"laplace"`` (unit scale).
    """
    negative = (words & np.uint64(1)).astype(np.bool_)
    digits = words >> np.uint64(1)
    p = (digits.astype(np.float64) + 0.5) * 2.0**-64
    if kind == "gaussian":
        z = -special.ndtri(p)
        density = np.exp(-0.5 * z * z) / _ROOT_2PI
    else:
        z = -np.log(2.0 * p)
        density = p
    # half a digit of p moves z by 2^-65 / density; twice that covers the density's own change and rounding
    half = 2.0**-64 / np.maximum(density, 1e-300)
    reach = LIBM_ERROR * (1.0 + z) + half
    low = np.floor((z - reach) * scale)
    high = np.floor((z + reach) * scale)
    undecided = np.flatnonzero((low != high) | (low < 0.0) | (digits < _SMALLEST))
    return np.maximum(low, 0.0).astype(np.int64), negative, undecided
