"""The logistic function of whole arrays, compiled: the same bits for a number at every position.

The vectorised exponentials of numeric libraries may round differently in the body and in the tail of an array, and
scalar ones cost ten times as much. Here only correctly rounded IEEE operations (+ - * /, fused multiply-add, minimum
and maximum) and a shift of bits are used, so a processor's vector and scalar instructions agree bit for bit. Each fused
operation is requested explicitly: the compiler may not fuse others. Error bound: ``sigmoid.proof.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from dperm.kernels.compiling import kept_njit
from dperm.types import FloatArray

__all__ = ["fma", "logistic_slopes", "sigmoid"]


_FARTHEST = 690.0  # larger arguments are cut here, where the result is below 1e-299 or equal to 1
_PER_LOG_2 = 1.4426950408889634
_LOG_2_HIGH = float.fromhex("0x1.62e42feep-1")  # 33 bits: its product with a whole number below 2^20 is exact
_LOG_2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_WHOLE = 1.5 * 2.0**52  # adding it rounds to a whole number, held in the lowest bits
_ONE = 1023 << 52  # bits of 1.0
# r odd(r^2) / even(r^2) approximates tanh(r / 2): interpolated at the Chebyshev points of the interval, ``even`` monic
_EVEN_0, _EVEN_1 = float.fromhex("0x1.f7ffffffffffep+9"), float.fromhex("0x1.c0000027ae398p+6")
_ODD_0, _ODD_1, _ODD_2 = 504.0, float.fromhex("0x1.c000009eb770bp+3"), float.fromhex("0x1.111103fec2728p-5")


@intrinsic
def _fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), emit


fma: Callable[[float, float, float], float] = _fma  # type: ignore[assignment]  # numba passes the first argument


@njit(error_model="numpy")  # not cached on its own: it would no longer be inlined, and then not vectorised
def sigmoid(z: float) -> float:
    """1 / (1 + exp(-z)) in [0, 1], for use in compiled loops.

    With k whole and r = z + k log 2 in [-log 2 / 2, log 2 / 2], exp(-z) = 2^k exp(-r), and exp(-r) = down(-r) / down(r)
    for a polynomial of degree 5. One division is left in all.
    """
    x = min(max(z, -_FARTHEST), _FARTHEST)
    shifted = fma(x, -_PER_LOG_2, _WHOLE)
    power = np.int64((np.float64(shifted).view(np.int64) << 52) + _ONE).view(np.float64)
    k = shifted - _WHOLE
    r = fma(k, _LOG_2_LOW, fma(k, _LOG_2_HIGH, x))
    square = r * r
    even = fma(square + _EVEN_1, square, _EVEN_0)
    odd = fma(fma(square, _ODD_2, _ODD_1), square, _ODD_0)
    down = fma(odd, r, even)
    return down / fma(fma(odd, -r, even), power, down)


_READ = types.Array(types.float64, 1, "C", readonly=True)


@kept_njit(types.void(_READ, _READ, types.float64[::1]), nogil=True, error_model="numpy")
def _slopes(z: FloatArray, y: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        out[i] = sigmoid(z[i]) - min(max(y[i], 0.0), 1.0)


def logistic_slopes(z: FloatArray, y: FloatArray) -> FloatArray:
    """sigmoid(z) - clip(y, 0, 1), element by element, for arrays of one length."""
    out = np.empty(len(z))
    _slopes(np.require(z, np.float64, ["C", "A"]), np.require(y, np.float64, ["C", "A"]), out)
    return out
