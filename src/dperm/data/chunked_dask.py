"""Dask arrays and dataframes as tables that are read in blocks of rows, and designs that stay on a Dask cluster.

Without a cluster the partitions are worked out one after the other and kept on disk, scaled. With a
``dask.distributed`` client every partition is scaled where it is and stays there; what comes back from it are sums.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.chunked import RowSource
from dperm.data.chunked_design import Arguments, Blocks, no_arguments
from dperm.data.design import DesignMatrix, FloatArray, Scaling, Shape
from dperm.data.frames import boolean_columns, not_finite, plain_matrix
from dperm.errors import InvalidData

__all__ = ["DaskBlocks", "DaskRows", "dask_rows"]


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
            plain_matrix(X._meta)  # types are public: what cannot be numbers is refused before anything is worked out
            self.names = [str(name) for name in X.columns]
            self.boolean = boolean_columns(X._meta)
            self.parts = list(X.to_delayed())
        else:
            self.boolean = boolean_columns(np.zeros((0, int(X.shape[1])), X.dtype))
            rows = X.rechunk({1: -1})  # a row is not split
            self.parts = list(rows.to_delayed()[:, 0])
        self.lengths = [int(n) for n in dask.compute(*[dask.delayed(len)(part) for part in self.parts])]
        self.shape = (sum(self.lengths), int(X.shape[1]))

    def _parts(self) -> Iterator[NDArray[Any]]:
        for part in self.parts:
            yield _matrix(part.compute())

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
        for found in client.gather([client.submit(_refusal, one, pure=False) for one in self._blocks]):
            if found is not None:
                raise InvalidData(found)

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


def _matrix(part: Any) -> NDArray[Any]:
    plain = plain_matrix(part)
    return np.asarray(plain if plain is not part else getattr(part, "to_numpy", lambda: part)(), np.float64)


def _scaled(part: Any, names: list[str] | None, scaling: Scaling, shape: Shape) -> DesignMatrix | str:
    """A scaled partition, or why it is refused: an error that crosses a cluster would take values along."""
    X = _matrix(part)
    bad = not_finite(X, names)
    return DesignMatrix.from_array(X, scaling, shape=shape) if bad is None else bad


def _refusal(made: DesignMatrix | str) -> str | None:
    return made if isinstance(made, str) else None


def _answer(block: DesignMatrix, operation: str, *arguments: Any) -> Any:
    found = getattr(block, operation)(*arguments)
    return list(found) if isinstance(found, Iterator) else found
