"""A design whose blocks stay on the workers of a Dask cluster; only sums and single columns come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from dperm.data.design.chunked import Arguments, Blocks, no_arguments
from dperm.data.design.matrix import DesignMatrix
from dperm.data.design.scaling import Scaling, Shape
from dperm.data.tables.dask_rows import DaskRows, partition_matrix, without_values
from dperm.data.tables.frames import non_finite_message
from dperm.data.tables.row_source import ROWS_CHANGED
from dperm.errors import InvalidData
from dperm.types import FloatArray

__all__ = ["DaskBlocks"]


class DaskBlocks(Blocks):
    """Blocks that stay on the workers of a Dask cluster."""

    def __init__(self, client: Any, rows: DaskRows, scaling: Scaling, shape: Shape) -> None:
        self._client = client
        ends = np.cumsum([0, *rows.lengths]).tolist()
        self.parts = [slice(a, b) for a, b in pairwise(ends)]
        self._blocks = [
            client.submit(_scaled, part, rows.names, scaling, shape, pure=False) for part in client.compute(rows.parts)
        ]
        lengths = [client.submit(_length, block, pure=False) for block in self._blocks]
        for expected, found in zip(rows.lengths, without_values(lambda: client.gather(lengths)), strict=True):
            if found != expected:
                raise InvalidData(found if isinstance(found, str) else ROWS_CHANGED)

    def run(self, operation: str, arguments: Arguments = no_arguments) -> Iterator[Any]:
        """Yield the results in order; enough requests are pending at a time to keep all workers busy."""
        pending: deque[Any] = deque()
        most = 2 * max(1, len(self._client.nthreads()))
        for part, block in zip(self.parts, self._blocks, strict=True):
            pending.append(self._client.submit(_run_operation, block, operation, *arguments(part), pure=False))
            if len(pending) >= most:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def columns(self, column: int) -> Iterator[FloatArray]:
        yield from self.run("dense_column", lambda part: (column,))


def _scaled(part: Any, names: list[str] | None, scaling: Scaling, shape: Shape) -> DesignMatrix | str:
    """Return a scaled partition, or the reason for its refusal: an error sent across a cluster would carry values."""
    try:
        X = partition_matrix(part, shape.n_features)
    except InvalidData as error:
        return str(error)
    problem = non_finite_message(X, names)
    return DesignMatrix.from_array(X, scaling, shape=shape) if problem is None else problem


def _length(block: DesignMatrix | str) -> int | str:
    """Return the number of rows of a partition, or the reason for its refusal."""
    return block if isinstance(block, str) else block.n_rows


def _run_operation(block: DesignMatrix, operation: str, *arguments: Any) -> Any:
    result = getattr(block, operation)(*arguments)
    return list(result) if isinstance(result, Iterator) else result
