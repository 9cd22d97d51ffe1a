"""Sketch of products of Chebyshev polynomials of a record, the statistics behind smooth queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidInput
from dperm.solvers.local.sketch import Sketch
from dperm.types import FloatArray, IntArray

__all__ = ["Chebyshev"]


@dataclass(frozen=True)
class Chebyshev(Sketch):
    """The products T_r1(x_1) ... T_rd(x_d) of a record clipped to [-1, 1]^d.

    Parameters
    ----------
    degrees : tuple of tuples of int
        The degrees r of every statistic, not all 0.
    shares : tuple of float, optional
        How often every statistic is drawn, relative to the others; evenly if not given.
    """

    degrees: tuple[tuple[int, ...], ...]
    shares: tuple[float, ...] | None = None

    kind: ClassVar[str] = "chebyshev"

    def __post_init__(self) -> None:
        whole = all(isinstance(r, int) and r >= 0 for degree in self.degrees for r in degree)
        if len({len(d) for d in self.degrees}) != 1 or not whole or any(not any(d) for d in self.degrees):
            raise InvalidInput("degrees must be whole numbers >= 0, equally many for every statistic and not all 0.")
        if self.shares is not None and len(self.shares) != len(self.degrees):
            raise InvalidInput(f"there are {len(self.shares)} shares for {len(self.degrees)} statistics.")

    @property
    def n_columns(self) -> int:
        return len(self.degrees[0])

    @property
    def sizes(self) -> IntArray:
        return np.ones(len(self.degrees), np.int64) if self.shares is not None else np.array([len(self.degrees)])

    @property
    def weights(self) -> FloatArray:
        return np.ones(1) if self.shares is None else np.asarray(self.shares, np.float64)

    @property
    def low(self) -> FloatArray:
        return np.broadcast_to(-1.0, self.size)

    @property
    def high(self) -> FloatArray:
        return np.broadcast_to(1.0, self.size)

    @cached_property
    def _degrees(self) -> IntArray:
        return np.asarray(self.degrees, np.int64)

    def evaluate(self, records: NDArray[Any], index: IntArray) -> FloatArray:
        values, degrees = np.ones(len(records)), self._degrees[index]
        for column, degree in zip(np.asarray(records, np.float64).T, degrees.T, strict=True):
            values *= np.cos(degree * np.arccos(np.clip(column, -1.0, 1.0)))
        return values
