"""Dask arrays and dataframes, read in blocks of rows.

Without a cluster the partitions are computed one after the other, and the scaled rows are kept on local disk. With a
``dask.distributed`` client each partition is scaled on its worker and stays there (``design/dask_blocks.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.tables.frames import boolean_columns, plain_matrix, require_numeric_types
from dperm.data.tables.row_source import ROWS_CHANGED, RowSource
from dperm.errors import InvalidData

__all__ = ["DaskRows", "dask_rows", "partition_matrix", "without_values"]

T = TypeVar("T")

_NOT_NUMBERS = "X must hold numbers only, and one of its partitions could not be computed or converted to numbers."


def dask_rows(X: Any) -> DaskRows:
    """Return the rows of a Dask array or dataframe."""
    if hasattr(X, "to_delayed") and getattr(X, "ndim", 0) == 2:
        return DaskRows(X)
    raise InvalidData("X must be a two-dimensional Dask array or a Dask dataframe.")


class DaskRows(RowSource):
    """Partitions of a Dask array or dataframe, in their order."""

    def __init__(self, X: Any) -> None:
        dask: Any = import_module("dask")
        if hasattr(X, "columns"):
            plain_matrix(X._meta)  # types are public: columns without numbers are refused before anything is computed
            require_numeric_types(X.columns, X._meta.dtypes)
            self.names = [str(name) for name in X.columns]
            self.boolean = boolean_columns(X._meta)
            self.parts = list(X.to_delayed())
        else:
            if X.dtype.kind not in "biuf":
                raise InvalidData(f"X is a Dask array of type {X.dtype}: convert it to a numeric type.")
            self.boolean = boolean_columns(np.zeros((0, int(X.shape[1])), X.dtype))
            rows = X.rechunk({1: -1})  # a row is not split
            self.parts = list(rows.to_delayed()[:, 0])
        counts = [dask.delayed(len)(part) for part in self.parts]
        self.lengths = [int(n) for n in without_values(lambda: dask.compute(*counts))]
        self.shape = (sum(self.lengths), int(X.shape[1]))

    def _parts(self) -> Iterator[NDArray[Any]]:
        for part, length in zip(self.parts, self.lengths, strict=True):
            rows = partition_matrix(without_values(part.compute), self.shape[1])
            if len(rows) != length:
                raise InvalidData(ROWS_CHANGED)
            yield rows

    def cluster_client(self) -> Any:
        """Return this process's client of a Dask cluster, if it has one; ``distributed`` is not imported for it."""
        distributed = sys.modules.get("distributed")
        if distributed is None:
            return None
        try:
            return distributed.get_client()
        except ValueError:
            return None


def without_values(work: Callable[[], T]) -> T:
    """Run ``work`` on values that may not be numbers; Python's own error about such a value would contain it."""
    try:
        return work()
    except InvalidData:
        raise
    except (TypeError, ValueError):
        pass
    raise InvalidData(_NOT_NUMBERS)  # outside the except block: an error's context would keep the values


def partition_matrix(part: Any, width: int) -> NDArray[Any]:
    """Return a computed partition as an array of doubles with ``width`` columns."""
    X = without_values(lambda: _doubles(part))
    if X.ndim != 2 or X.shape[1] != width:
        raise InvalidData("X changed while it was read: its number of columns is different now.")
    return X


def _doubles(part: Any) -> NDArray[Any]:
    plain = plain_matrix(part)
    if plain is part and hasattr(part, "to_numpy"):
        plain = part.to_numpy(np.float64, na_value=np.nan)
    return np.asarray(plain, np.float64)
