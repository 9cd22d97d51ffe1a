"""Exact samples of floor(scale X), X Gaussian or Laplace, by integer comparisons alone.

No logarithm, no exponential, no rounding: uniform numbers are lazily extended digit strings that are only compared
(von Neumann's method for exp(-x); Karney 2016, "Sampling exactly from the normal distribution", arXiv 1303.6257, for
the Gaussian). Slow, and independent of the platform's elementary functions.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dperm.privacy.randomness import RandomSource

__all__ = ["gaussian_cell", "laplace_cell"]


class _Uniform:
    """A uniform number in (0, 1) whose binary digits are drawn when a comparison needs them."""

    __slots__ = ("bits", "digits", "source")

    def __init__(self, source: RandomSource) -> None:
        self.source = source
        self.digits = source.word()
        self.bits = 64

    def extend(self) -> None:
        self.digits = (self.digits << 64) | self.source.word()
        self.bits += 64

    def __lt__(self, other: _Uniform) -> bool:
        while True:
            while self.bits < other.bits:
                self.extend()
            while other.bits < self.bits:
                other.extend()
            if self.digits != other.digits:
                return self.digits < other.digits
            self.extend()


def _exp_minus_half(source: RandomSource) -> bool:
    """True with probability exp(-1/2)."""
    # von Neumann: the run 1/2 > u1 > u2 > ... has even length with probability exp(-1/2)
    last = _Uniform(source)
    if last.digits >> (last.bits - 1):
        return True
    even = False
    while True:
        new = _Uniform(source)
        if not new < last:
            return even
        last, even = new, not even


def _below_exp_product(k: int, x: _Uniform, source: RandomSource) -> bool:
    """True with probability exp(-x (2k + x) / (2k + 2)): Karney's step that makes the Gaussian shape."""
    last, n = x, 0
    while True:
        new = _Uniform(source)
        if not new < last:
            break
        # continue with probability (2k + x) / (2k + 2)
        pick = source.below(2 * k + 2)
        if pick > 2 * k:
            break
        if pick == 2 * k and not _Uniform(source) < x:
            break
        last, n = new, n + 1
    return n % 2 == 0


def _half_gaussian(source: RandomSource) -> tuple[int, _Uniform]:
    """Return the whole part and the fraction of |X|, X standard Gaussian."""
    while True:
        k = 0
        while _exp_minus_half(source):
            k += 1
        if not all(_exp_minus_half(source) for _ in range(k * (k - 1))):
            continue
        x = _Uniform(source)
        if all(_below_exp_product(k, x, source) for _ in range(k + 1)):
            return k, x


def _exponential(source: RandomSource) -> tuple[int, _Uniform]:
    """Return the whole part and the fraction of a standard exponential variable (von Neumann)."""
    whole = 0
    while True:
        first = _Uniform(source)
        last, accepted = first, True
        while True:
            new = _Uniform(source)
            if not new < last:
                break
            last, accepted = new, not accepted
        if accepted:
            return whole, first
        whole += 1


def _signed_cell(whole: int, fraction: _Uniform, scale: float, source: RandomSource) -> int:
    exact = Fraction(scale)
    while True:
        low = Fraction((whole << fraction.bits) + fraction.digits, 1 << fraction.bits) * exact
        high = low + exact / (1 << fraction.bits)
        cell = math.floor(low)
        if high <= cell + 1:
            break
        fraction.extend()
    return -cell - 1 if source.word() & 1 else cell


def gaussian_cell(scale: float, source: RandomSource) -> int:
    """Return floor(scale * X) with X exactly standard Gaussian."""
    return _signed_cell(*_half_gaussian(source), scale, source)


def laplace_cell(scale: float, source: RandomSource) -> int:
    """Return floor(scale * X) with X exactly standard Laplace."""
    return _signed_cell(*_exponential(source), scale, source)
