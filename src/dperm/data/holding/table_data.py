"""A table before its bounds are known: the private data of the queries that buy bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from dperm.data.design.facts import Facts
from dperm.data.tables.row_source import RowSource
from dperm.types import FloatArray, IntArray

__all__ = ["GridCounts", "TableData"]


@dataclass(frozen=True)
class TableData:
    """The user's columns, unscaled: a dense array, a scipy sparse matrix, or rows that are read in blocks.

    Sparse input is kept with one stored entry per cell, because duplicates would count a record several times. ``n`` is
    the public number of records if it differs from the rows of ``X`` (an empty record has no row).
    """

    X: Any = field(repr=False)
    n: int | None = None
    _streamed: dict[bytes, IntArray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if sp.issparse(self.X):
            columns = sp.csc_array(self.X, copy=True)
            columns.sum_duplicates()
            object.__setattr__(self, "X", columns)

    @property
    def facts(self) -> Facts:
        """Public facts: the shape only."""
        n, n_features = self.X.shape
        return Facts(n=n if self.n is None else self.n, n_features=n_features, d=n_features)

    def parts(self, query: Any) -> Iterator[FloatArray]:
        """Yield the one part of a query on this table."""
        yield query.part(self)

    def ranks(self, column: int, grid: FloatArray, *, strict: bool = False) -> FloatArray:
        """Return the number of records whose value is at most (``strict``: below) each point of ``grid``, exact."""
        n = self.X.shape[0]
        if isinstance(self.X, RowSource):
            counts, zeros = self._counts(grid)[int(strict), column], 0
        elif sp.issparse(self.X):
            stored = self.X.data[self.X.indptr[column] : self.X.indptr[column + 1]]
            counts, zeros = _first_above(stored, grid, strict), n - len(stored)
        else:
            counts, zeros = _first_above(np.asarray(self.X[:, column], np.float64), grid, strict), 0
        above_zero = grid > 0.0 if strict else grid >= 0.0
        ranks: FloatArray = np.cumsum(counts) + zeros * above_zero.astype(np.float64)
        return ranks

    def _counts(self, grid: FloatArray) -> IntArray:
        """Return the counts of all columns on a grid; one pass over the rows serves all columns."""
        key = grid.tobytes()
        if key not in self._streamed:
            self._streamed[key] = self.X.added(GridCounts(grid))
        return self._streamed[key]


@dataclass(frozen=True)
class GridCounts:
    """Counts, for every column and both kinds of rank, the values of a block by the first grid point above them."""

    grid: FloatArray

    def __call__(self, block: FloatArray) -> IntArray:
        counts = [[_first_above(column, self.grid, strict) for column in block.T] for strict in (False, True)]
        return np.asarray(counts, np.int64)


def _first_above(values: FloatArray, grid: FloatArray, strict: bool) -> IntArray:
    """Count, for each point of the grid, the values for which it is the first that is not below (``strict``: above)."""
    first = np.searchsorted(grid, values, side="right" if strict else "left")
    return np.bincount(first, minlength=len(grid) + 1)[: len(grid)]
