"""Tables that are read in blocks of rows: what a fit, a purchase of bounds and a prediction need of them.

A table larger than memory is never held whole. Whoever needs its rows goes through :meth:`RowSource.blocks`, as often
as needed; what is worked out from them are sums of whole numbers, so that the split into blocks does not show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.design.matrix import Scaling, Shape
from dperm.data.tables.frames import boolean_columns, not_finite
from dperm.errors import InvalidData
from dperm.types import BoolArray, FloatArray

__all__ = ["ArrayRows", "RowSource", "row_source", "rows_per_block"]


CHANGED = "X changed while it was read: the number of its rows is another one now."

_BLOCK_BYTES = 1 << 23
_FEWEST_ROWS = 256


def rows_per_block(n_features: int) -> int:
    """Rows of a block: some 8 MB of doubles.

    >>> rows_per_block(100), rows_per_block(10**6)
    (8192, 256)
    """
    fitting = _BLOCK_BYTES // (8 * max(n_features, 1))
    return int(max(_FEWEST_ROWS, 1 << max(fitting.bit_length() - 1, 0)))


class RowSource(ABC):
    """A table of numbers that hands out its rows in blocks.

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

    @abstractmethod
    def _parts(self) -> Iterator[NDArray[Any]]:
        """Rows in their order, in parts of any size, convertible to doubles; a missing value is NaN."""

    def blocks(self) -> Iterator[FloatArray]:
        """Rows in their order, as doubles, in blocks that fit into memory; refuses what is not finite."""
        most, seen = rows_per_block(self.shape[1]), 0
        for part in self._parts():
            seen += len(part)
            for start in range(0, len(part), most):
                block = np.asarray(part[start : start + most], np.float64)
                bad = not_finite(block, self.names)
                if bad is not None:
                    raise InvalidData(bad)
                yield block
        if seen != self.shape[0]:
            raise InvalidData(CHANGED)

    def placed(self, scaling: Scaling, shape: Shape) -> Any:
        """Blocks of the scaled design where the source keeps them itself; None to have them kept on disk here."""
        return None

    def check(self) -> None:
        """Read all rows once, and refuse them if any is not finite."""
        for _ in self.blocks():
            pass


class ArrayRows(RowSource):
    """An array on disk (``numpy.memmap``), of which a few rows at a time are brought into memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.boolean = boolean_columns(array)

    def _parts(self) -> Iterator[NDArray[Any]]:
        most = rows_per_block(self.shape[1])
        for start in range(0, self.shape[0], most):
            yield np.asarray(self._array[start : start + most])


def row_source(X: Any) -> RowSource | None:
    """Return the rows of a table that is to be read in blocks; None for anything else.

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
    return None
