"""A raw table before bounds are known: the private data of the queries that buy bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dperm.data.facts import Facts

__all__ = ["TableData"]


@dataclass(frozen=True)
class TableData:
    """The user's own columns, unscaled; dense array or scipy CSC.

    ``n`` is the public number of records where it differs from the rows of ``X`` (one of them is empty).
    """

    X: Any
    n: int | None = None

    @property
    def facts(self) -> Facts:
        """Public facts: the shape only."""
        n, n_features = self.X.shape
        return Facts(n=n if self.n is None else self.n, n_features=n_features, d=n_features)

    def ranks(self, column: int, grid: NDArray[np.float64]) -> NDArray[np.float64]:
        """Number of records whose value is at most each point of ``grid``, exact."""
        n = self.X.shape[0]
        if sp.issparse(self.X):
            stored = self.X.data[self.X.indptr[column] : self.X.indptr[column + 1]]
            zeros = n - len(stored)
        else:
            stored, zeros = np.asarray(self.X[:, column], np.float64), 0
        first = np.searchsorted(grid, stored, side="left")
        counts = np.bincount(first, minlength=len(grid) + 1)[: len(grid)]
        ranks: NDArray[np.float64] = np.cumsum(counts) + zeros * (grid >= 0.0).astype(np.float64)
        return ranks
