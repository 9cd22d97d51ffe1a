"""Sums that are the same in any order: integers held in doubles.

Floating-point sums change with the order of the rows, the number of threads and the split into chunks, so a person's
influence on a gradient would not stop at the person's own summand. Here every factor is first rounded to a
power-of-two grid, few enough bits that every partial sum is an integer below 2^53. Doubles then add and multiply them
without any rounding: exact in every order, with or without fused multiply-add. See ``exact.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dperm.errors import InvalidInput
from dperm.types import FloatArray

__all__ = ["Grids", "power_of_two_above", "toward_zero", "weights_on_grid"]


def power_of_two_above(value: float) -> float:
    """Smallest power of two that is at least ``value > 0``.

    >>> power_of_two_above(0.3), power_of_two_above(2.0)
    (0.5, 2.0)
    """
    mantissa, exponent = math.frexp(value)
    if not value < 2.0**1023:
        raise InvalidInput("a number of 2^1023 or more has no power-of-two grid.")
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def _bits(count: int) -> int:
    """Bits needed to count up to ``count`` (2^bits >= count)."""
    return max(0, (count - 1).bit_length())


@dataclass(frozen=True)
class Grids:
    """How many bits a value, a slope and a weight may have for ``n`` rows and ``d`` columns.

    ``value_bits + slope_bits + log2 n <= 52`` (sums over rows), ``value_bits + weight_bits + log2 d <= 52`` (sums over
    columns) and ``2 value_bits + 2 + log2 d <= 53`` (squared row norms); one spare bit is for values stored as the
    difference to a column's implicit entry, which are up to twice as large.
    """

    n: int
    d: int

    @cached_property
    def value_bits(self) -> int:
        return max(1, min(18, (51 - _bits(self.d)) // 2, (52 - _bits(self.n)) // 2))

    @cached_property
    def slope_bits(self) -> int:
        return max(1, 52 - _bits(self.n) - self.value_bits)

    @cached_property
    def weight_bits(self) -> int:
        return max(1, 52 - _bits(self.d) - self.value_bits)

    @property
    def gram_bits(self) -> int:
        """Bits of a value in a matrix of second moments: 2 gram_bits + log2 n <= 52."""
        return max(1, (52 - _bits(self.n)) // 2)

    def count_spacing(self, bound: float) -> float:
        """Grid on which the sum of one number up to ``bound`` for each row is exact: 52 bits less log2 n."""
        return self.spacing(bound, max(1, 52 - _bits(self.n)))

    def spacing(self, bound: float, bits: int) -> float:
        """Grid on which numbers up to ``bound`` take at most ``bits`` bits."""
        return math.ldexp(power_of_two_above(bound), -bits)


def toward_zero(values: FloatArray, spacing: float) -> FloatArray:
    """Integers ``values / spacing`` rounded toward zero, so that no magnitude and no norm grows."""
    out: FloatArray = np.trunc(values / spacing)
    return out


def weights_on_grid(weights: FloatArray, bits: int, box: float | None = None) -> tuple[FloatArray, float]:
    """Return weights as integers of at most ``bits`` bits, and their grid spacing.

    The grid follows the largest weight (weights are public), or the public ``box`` where one grid must serve a whole
    run; weights outside the box are clipped to it.
    """
    largest = float(np.abs(weights).max(initial=0.0)) if box is None else box
    if largest == 0.0:
        return np.zeros_like(weights), 1.0
    spacing = math.ldexp(power_of_two_above(largest), -bits)
    if spacing == 0.0:  # weights near the smallest double have no finer grid: they are rounded to zero
        return np.zeros_like(weights), 1.0
    clipped = weights if box is None else np.clip(weights, -box, box)
    rounded: FloatArray = np.rint(clipped / spacing)
    return rounded, spacing
