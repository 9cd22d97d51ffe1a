"""Tables that are read in blocks of rows: base class and the choice of a reader.

A table larger than memory is never held whole. Fits, purchases of bounds and predictions read its rows through
:meth:`RowSource.blocks`, as often as needed. They compute sums of whole numbers, so the split into blocks has no effect
on the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.tables.frames import boolean_columns, non_finite_message
from dperm.errors import InvalidData
from dperm.types import BoolArray, FloatArray, IntArray

__all__ = ["ROWS_CHANGED", "ArrayRows", "RowSource", "row_source", "rows_per_block"]


ROWS_CHANGED = "X changed while it was read: its rows, or their number, are different now."

BLOCK_BYTES = 1 << 23  # small next to memory, large next to the cost of a Python call per block
_FEWEST_ROWS = 256


def rows_per_block(n_features: int) -> int:
    """Number of rows in a block of about 8 MB of doubles, a power of two.

    >>> rows_per_block(100), rows_per_block(10**6)
    (8192, 256)
    """
    fitting = BLOCK_BYTES // (8 * max(n_features, 1))
    return int(max(_FEWEST_ROWS, 1 << max(fitting.bit_length() - 1, 0)))


class RowSource(ABC):
    """A table of numbers that is read in blocks of rows.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns; public.
    names : list of str or None
        Names of the columns; public.
    boolean : array of bool or None
        Which columns are of type bool, None if none is; public.
    """

    shape: tuple[int, int]
    names: list[str] | None = None
    boolean: BoolArray | None = None

    @property
    def on_cluster(self) -> bool:
        """Whether the rows are on a cluster and stay there."""
        return False

    @abstractmethod
    def _parts(self) -> Iterator[NDArray[Any]]:
        """Yield the rows in order, in parts of any size, convertible to doubles; a missing value is NaN."""

    def blocks(self) -> Iterator[FloatArray]:
        """Yield the rows in order as doubles, in blocks that fit into memory; non-finite values are refused."""
        most, seen = rows_per_block(self.shape[1]), 0
        for part in self._parts():
            seen += len(part)
            for start in range(0, len(part), most):
                block = np.asarray(part[start : start + most], np.float64)
                problem = non_finite_message(block, self.names)
                if problem is not None:
                    raise InvalidData(problem)
                yield block
        if seen != self.shape[0]:
            raise InvalidData(ROWS_CHANGED)

    def added(self, count: Callable[[FloatArray], IntArray]) -> IntArray:
        """Return the sum over all blocks of whole numbers that are counted in each, where its rows are."""
        total: IntArray | None = None
        for block in self.blocks():
            here = count(block)
            total = here if total is None else total + here
        assert total is not None  # no table is empty
        return total

    def check(self) -> None:
        """Read all rows once; values that are not finite are refused."""
        for _ in self.blocks():
            pass

    def check_with(self, target: Any) -> None:
        """Do the same, and refuse unusable targets on a cluster that were not checked yet."""
        self.check()

    def confirm(self) -> None:  # noqa: B027  # most sources read rows and targets together, or have targets in memory
        """Refuse rows that are others when they are read again, where that has to be known; before any reservation."""


class ArrayRows(RowSource):
    """An array on disk (``numpy.memmap``), read a few rows at a time."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.boolean = boolean_columns(array)

    def _parts(self) -> Iterator[NDArray[Any]]:
        most = rows_per_block(self.shape[1])
        for start in range(0, self.shape[0], most):
            yield np.asarray(self._array[start : start + most])


def row_source(X: Any, names: Iterable[str] | None = None) -> RowSource | None:
    """Return a reader for a table that is read in blocks of rows; None for any other table.

    ``names`` are the columns of a fit. A Spark DataFrame is read by them, because its target is a column too; of any
    other table all columns are read.

    >>> row_source(np.zeros((3, 2))) is None
    True
    """
    if isinstance(X, RowSource):
        return X
    if isinstance(X, np.memmap) and X.ndim == 2 and X.dtype.kind in "biuf":
        return ArrayRows(X)
    if type(X).__module__.partition(".")[0] == "dask":
        from dperm.data.tables.dask_rows import dask_rows  # dask is loaded already

        return dask_rows(X)
    if type(X).__module__.partition(".")[0] == "pyspark":
        from dperm.data.tables.spark_rows import spark_rows  # pyspark is loaded already

        return spark_rows(X, names)
    return None
