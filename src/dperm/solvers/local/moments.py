"""Sketch of monomials of a record in the unit ball, from which a polynomial loss of a linear model is estimated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidInput
from dperm.kernels.reports import monomials
from dperm.solvers.local.sketch import Sketch
from dperm.types import FloatArray, IntArray

__all__ = ["Moments"]


@dataclass(frozen=True)
class Moments(Sketch):
    """Monomials a^m of a record a.

    The person scales the first ``ball`` entries down to the unit ball and clips every entry to its reach. This defines
    what is estimated; privacy rests on the clipping inside the bit alone.

    Parameters
    ----------
    exponents : tuple of tuples of int
        The exponents m of every statistic.
    shares : tuple of float
        How often every statistic is drawn, relative to the others.
    ball : int
        Number of leading entries that share the unit ball.
    reach : tuple of float, optional
        Bound on the magnitude of every entry, at most 1; 1 if not given. Smaller ones narrow the ranges.
    """

    exponents: tuple[tuple[int, ...], ...]
    shares: tuple[float, ...]
    ball: int
    reach: tuple[float, ...] | None = None

    kind: ClassVar[str] = "moments"

    def __post_init__(self) -> None:
        lengths = {len(m) for m in self.exponents}
        whole = all(isinstance(e, int) and e >= 0 for m in self.exponents for e in m)
        if len(lengths) != 1 or not whole or any(sum(m) == 0 for m in self.exponents):
            raise InvalidInput("exponents must be whole numbers >= 0, equally many for every statistic and not all 0.")
        if len(self.shares) != len(self.exponents):
            raise InvalidInput(f"there are {len(self.shares)} shares for {len(self.exponents)} statistics.")
        if not 0 <= self.ball <= lengths.pop():
            raise InvalidInput("ball must not exceed the length of a record.")
        if self._reach.shape != (self.n_columns,) or not ((self._reach > 0.0) & (self._reach <= 1.0)).all():
            raise InvalidInput("reach must hold one number above 0 and at most 1 for every entry of a record.")

    @property
    def n_columns(self) -> int:
        return len(self.exponents[0])

    @property
    def sizes(self) -> IntArray:
        return np.ones(len(self.exponents), np.int64)

    @property
    def weights(self) -> FloatArray:
        return np.asarray(self.shares, np.float64)

    @cached_property
    def high(self) -> FloatArray:
        m = np.asarray(self.exponents, np.float64)
        inside = m.copy()
        inside[:, self.ball :] = 0.0
        # the largest value of a monomial on the ball is taken at a_i^2 = m_i / |m|
        part = inside / np.maximum(inside.sum(axis=1, keepdims=True), 1.0)
        on_ball = np.prod(np.where(inside > 0.0, part, 1.0) ** (inside / 2.0), axis=1)
        on_ball *= np.prod(self._reach[self.ball :] ** m[:, self.ball :], axis=1)
        largest: FloatArray = np.minimum(on_ball, np.prod(self._reach**m, axis=1))
        return largest

    @cached_property
    def _reach(self) -> FloatArray:
        return np.ones(self.n_columns) if self.reach is None else np.asarray(self.reach, np.float64)

    @cached_property
    def low(self) -> FloatArray:
        even = (np.asarray(self.exponents) % 2 == 0).all(axis=1)
        return np.where(even, 0.0, -self.high)

    @cached_property
    def _factors(self) -> IntArray:
        """The columns whose product is each monomial, padded with a column of ones."""
        degree = max(sum(m) for m in self.exponents)
        table = np.full((len(self.exponents), degree), self.n_columns, np.int64)
        for row, m in zip(table, self.exponents, strict=True):
            row[: sum(m)] = np.repeat(np.arange(self.n_columns), m)
        return table

    def evaluate(self, records: NDArray[Any], index: IntArray) -> FloatArray:
        return monomials(records, self.ball, self._reach, self._factors, index)
