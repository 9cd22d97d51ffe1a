"""Entries of a design that are mostly one value, its column's implicit one: only the differences are stored.

A dense array that is mostly zeros is stored so as well. How a design is stored depends on private values and must show
in nothing but time: every operation returns the same whole numbers either way, and which algorithm a query takes
follows the type of the user's input, which is public.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dperm.types import FloatArray

__all__ = ["Compressed", "compressed_rows"]


_FEW = 0.25  # up to this share of stored entries compressed rows cost less than dense ones
_CHUNK_ROWS = 4096
_KEPT_COLUMNS = 2


class Compressed:
    """A sparse matrix of whole numbers, by row or by column, whatever is asked for.

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
        self.few = bool(matrix.nnz <= _FEW * self.shape[0] * self.shape[1])

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
        """The matrix as CSC; who reads columns seldom reads rows again, so this replaces the other form."""
        if self._columns is None:
            self._columns, self._rows = self._rows.tocsc(), None
        return self._columns

    @property
    def either(self) -> Any:
        """The matrix in the form at hand."""
        return self._columns if self._rows is None else self._rows

    @property
    def transposed(self) -> Any:
        """The same transposed, kept with the form it is a view of: scipy takes its time to make one."""
        matrix = self.either
        if self._transposed is None or self._transposed[0] is not matrix:
            self._transposed = matrix, matrix.T
        return self._transposed[1]

    def take(self, rows: NDArray[np.intp]) -> Compressed:
        """Return some of the rows."""
        return Compressed(self.by_row[rows])

    def column(self, number: int) -> tuple[NDArray[np.intp], FloatArray]:
        """Rows with a stored entry in a column, and the entries."""
        columns = self.by_column
        part = slice(columns.indptr[number], columns.indptr[number + 1])
        return columns.indices[part], columns.data[part]

    def full_column(self, number: int, implicit: float) -> FloatArray:
        """One entry for every row; the last ones are kept, as coordinate descent asks for a column twice."""
        if number not in self._full:
            rows, entries = self.column(number)
            full = np.full(self.shape[0], implicit)
            full[rows] += entries
            while len(self._full) >= _KEPT_COLUMNS:
                del self._full[next(iter(self._full))]
            self._full[number] = full
        return self._full[number]


def compressed_rows(X: NDArray[Any]) -> Any:
    """Return a dense array that is mostly zeros as CSR in doubles, and None as soon as it turns out not to be."""
    from dperm.kernels.rows import compress  # compiled: only when needed

    n, p = X.shape
    room = int(_FEW * n * p) + p
    entries, columns = np.empty(room), np.empty(room, np.int32)  # memory that is not used is never claimed
    ends = np.zeros(n + 1, np.int32 if room < 2**31 else np.int64)
    found = 0
    for start in range(0, n, _CHUNK_ROWS):
        block = np.ascontiguousarray(X[start : start + _CHUNK_ROWS], np.float64)
        found = compress(block, found, ends[start + 1 : start + 1 + len(block)], columns, entries)
        if found < 0:
            return None
    return sp.csr_array((entries[:found].copy(), columns[:found].copy(), ends), shape=(n, p))
