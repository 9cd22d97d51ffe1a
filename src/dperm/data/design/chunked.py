"""A design matrix kept in blocks of rows, on local disk or on the workers of a cluster.

Every operation of a :class:`~dperm.data.design.matrix.DesignMatrix` combines the results of the blocks. Blocks hold the
same whole numbers as one matrix would, and sums of whole numbers are exact in any order, so the results are the same
bit for bit for every split of the rows. Proof: ``chunked.proof.md``.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.design.matrix import Columns, DesignMatrix, Scaling, Shape
from dperm.data.tables.row_source import RowSource
from dperm.errors import InvalidInput
from dperm.objective import Loss
from dperm.types import FloatArray

__all__ = ["Arguments", "Blocks", "ChunkedDesign", "ScratchFile", "chunked_design", "ensure_room", "no_arguments"]

#: arguments of an operation for the rows of one block
Arguments = Callable[[slice], tuple[Any, ...]]


def no_arguments(part: slice) -> tuple[Any, ...]:
    """Return the arguments of an operation that takes none."""
    return ()


class Blocks(ABC):
    """Storage for the blocks of a design; ``parts`` are the rows of each block, in order."""

    parts: list[slice]

    @abstractmethod
    def run(self, operation: str, arguments: Arguments = no_arguments) -> Iterator[Any]:
        """Yield the results of a :class:`DesignMatrix` operation, block after block."""

    def in_memory(self) -> Iterator[DesignMatrix] | None:
        """Yield the blocks, each loaded into this process's memory; None if blocks stay on other machines."""
        return None

    @abstractmethod
    def columns(self, column: int) -> Iterator[FloatArray]:
        """Yield one of the user's columns in grid steps, block after block."""


class ChunkedDesign(DesignMatrix):
    """A design whose rows are kept in blocks."""

    def __init__(self, blocks: Blocks, shape: Shape) -> None:
        super().__init__(np.zeros((0, shape.n_features), order="F"), np.zeros(shape.n_features), shape)
        self._blocks = blocks

    @property
    def n_rows(self) -> int:
        return self._blocks.parts[-1].stop if self._blocks.parts else 0

    def blocks(self) -> Iterator[tuple[slice, DesignMatrix]]:
        loaded = self._blocks.in_memory()
        return super().blocks() if loaded is None else zip(self._blocks.parts, loaded, strict=True)

    def _per_block(self, operation: str, arguments: Arguments = no_arguments) -> Iterator[tuple[slice, Any]]:
        return zip(self._blocks.parts, self._blocks.run(operation, arguments), strict=True)

    def _concatenated(self, operation: str, arguments: Arguments, width: tuple[int, ...] = ()) -> FloatArray:
        """Return one number (or ``width`` numbers) for every row."""
        out = np.empty((self.n_rows, *width))
        for part, result in self._per_block(operation, arguments):
            out[part] = result
        return out

    def scores(self, weight_steps: FloatArray, columns: Columns = None) -> FloatArray:
        return self._concatenated("scores", lambda part: (weight_steps, columns), weight_steps.shape[1:])

    def squared_norms(self, columns: Columns = None) -> FloatArray:
        return self._concatenated("squared_norms", lambda part: (columns,))

    def mapped_lengths(self, steps: FloatArray) -> FloatArray:
        return self._concatenated("mapped_lengths", lambda part: (steps,))

    def second_moments(
        self, factors: FloatArray, unit: float, spacing: float, heights: FloatArray | None = None
    ) -> FloatArray:
        out = np.zeros((self.d, self.d))
        for _, result in self._per_block("second_moments", lambda part: (factors[part], unit, spacing, heights)):
            out += result
        return out

    def sums(self, row_steps: FloatArray, columns: Columns = None) -> FloatArray:
        width = self.d if columns is None else len(np.atleast_1d(columns))
        out = np.zeros((width, *row_steps.shape[1:]))
        for _, result in self._per_block("sums", lambda part: (row_steps[part], columns)):
            out += result
        return out

    def clipped_sums(self, row_steps: FloatArray, limits: FloatArray) -> FloatArray:
        out = np.zeros(self.d)
        for _, result in self._per_block("clipped_sums", lambda part: (row_steps[part], limits)):
            out += result
        return out

    def dense_column(self, column: int) -> FloatArray:
        if column == self.n_features:
            return super().dense_column(column)
        out = np.empty(self.n_rows)
        for part, result in zip(self._blocks.parts, self._blocks.columns(column), strict=True):
            out[part] = result
        return out

    def add_column(self, column: int, change: float, scores: FloatArray) -> None:
        if column == self.n_features:
            scores += self.intercept_steps * change
            return
        for part, result in zip(self._blocks.parts, self._blocks.columns(column), strict=True):
            scores[part] += result * change

    def column_sum(
        self,
        column: int,
        limit: float,
        scores: FloatArray,
        spacing: float,
        target: FloatArray,
        loss: Loss,
        grid: float,
    ) -> float:
        def arguments(part: slice) -> tuple[Any, ...]:
            return column, limit, scores[part], spacing, target[part], loss, grid

        return float(sum(result for _, result in self._per_block("column_sum", arguments)))

    def row_chunks(self) -> Iterator[tuple[slice, FloatArray]]:
        for rows, chunks in self._per_block("row_chunks"):
            for part, block in chunks:
                yield slice(rows.start + part.start, rows.start + part.stop), block

    def take(self, rows: NDArray[np.intp]) -> DesignMatrix:
        """Return the given rows as a design in memory; every block is read once."""
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]

        def local_rows(part: slice) -> tuple[Any, ...]:
            first, last = np.searchsorted(wanted, (part.start, part.stop))
            return (wanted[first:last] - part.start,)

        values = np.empty((len(rows), self.n_features), order="F")
        done = 0
        for _, block in self._per_block("take", local_rows):
            values[order[done : done + block.n_rows]] = _entries(block)
            done += block.n_rows
        return DesignMatrix(values, np.zeros(self.n_features), self.shape)


def _entries(block: DesignMatrix) -> FloatArray:
    """Return the user's columns of a block in grid steps, without the intercept."""
    chunks = [chunk[:, : block.n_features] for _, chunk in block.row_chunks()]
    return np.concatenate(chunks) if chunks else np.zeros((0, block.n_features))


class ScratchFile(Blocks):
    """Blocks in a temporary file without a name, which disappears with the object or the process.

    A block is stored column by column in integers of two or four bytes: a quarter or half of what doubles take, and a
    single column can be read without the others.
    """

    def __init__(self, shape: Shape) -> None:
        ensure_room(shape)
        self._shape = shape
        self._type = _stored_type(shape)
        self._offsets: list[int] = []
        self._lock = threading.Lock()
        self.parts = []
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="dperm-", buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def append(self, block: DesignMatrix) -> None:
        """Write the next rows."""
        start = self.parts[-1].stop if self.parts else 0
        self._offsets.append(self._end())
        try:
            np.ascontiguousarray(_entries(block).T, self._type).tofile(self._file)
        except OSError:
            raise InvalidInput(_NO_ROOM.format(tempfile.gettempdir())) from None
        self.parts.append(slice(start, start + block.n_rows))

    def _end(self) -> int:
        return self._file.seek(0, 2)

    def _read(self, offset: int, count: int) -> FloatArray:
        with self._lock:
            self._file.seek(offset)
            stored = np.fromfile(self._file, self._type, count)
        return stored.astype(np.float64)

    def in_memory(self) -> Iterator[DesignMatrix]:
        p = self._shape.n_features
        for part, offset in zip(self.parts, self._offsets, strict=True):
            values = self._read(offset, p * (part.stop - part.start)).reshape(p, -1).T
            yield DesignMatrix(values, np.zeros(p), self._shape)

    def run(self, operation: str, arguments: Arguments = no_arguments) -> Iterator[Any]:
        for part, block in zip(self.parts, self.in_memory(), strict=True):
            yield getattr(block, operation)(*arguments(part))

    def columns(self, column: int) -> Iterator[FloatArray]:
        for part, offset in zip(self.parts, self._offsets, strict=True):
            n = part.stop - part.start
            yield self._read(offset + column * n * self._type.itemsize, n)


_NO_ROOM = "the scaled data do not fit on the disk of {!r}: set TMPDIR to a folder with more free space."


def _stored_type(shape: Shape) -> np.dtype[Any]:
    return np.dtype(np.int16 if shape.top < 2**15 else np.int32)


def ensure_room(shape: Shape) -> None:
    """Refuse a design that does not fit on the disk, judged by public numbers."""
    needed = shape.n * shape.n_features * _stored_type(shape).itemsize
    if shutil.disk_usage(tempfile.gettempdir()).free < needed:
        raise InvalidInput(_NO_ROOM.format(tempfile.gettempdir()))


def chunked_design(X: RowSource, scaling: Scaling, intercept: float = 0.0) -> ChunkedDesign:
    """Clip, scale and round rows that are read in blocks; see :func:`~dperm.data.design.matrix.build_design`."""
    shape = Shape.of(*X.shape, scaling.clip, scaling.row_norm, intercept, scaling.spread)
    client = X.cluster_client()
    if client is not None:
        from dperm.data.design.dask_blocks import DaskBlocks  # only for rows on a Dask cluster
        from dperm.data.tables.dask_rows import DaskRows

        assert isinstance(X, DaskRows)
        return ChunkedDesign(DaskBlocks(client, X, scaling, shape), shape)
    scratch = ScratchFile(shape)
    for block in X.blocks():
        scratch.append(DesignMatrix.from_array(block, scaling, shape=shape))
    return ChunkedDesign(scratch, shape)
