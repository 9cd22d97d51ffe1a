"""Rows that do not fit into memory: scaled once, kept in a temporary file, and read block by block for every query.

A block is stored column by column in integers of two or four bytes: a quarter or half of what doubles take, and a
single column can be read without the others. While some blocks are computed, the next one is read. If the disk has no
room for the file, the source is read and scaled again for every query instead, which takes longer and no space.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dperm.data.design.dense_rows import DenseRows
from dperm.data.design.matrix import DesignMatrix, Scaling, Shape
from dperm.data.executors.executor import Block, Executor, Reading, TargetView, Work
from dperm.data.executors.threads import Threads, n_threads, read_ahead
from dperm.data.tables.row_source import ROWS_CHANGED, RowSource
from dperm.errors import InvalidData
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray

__all__ = ["FileExecutor", "RereadExecutor", "file_executor", "has_room"]


class _DiskFull(Exception):
    """The temporary file could not be written to its end."""


def has_room(shape: Shape) -> bool:
    """Whether the scaled rows fit on the disk, judged by public numbers."""
    needed = shape.n * shape.n_features * _stored_type(shape).itemsize
    return shutil.disk_usage(tempfile.gettempdir()).free >= needed


def file_executor(
    X: RowSource, target: FloatArray, scaling: Scaling, intercept: float = 0.0, reading: Reading | None = None
) -> Executor:
    """Return the executor of rows that are read in blocks: on disk if there is room, else without it."""
    shape = Shape.of(*X.shape, scaling.clip, scaling.row_norm, intercept, scaling.spread)
    if has_room(shape):
        with contextlib.suppress(_DiskFull):  # other programs write too
            return FileExecutor(X, target, scaling, shape, reading)
    return RereadExecutor(X, target, scaling, shape, reading)


class FileExecutor(Executor):
    """Blocks of scaled rows in a temporary file without a name, which disappears with the object or the process."""

    def __init__(
        self, X: RowSource, target: FloatArray, scaling: Scaling, shape: Shape, reading: Reading | None = None
    ) -> None:
        self.shape = shape
        self._threads = Threads(n_threads())
        file = _ScratchFile(_stored_type(shape))
        self._blocks: list[_StoredBlock] = []
        first = 0
        scaled = self._threads.map(partial(_stored_columns, scaling, shape, file.type), read_ahead(X.blocks()))
        for columns in scaled:
            n = columns.shape[1]
            design = _StoredDesign(file, file.append(columns), n, shape)
            self._blocks.append(_StoredBlock(design, target[first : first + n], first))
            first += n
            if reading is not None:
                reading(first, X.shape[0])
        self.n_rows = first

    def parts(self, work: Work, view: TargetView) -> Iterator[FloatArray]:
        blocks = self._blocks if work.reads_columns else read_ahead(block.load() for block in self._blocks)
        return self._threads.map(lambda block: block.part(work, view), blocks)


class RereadExecutor(Executor):
    """Blocks that are read from their source and scaled for every query; nothing is kept between queries."""

    def __init__(
        self, X: RowSource, target: FloatArray, scaling: Scaling, shape: Shape, reading: Reading | None = None
    ) -> None:
        self.shape, self.n_rows = shape, X.shape[0]
        self._source, self._target, self._scaling = X, target, scaling
        self._threads = Threads(n_threads())
        self._key = RandomSource().words(2).tobytes()
        # what cannot be read is refused before anything is reserved, and later what has changed since
        self._digests, first = list[bytes](), 0
        for rows in X.blocks():
            self._digests.append(self._digest(rows))
            first += len(rows)
            if reading is not None:
                reading(first, X.shape[0])

    def parts(self, work: Work, view: TargetView) -> Iterator[FloatArray]:
        return self._threads.map(lambda make: make().part(work, view), read_ahead(self._blocks()))

    def _blocks(self) -> Iterator[Callable[[], Block]]:
        first = 0
        for number, rows in enumerate(self._source.blocks()):
            known = self._digests[number] if number < len(self._digests) else None
            yield partial(self._block, rows, first, known)
            first += len(rows)

    def _digest(self, rows: FloatArray) -> bytes:
        return hashlib.blake2b(np.ascontiguousarray(rows).data, key=self._key, digest_size=16).digest()

    def _block(self, rows: FloatArray, first: int, known: bytes | None) -> Block:
        if self._digest(rows) != known:
            raise InvalidData(ROWS_CHANGED)
        design = DesignMatrix.from_array(rows, self._scaling, shape=self.shape)
        return Block(design, self._target[first : first + len(rows)], first)


class _ScratchFile:
    """Arrays of whole numbers in a temporary file."""

    def __init__(self, stored: np.dtype[Any]) -> None:
        self.type = stored
        self._file = tempfile.TemporaryFile(prefix="dperm-", buffering=0)  # noqa: SIM115
        self._end, self._lock = 0, threading.Lock()
        weakref.finalize(self, self._file.close)

    def append(self, values: Any) -> int:
        """Write an array and return where it begins."""
        begin = self._end
        try:
            self._file.seek(begin)
            values.tofile(self._file)
        except OSError:
            raise _DiskFull("the disk of the temporary file is full.") from None
        self._end += values.nbytes
        return begin

    def read(self, begin: int, count: int) -> Any:
        """Return numbers as they are stored."""
        with self._lock:
            self._file.seek(begin)
            return np.fromfile(self._file, self.type, count)


class _StoredDesign(DesignMatrix):
    """Rows in a file; what is read of them is forgotten after every query."""

    def __init__(self, file: _ScratchFile, begin: int, n_rows: int, shape: Shape) -> None:
        self._file, self._begin, self._n_rows = file, begin, n_rows
        self._stored: Any = None
        self._read: DenseRows | None = None
        super().__init__(np.zeros((0, 0)), np.zeros(shape.n_features), shape)

    @property
    def n_rows(self) -> int:
        return self._n_rows

    @property
    def _values(self) -> DenseRows:
        if self._read is None:
            self.load()
            self._read = DenseRows.of_columns(self._stored.reshape(self.n_features, -1))
            self._stored = None
        return self._read

    @_values.setter
    def _values(self, values: Any) -> None:
        self._read = None

    def load(self) -> None:
        """Read the rows as they are stored."""
        if self._stored is None:
            self._stored = self._file.read(self._begin, self.n_features * self._n_rows)

    def forget(self) -> None:
        """Free the memory of the rows that were read."""
        self._stored = self._read = self._constant = None

    def dense_column(self, column: int) -> FloatArray:
        if column == self.n_features or self._read is not None:
            return super().dense_column(column)
        begin = self._begin + column * self._n_rows * self._file.type.itemsize
        return np.asarray(self._file.read(begin, self._n_rows), np.float64)


class _StoredBlock(Block):
    """A block whose rows are in a file, and whose targets and kept numbers are in memory."""

    def __init__(self, design: _StoredDesign, target: FloatArray, first: int) -> None:
        super().__init__(design, target, first)
        self._file_rows = design

    def load(self) -> _StoredBlock:
        """Read the rows ahead of their use."""
        self._file_rows.load()
        return self

    def part(self, work: Work, view: TargetView) -> FloatArray:
        try:
            return super().part(work, view)
        finally:
            self._file_rows.forget()


def _stored_type(shape: Shape) -> np.dtype[Any]:
    return np.dtype(np.int16 if shape.top < 2**15 else np.int32)


def _stored_columns(scaling: Scaling, shape: Shape, stored: np.dtype[Any], rows: FloatArray) -> Any:
    """Return the columns of scaled rows in grid steps, one after the other, as they are stored."""
    return DesignMatrix.from_array(rows, scaling, shape=shape).columns(stored)
