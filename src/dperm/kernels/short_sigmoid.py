"""The logistic function in single precision, compiled: for slopes on grids of at most 22 bits.

Sums over many rows leave few bits to a slope, and twice as many single-precision numbers fit into a processor's vector.
As in :mod:`dperm.kernels.sigmoid` only correctly rounded operations are used, so a number's result does not depend on
its position. Error bound: ``sigmoid.proof.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

__all__ = ["short_fma", "short_sigmoid"]

_FARTHEST = np.float32(80.0)  # larger arguments are cut here, where the result is below 1e-34 or equal to 1
_PER_LOG_2 = np.float32(-1.4426950408889634)
_LOG_2_HIGH = np.float32(float.fromhex("0x1.62e4p-1"))  # 15 bits: its product with a whole number below 2^8 is exact
_LOG_2_LOW = np.float32(0.6931471805599453 - float.fromhex("0x1.62e4p-1"))
_WHOLE = np.float32(1.5 * 2.0**23)  # adding it rounds to a whole number, held in the lowest bits
_ONE = np.int32(127 << 23)  # bits of 1.0
# coefficients of the (3, 3) Pade approximant of exp
_EVEN_0, _EVEN_1, _ODD_0 = np.float32(120.0), np.float32(12.0), np.float32(60.0)


@intrinsic
def _short_fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c in single precision, rounded once."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), emit


short_fma: Callable[[Any, Any, Any], Any] = _short_fma  # type: ignore[assignment]  # numba passes the first argument


@njit(error_model="numpy")  # not cached on its own: it would no longer be inlined, and then not vectorised
def short_sigmoid(z: Any) -> Any:
    """1 / (1 + exp(-z)) in [0, 1] for a float32, for use in compiled loops."""
    x = min(max(z, -_FARTHEST), _FARTHEST)
    shifted = short_fma(x, _PER_LOG_2, _WHOLE)
    power = np.int32((np.float32(shifted).view(np.int32) << np.int32(23)) + _ONE).view(np.float32)
    k = shifted - _WHOLE
    r = short_fma(k, _LOG_2_LOW, short_fma(k, _LOG_2_HIGH, x))
    square = r * r
    even = short_fma(square, _EVEN_1, _EVEN_0)
    odd = square + _ODD_0
    down = short_fma(odd, r, even)
    return down / short_fma(short_fma(odd, -r, even), power, down)
