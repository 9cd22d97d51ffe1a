"""A raw table before bounds are known: the private data of the queries that buy bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dperm.data.facts import Facts

__all__ = ["TableData"]


@dataclass(frozen=True)
class TableData:
    """The user's own columns, unscaled; dense array or scipy sparse.

    Sparse input is kept with one stored entry per cell: a record stored in pieces would count several times.
    ``n`` is the public number of records where it differs from the rows of ``X`` (one of them is empty).
    """

    X: Any = field(repr=False)
    n: int | None = None

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

    def ranks(self, column: int, grid: NDArray[np.float64], *, strict: bool = False) -> NDArray[np.float64]:
        """Number of records whose value is at most (``strict``: below) each point of ``grid``, exact."""
        n = self.X.shape[0]
        if sp.issparse(self.X):
            stored = self.X.data[self.X.indptr[column] : self.X.indptr[column + 1]]
            zeros = n - len(stored)
        else:
            stored, zeros = np.asarray(self.X[:, column], np.float64), 0
        first = np.searchsorted(grid, stored, side="right" if strict else "left")
        counts = np.bincount(first, minlength=len(grid) + 1)[: len(grid)]
        above_zero = grid > 0.0 if strict else grid >= 0.0
        ranks: NDArray[np.float64] = np.cumsum(counts) + zeros * above_zero.astype(np.float64)
        return ranks
