"""Sketch of parities of a record's bits, from which k-way marginals are estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dperm.errors import InvalidInput
from dperm.kernels.reports import parities
from dperm.solvers.local.sketch import Sketch
from dperm.types import FloatArray, IntArray

__all__ = ["Parity"]


@dataclass(frozen=True)
class Parity(Sketch):
    """The parities chi_T(x) = (-1)^(number of ones of x in T) of all sets T of 1 to m of the bits of a record.

    An entry counts as one if it is above 1/2.

    Parameters
    ----------
    n_bits : int
        Number of bits of a record, 62 at most.
    levels : tuple of float
        How often a set of 1, 2, ..., m bits is drawn, relative to the others.
    """

    n_bits: int
    levels: tuple[float, ...]

    kind: ClassVar[str] = "parity"

    def __post_init__(self) -> None:
        if not 1 <= self.n_bits <= 62:
            raise InvalidInput(f"n_bits must be between 1 and 62, not {self.n_bits!r}.")
        if not 1 <= len(self.levels) <= self.n_bits:
            raise InvalidInput("levels must have between 1 and n_bits entries.")
        if int(self.sizes.sum()) > 1 << 24:
            raise InvalidInput("there would be more than 16 million parities: use fewer levels.")

    @property
    def n_columns(self) -> int:
        return self.n_bits

    @property
    def sizes(self) -> IntArray:
        return np.array([math.comb(self.n_bits, r) for r in range(1, len(self.levels) + 1)], np.int64)

    @property
    def weights(self) -> FloatArray:
        return np.asarray(self.levels, np.float64)

    @property
    def low(self) -> FloatArray:
        return np.broadcast_to(-1.0, self.size)

    @property
    def high(self) -> FloatArray:
        return np.broadcast_to(1.0, self.size)

    @cached_property
    def masks(self) -> IntArray:
        """The set T of every statistic, as the bits of a whole number; level by level, in increasing order."""
        levels = []
        for r in range(1, len(self.levels) + 1):
            members = chain.from_iterable(combinations(range(self.n_bits), r))
            chosen = np.fromiter(members, np.int64, r * math.comb(self.n_bits, r)).reshape(-1, r)
            levels.append(np.sort((np.int64(1) << chosen).sum(axis=1)))
        return np.concatenate(levels)

    def find(self, masks: ArrayLike, level: int) -> IntArray:
        """Return the indices of the statistics with these sets of ``level`` bits."""
        start = int(self.sizes[: level - 1].sum())
        block = self.masks[start : start + int(self.sizes[level - 1])]
        return start + np.searchsorted(block, np.asarray(masks, np.int64))

    def evaluate(self, records: NDArray[Any], index: IntArray) -> FloatArray:
        return parities(records, self.masks, index)
