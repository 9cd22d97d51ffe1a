"""A design matrix kept in blocks of rows: on disk, or wherever a block can be asked for a sum.

Every operation of a :class:`~dperm.data.design.matrix.DesignMatrix` is that of its blocks put together. Blocks hold
the same whole numbers as one matrix would, and sums of whole numbers are exact in any order, so the results are the
same bit for bit however the rows are split.
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

__all__ = ["Blocks", "ChunkedDesign", "ScratchFile", "design_of", "ensure_room", "no_arguments"]

#: arguments of an operation for the rows of one block
Arguments = Callable[[slice], tuple[Any, ...]]


def no_arguments(part: slice) -> tuple[Any, ...]:
    """Arguments of an operation that needs none."""
    return ()


class Blocks(ABC):
    """Where the blocks of a design are kept; ``parts`` are the rows that each holds, in order."""

    parts: list[slice]

    @abstractmethod
    def ask(self, operation: str, arguments: Arguments = no_arguments) -> Iterator[Any]:
        """Results of an operation of a design, block after block."""

    def here(self) -> Iterator[DesignMatrix] | None:
        """Blocks brought into memory one after the other; None where they stay elsewhere."""
        return None

    @abstractmethod
    def columns(self, column: int) -> Iterator[FloatArray]:
        """One of the user's columns in grid steps, block after block."""


class ChunkedDesign(DesignMatrix):
    """A design whose rows are kept in blocks."""

    def __init__(self, blocks: Blocks, shape: Shape) -> None:
        super().__init__(np.zeros((0, shape.n_features), order="F"), np.zeros(shape.n_features), shape)
        self._blocks = blocks

    @property
    def n_rows(self) -> int:
        return self._blocks.parts[-1].stop if self._blocks.parts else 0

    def blocks(self) -> Iterator[tuple[slice, DesignMatrix]]:
        here = self._blocks.here()
        return super().blocks() if here is None else zip(self._blocks.parts, here, strict=True)

    def _each(self, operation: str, arguments: Arguments = no_arguments) -> Iterator[tuple[slice, Any]]:
        return zip(self._blocks.parts, self._blocks.ask(operation, arguments), strict=True)

    def _joined(self, operation: str, arguments: Arguments, width: tuple[int, ...] = ()) -> FloatArray:
        """One number (or ``width`` of them) for every row."""
        out = np.empty((self.n_rows, *width))
        for part, found in self._each(operation, arguments):
            out[part] = found
        return out

    def scores(self, weight_steps: FloatArray, columns: Columns = None) -> FloatArray:
        return self._joined("scores", lambda part: (weight_steps, columns), weight_steps.shape[1:])

    def squared_norms(self, columns: Columns = None) -> FloatArray:
        return self._joined("squared_norms", lambda part: (columns,))

    def mapped_lengths(self, steps: FloatArray) -> FloatArray:
        return self._joined("mapped_lengths", lambda part: (steps,))

    def second_moments(
        self, factors: FloatArray, unit: float, spacing: float, heights: FloatArray | None = None
    ) -> FloatArray:
        out = np.zeros((self.d, self.d))
        for _, found in self._each("second_moments", lambda part: (factors[part], unit, spacing, heights)):
            out += found
        return out

    def sums(self, row_steps: FloatArray, columns: Columns = None) -> FloatArray:
        width = self.d if columns is None else len(np.atleast_1d(columns))
        out = np.zeros((width, *row_steps.shape[1:]))
        for _, found in self._each("sums", lambda part: (row_steps[part], columns)):
            out += found
        return out

    def clipped_sums(self, row_steps: FloatArray, limits: FloatArray) -> FloatArray:
        out = np.zeros(self.d)
        for _, found in self._each("clipped_sums", lambda part: (row_steps[part], limits)):
            out += found
        return out

    def dense_column(self, column: int) -> FloatArray:
        if column == self.n_features:
            return super().dense_column(column)
        out = np.empty(self.n_rows)
        for part, found in zip(self._blocks.parts, self._blocks.columns(column), strict=True):
            out[part] = found
        return out

    def add_column(self, column: int, change: float, scores: FloatArray) -> None:
        if column == self.n_features:
            scores += self.intercept_steps * change
            return
        for part, found in zip(self._blocks.parts, self._blocks.columns(column), strict=True):
            scores[part] += found * change

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

        return float(sum(found for _, found in self._each("column_sum", arguments)))

    def row_chunks(self) -> Iterator[tuple[slice, FloatArray]]:
        for rows, chunks in self._each("row_chunks"):
            for part, block in chunks:
                yield slice(rows.start + part.start, rows.start + part.stop), block

    def take(self, rows: NDArray[np.intp]) -> DesignMatrix:
        """Return the given rows as a design in memory; every block is read once."""
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]

        def inside(part: slice) -> tuple[Any, ...]:
            first, last = np.searchsorted(wanted, (part.start, part.stop))
            return (wanted[first:last] - part.start,)

        values = np.empty((len(rows), self.n_features), order="F")
        done = 0
        for _, block in self._each("take", inside):
            values[order[done : done + block.n_rows]] = _entries(block)
            done += block.n_rows
        return DesignMatrix(values, np.zeros(self.n_features), self.shape)


def _entries(block: DesignMatrix) -> FloatArray:
    """The user's columns of a block in grid steps, without the intercept."""
    chunks = [chunk[:, : block.n_features] for _, chunk in block.row_chunks()]
    return np.concatenate(chunks) if chunks else np.zeros((0, block.n_features))


class ScratchFile(Blocks):
    """Blocks in a nameless file that vanishes with the object, or with the process.

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

    def here(self) -> Iterator[DesignMatrix]:
        p = self._shape.n_features
        for part, offset in zip(self.parts, self._offsets, strict=True):
            values = self._read(offset, p * (part.stop - part.start)).reshape(p, -1).T
            yield DesignMatrix(values, np.zeros(p), self._shape)

    def ask(self, operation: str, arguments: Arguments = no_arguments) -> Iterator[Any]:
        for part, block in zip(self.parts, self.here(), strict=True):
            yield getattr(block, operation)(*arguments(part))

    def columns(self, column: int) -> Iterator[FloatArray]:
        for part, offset in zip(self.parts, self._offsets, strict=True):
            n = part.stop - part.start
            yield self._read(offset + column * n * self._type.itemsize, n)


_NO_ROOM = "the scaled data do not fit on the disk of {!r}: set TMPDIR to a folder with more room."


def _stored_type(shape: Shape) -> np.dtype[Any]:
    return np.dtype(np.int16 if shape.top < 2**15 else np.int32)


def ensure_room(shape: Shape) -> None:
    """Refuse a design for which the disk has no room, from public numbers."""
    needed = shape.n * shape.n_features * _stored_type(shape).itemsize
    if shutil.disk_usage(tempfile.gettempdir()).free < needed:
        raise InvalidInput(_NO_ROOM.format(tempfile.gettempdir()))


def design_of(X: Any, scaling: Scaling, intercept: float = 0.0) -> DesignMatrix:
    """Clip, scale and round ``X`` with public constants: an array, a scipy sparse matrix, or rows read in blocks."""
    if not isinstance(X, RowSource):
        return DesignMatrix.from_array(X, scaling, intercept)
    shape = Shape.of(*X.shape, scaling.clip, scaling.row_norm, intercept, scaling.spread)
    placed = X.placed(scaling, shape)
    if placed is None:
        placed = ScratchFile(shape)
        for block in X.blocks():
            placed.append(DesignMatrix.from_array(block, scaling, shape=shape))
    return ChunkedDesign(placed, shape)
