"""Dask arrays and dataframes as tables that are read in blocks of rows, and designs that stay on a Dask cluster.

Without a cluster the partitions are worked out one after the other and kept on disk, scaled. With a
``dask.distributed`` client every partition is scaled where it is and stays there; what comes back from it are sums.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.design.chunked import Arguments, Blocks, no_arguments
from dperm.data.design.matrix import DesignMatrix, Scaling, Shape
from dperm.data.tables.frames import boolean_columns, not_finite, numbers_only, plain_matrix
from dperm.data.tables.row_source import CHANGED, RowSource
from dperm.errors import InvalidData
from dperm.types import FloatArray

__all__ = ["DaskBlocks", "DaskRows", "dask_rows"]

T = TypeVar("T")

_NOT_NUMBERS = "X must hold numbers only, and a partition of it could not be worked out or turned into numbers."


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
            plain_matrix(X._meta)  # types are public: what may not be numbers is refused before anything is worked out
            numbers_only(X.columns, X._meta.dtypes)
            self.names = [str(name) for name in X.columns]
            self.boolean = boolean_columns(X._meta)
            self.parts = list(X.to_delayed())
        else:
            if X.dtype.kind not in "biuf":
                raise InvalidData(f"X is a Dask array of type {X.dtype}: convert it to a type of numbers.")
            self.boolean = boolean_columns(np.zeros((0, int(X.shape[1])), X.dtype))
            rows = X.rechunk({1: -1})  # a row is not split
            self.parts = list(rows.to_delayed()[:, 0])
        counts = [dask.delayed(len)(part) for part in self.parts]
        self.lengths = [int(n) for n in _without_values(lambda: dask.compute(*counts))]
        self.shape = (sum(self.lengths), int(X.shape[1]))

    def _parts(self) -> Iterator[NDArray[Any]]:
        for part, length in zip(self.parts, self.lengths, strict=True):
            found = _matrix(_without_values(part.compute), self.shape[1])
            if len(found) != length:
                raise InvalidData(CHANGED)
            yield found

    def placed(self, scaling: Scaling, shape: Shape) -> Blocks | None:
        """Scaled partitions on the workers of a cluster, if this process is the client of one."""
        client = _client()
        return None if client is None else DaskBlocks(client, self, scaling, shape)


class DaskBlocks(Blocks):
    """Blocks that stay on the workers of a Dask cluster."""

    def __init__(self, client: Any, rows: DaskRows, scaling: Scaling, shape: Shape) -> None:
        self._client = client
        ends = np.cumsum([0, *rows.lengths]).tolist()
        self.parts = [slice(a, b) for a, b in pairwise(ends)]
        self._blocks = [
            client.submit(_scaled, part, rows.names, scaling, shape, pure=False) for part in client.compute(rows.parts)
        ]
        asked = [client.submit(_length, one, pure=False) for one in self._blocks]
        for length, found in zip(rows.lengths, _without_values(lambda: client.gather(asked)), strict=True):
            if found != length:
                raise InvalidData(found if isinstance(found, str) else CHANGED)

    def ask(self, operation: str, arguments: Arguments = no_arguments) -> Iterator[Any]:
        """Answers in order; no more of them are outstanding than keep all workers busy."""
        outstanding: deque[Any] = deque()
        most = 2 * max(1, len(self._client.nthreads()))
        for part, block in zip(self.parts, self._blocks, strict=True):
            outstanding.append(self._client.submit(_answer, block, operation, *arguments(part), pure=False))
            if len(outstanding) >= most:
                yield outstanding.popleft().result()
        while outstanding:
            yield outstanding.popleft().result()

    def columns(self, column: int) -> Iterator[FloatArray]:
        yield from self.ask("dense_column", lambda part: (column,))


def _client() -> Any:
    """The client of a cluster that this process has, else None; ``distributed`` is not imported for it."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _without_values(work: Callable[[], T]) -> T:
    """Do what meets values that may not be numbers: what Python says of such a value shows it."""
    try:
        return work()
    except InvalidData:
        raise
    except (TypeError, ValueError):
        pass
    raise InvalidData(_NOT_NUMBERS)  # out here: an error's context would keep the values that its sentence hides


def _matrix(part: Any, width: int) -> NDArray[Any]:
    X = _without_values(lambda: _doubles(part))
    if X.ndim != 2 or X.shape[1] != width:
        raise InvalidData("X changed while it was read: the number of its columns is another one now.")
    return X


def _doubles(part: Any) -> NDArray[Any]:
    plain = plain_matrix(part)
    if plain is part and hasattr(part, "to_numpy"):
        plain = part.to_numpy(np.float64, na_value=np.nan)
    return np.asarray(plain, np.float64)


def _scaled(part: Any, names: list[str] | None, scaling: Scaling, shape: Shape) -> DesignMatrix | str:
    """A scaled partition, or why it is refused: an error that crosses a cluster would take values along."""
    try:
        X = _matrix(part, shape.n_features)
    except InvalidData as refused:
        return str(refused)
    bad = not_finite(X, names)
    return DesignMatrix.from_array(X, scaling, shape=shape) if bad is None else bad


def _length(made: DesignMatrix | str) -> int | str:
    """Number of rows of a partition, or why it is refused."""
    return made if isinstance(made, str) else made.n_rows


def _answer(block: DesignMatrix, operation: str, *arguments: Any) -> Any:
    found = getattr(block, operation)(*arguments)
    return list(found) if isinstance(found, Iterator) else found
