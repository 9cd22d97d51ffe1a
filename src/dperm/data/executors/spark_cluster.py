"""Blocks of scaled rows on the workers of a Spark cluster.

A partition is scaled once; its blocks are kept by Spark in memory or on disk, as integers of two or four bytes, and a
query is one job that brings back a few sums over people. What a query leaves for the next one, such as the scores of
coordinate descent, stays in the worker's process. If another process gets the block, it computes it again, with the
same bits.

A block that Spark loses is made again from the DataFrame. Its rows must be the same: a keyed digest of every block is
compared before a process first uses it, and other rows are refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.data.design.dense_rows import DenseRows
from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix, Scaling, Shape
from dperm.data.executors.executor import Block, Executor, Reading, TargetView, Work, bounded_part
from dperm.data.holding.holder import added
from dperm.data.tables.row_source import ROWS_CHANGED
from dperm.data.tables.spark_jobs import Answer, answered, answers_of_frame, collected, one_answer
from dperm.data.tables.spark_rows import PartitionRows, SparkRows, SparkTarget
from dperm.errors import InvalidData
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray

__all__ = ["KeptBlocks", "SparkExecutor"]

_HEAD = struct.Struct("<qqq")  # number of the first row, rows, bytes of an integer
_DIGEST_BYTES = 16
_MOST_KEPT = 1 << 28  # bytes of rows that a worker's process keeps as doubles


class SparkExecutor(Executor):
    """Blocks of a Spark DataFrame, which stay on the cluster until this object is gone."""

    def __init__(
        self,
        X: SparkRows,
        target: SparkTarget,
        scaling: Scaling,
        intercept: float = 0.0,
        reading: Reading | None = None,  # not called: Spark shows the progress of its jobs itself
    ) -> None:
        from pyspark import StorageLevel

        if target.table is not X.table:
            raise InvalidData("X and y must be columns of the same Spark DataFrame.")
        table = X.table
        self.shape = Shape.of(*X.shape, scaling.clip, scaling.row_norm, intercept, scaling.spread)
        self._context = table.context
        self._key = RandomSource().words(2).tobytes()
        make = _MadeBlocks(table.reader(target.rules), scaling, self.shape)
        made = answers_of_frame(table.frame, make).persist(StorageLevel.MEMORY_AND_DISK)
        held = [made.unpersist]
        weakref.finalize(self, _release, held)
        self._blocks = made
        known = collected(self._context, "scale rows", made.map(_Described(self._key)))
        self._digests = self._context.broadcast({first: digest for first, _, digest in (one.value for one in known)})
        held.append(self._digests.destroy)
        self.n_rows = sum(one.value[1] for one in known)
        if self.n_rows != X.shape[0] or len(self._digests.value) != len(known):
            raise InvalidData(ROWS_CHANGED)

    def parts(self, work: Work, view: TargetView) -> Iterator[FloatArray]:
        most = work.part_size(Facts.of_design(self.shape, view.low, view.high))
        run = _PartOfQuery(self._key, self._digests, self.shape, work, view, most)
        yield one_answer(self._context, work.name, self._blocks.mapPartitionsWithIndex(run), _sum)


def _release(held: list[Any]) -> None:
    for free in held:
        with contextlib.suppress(Exception):  # the cluster may be gone before
            free()


def _sum(one: FloatArray, other: FloatArray) -> FloatArray:
    return added([one, other])


# ------------------------------------------------------------------------------------------ on the workers
@dataclass(frozen=True)
class _MadeBlocks:
    """Scales the rows of a partition and stores each block as bytes."""

    reader: PartitionRows
    scaling: Scaling
    shape: Shape

    def __call__(self, partition: int, batches: Iterator[Any]) -> Iterator[bytes]:
        stored = np.dtype("<i2" if self.shape.top < 2**15 else "<i4")
        for first, rows, target in self.reader.blocks(partition, batches):
            with np.errstate(all="ignore"):
                design = DesignMatrix.from_array(rows, self.scaling, shape=self.shape)
                columns = design.columns(stored)
            numbers = np.asarray(target, "<f8")
            if np.isnan(numbers).any():
                raise InvalidData("the target contains NaN: remove those rows.")
            head = _HEAD.pack(first, len(numbers), stored.itemsize)
            yield b"".join([head, columns.tobytes(), numbers.tobytes()])


def _opened(stored: bytes, shape: Shape) -> Block:
    first, n, size = _HEAD.unpack_from(stored)
    count = n * shape.n_features
    columns = np.frombuffer(stored, f"<i{size}", count, _HEAD.size).reshape(shape.n_features, n)
    target = np.frombuffer(stored, "<f8", n, _HEAD.size + count * size)
    design = DesignMatrix(DenseRows.of_columns(columns), np.zeros(shape.n_features), shape)
    return Block(design, target.astype(np.float64), first)


def _digest(key: bytes, stored: bytes) -> bytes:
    return hashlib.blake2b(stored, key=key, digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True)
class _Described:
    """The number of the first row, the number of rows and the digest of a block."""

    key: bytes

    def __call__(self, answer: Answer) -> Answer:
        if answer.refusal:
            return answer
        first, n, _ = _HEAD.unpack_from(answer.value)
        return Answer((first, n, _digest(self.key, answer.value)), partition=answer.partition)


@dataclass(frozen=True)
class _PartOfQuery:
    """Adds up the parts of a query on the blocks of a partition."""

    key: bytes
    digests: Any
    shape: Shape
    work: Work
    view: TargetView
    most: int

    def __call__(self, partition: int, blocks: Iterable[Answer]) -> Iterator[Answer]:
        waiting = iter(blocks)
        yield from answered(partition, lambda: self._total(waiting))
        for _ in waiting:  # a worker that leaves rows unread is not used again
            pass

    def _total(self, blocks: Iterator[Answer]) -> Iterator[FloatArray]:
        total: FloatArray | None = None
        for answer in blocks:
            if answer.refusal:  # made again, and now refused
                raise InvalidData(answer.refusal)
            here = bounded_part(self._block(answer.value), self.work, self.view, self.most)
            total = here if total is None else _sum(total, here)
        if total is not None:
            yield total

    def _block(self, stored: bytes) -> Block:
        first = _HEAD.unpack_from(stored)[0]
        block = _KEPT.found(self.key, first)
        if block is None:
            if self.digests.value.get(first) != _digest(self.key, stored):
                raise InvalidData(ROWS_CHANGED)
            block = _opened(stored, self.shape)
            _KEPT.keep(self.key, first, block, 8 * block.n_rows * self.shape.n_features)
        return block


class KeptBlocks:
    """Blocks in the memory of one worker's process, with what queries left there.

    A block for which there is no room is opened anew for every query; blocks of other runs give way.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._blocks: OrderedDict[tuple[bytes, int], tuple[Block, int]] = OrderedDict()

    def found(self, run: bytes, first: int) -> Block | None:
        """Return a block by its run and first row, or None."""
        kept = self._blocks.get((run, first))
        return None if kept is None else kept[0]

    def keep(self, run: bytes, first: int, block: Block, size: int) -> None:
        """Keep a block of so many bytes if there is room."""
        for other in [one for one in self._blocks if one[0] != run]:
            if self._size + size <= self._most:
                break
            self._size -= self._blocks.pop(other)[1]
        if self._size + size <= self._most:
            self._blocks[run, first] = block, size
            self._size += size


_KEPT = KeptBlocks(_MOST_KEPT)
