"""Sparse storage of a design: each column has an implicit value, and only differences from it are stored.

Dense arrays that are mostly zeros are stored in this way too. The storage depends on private values, so it may affect
nothing but running time: every operation returns the same whole numbers with either storage, and the choice of
algorithm depends on the type of the user's input, which is public.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.types import FloatArray

__all__ = ["MOST_STORED", "Compressed"]

#: up to this share of stored entries, loops over compressed rows cost less than loops over dense ones
MOST_STORED = 0.25
_KEPT_COLUMNS = 2


class Compressed:
    """A sparse matrix of whole numbers, available by row and by column.

    Parameters
    ----------
    matrix : scipy sparse array
        CSR or CSC, one entry per cell.
    """

    def __init__(self, matrix: Any) -> None:
        self._rows: Any = matrix if matrix.format == "csr" else None
        self._columns: Any = None if matrix.format == "csr" else matrix
        self._transposed: tuple[Any, Any] | None = None
        self._full: dict[int, FloatArray] = {}
        self.shape: tuple[int, int] = matrix.shape
        self.mostly_implicit = bool(matrix.nnz <= MOST_STORED * self.shape[0] * self.shape[1])

    @property
    def by_row(self) -> Any:
        """The matrix as CSR with sorted indices, kept beside the other form."""
        if self._rows is None:
            self._rows = self._columns.tocsr()
        if not self._rows.has_sorted_indices:
            self._rows.sort_indices()
        return self._rows

    @property
    def by_column(self) -> Any:
        """The matrix as CSC; it replaces the CSR form, as solvers that read columns seldom read rows again."""
        if self._columns is None:
            self._columns, self._rows = self._rows.tocsc(), None
        return self._columns

    @property
    def any_format(self) -> Any:
        """The matrix in the form that exists already."""
        return self._columns if self._rows is None else self._rows

    @property
    def transposed(self) -> Any:
        """The transposed matrix, kept with the form it is a view of, because scipy is slow to create one."""
        matrix = self.any_format
        if self._transposed is None or self._transposed[0] is not matrix:
            self._transposed = matrix, matrix.T
        return self._transposed[1]

    def take(self, rows: NDArray[np.intp]) -> Compressed:
        """Return some of the rows."""
        return Compressed(self.by_row[rows])

    def some_columns(self, columns: NDArray[np.intp]) -> Compressed:
        """Return some of the columns."""
        return Compressed(self.by_column[:, columns])

    def scores(self, weights: FloatArray, start: Any) -> FloatArray:
        """Return ``start`` plus row times weights; shape (n,) or (n, K)."""
        out = np.asarray(self.any_format @ weights)
        out += start
        return out

    def sums(self, row_steps: FloatArray) -> FloatArray:
        """Return the sum over rows of row times ``row_steps``; shape (p,) or (p, K)."""
        total: FloatArray = self.transposed @ row_steps
        return total

    def column(self, number: int) -> tuple[NDArray[np.intp], FloatArray]:
        """Return the rows with a stored entry in a column, and the entries."""
        columns = self.by_column
        part = slice(columns.indptr[number], columns.indptr[number + 1])
        return columns.indices[part], columns.data[part]

    def full_column(self, number: int, implicit: float) -> FloatArray:
        """Return one entry per row; the latest columns are kept, as coordinate descent reads a column twice."""
        if number not in self._full:
            rows, entries = self.column(number)
            full = np.full(self.shape[0], implicit)
            full[rows] += entries
            while len(self._full) >= _KEPT_COLUMNS:
                del self._full[next(iter(self._full))]
            self._full[number] = full
        return self._full[number]
