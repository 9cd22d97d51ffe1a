"""Rows on the workers of a Dask cluster: each partition is a block that stays on its worker.

A query is sent to every block, its parts are added on the workers in a tree, and one array comes back: as many numbers
as a part has, whatever the number of rows. The scheduler makes a block that was lost with its worker again from the
graph of its partition. What was kept about its people is then computed again, to the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix, Scaling, Shape
from dperm.data.executors.executor import Block, Executor, Reading, TargetView, Work, bounded_part
from dperm.data.tables.dask_rows import DaskRows, ReadRows
from dperm.data.tables.dask_targets import ReadTarget, target_pieces
from dperm.data.tables.row_source import ROWS_CHANGED
from dperm.errors import InvalidData
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray

__all__ = ["DaskExecutor"]

_NOT_THE_SAME = (
    "X or y gives other rows, or another order of them, each time it is read: persist both on the cluster, or read "
    "them in a fixed order."
)


class DaskExecutor(Executor):
    """Blocks on the workers of a Dask cluster.

    Parameters
    ----------
    X : DaskRows
        The rows; they know their cluster.
    target : array or DaskTarget
        One number for each row.
    scaling : Scaling
        Public constants of the columns.
    intercept : float
        Height of the constant column, 0 for none.
    reading : callable, optional
        Told how many rows are read, and how many there are.
    """

    def __init__(
        self, X: DaskRows, target: Any, scaling: Scaling, intercept: float = 0.0, reading: Reading | None = None
    ) -> None:
        assert X.cluster is not None
        self.n_rows = X.shape[0]
        self.shape = Shape.of(*X.shape, scaling.clip, scaling.row_norm, intercept, scaling.spread)
        self._cluster = X.cluster
        pieces, reader = target_pieces(target, X.lengths)
        make = _MakeBlock(X.reader, reader, scaling, self.shape)
        arguments = list(zip(X.parts, pieces, X.lengths, X.first_rows, strict=True))
        self._blocks = self._cluster.kept("block", make, arguments)
        # what cannot be read is refused before anything is reserved
        self._key = RandomSource().words(2).tobytes()
        self._digests = []
        for digest in self._cluster.each_kept("digest", Block.digest, self._blocks, self._key):
            self._digests.append(digest)
            if reading is not None:
                reading(sum(X.lengths[: len(self._digests)]), self.n_rows)
        # rows and targets are read apart: a source of no fixed order would give a person another one's target
        expected = list(zip(X.lengths, X.first_rows, self._digests, strict=True))
        self._second = X.read_again(target, _SameBlock(make, self._key), expected)

    def parts(self, work: Work, view: TargetView) -> Iterator[FloatArray]:
        self._second.confirm()  # made before the reservation where bounds are declared
        most = work.part_size(Facts.of_design(self.shape, view.low, view.high))
        constants = (self._key, work, view, most)
        yield self._cluster.sum_of_kept(work.name, _part, self._blocks, self._digests, constants=constants)


class _MakeBlock:
    """Scales a partition on its worker, and keeps it with its targets."""

    def __init__(self, read_rows: ReadRows, read_target: ReadTarget, scaling: Scaling, shape: Shape) -> None:
        self._read_rows, self._read_target = read_rows, read_target
        self._scaling, self._shape = scaling, shape

    def __call__(self, part: Any, target: Any, length: int, first: int) -> Block:
        numbers = np.array(self._read_target(target, length), np.float64)
        if numbers.ndim != 1 or np.isnan(numbers).any():
            raise InvalidData("the target contains NaN: remove those rows.")
        rows = self._read_rows(part, length)
        with np.errstate(all="ignore"):  # a warning in a worker's log would reveal something about a person
            return Block(DesignMatrix.from_array(rows, self._scaling, shape=self._shape), numbers, first)


@dataclass(frozen=True)
class _SameBlock:
    """Makes a block again from a second reading, and refuses another one."""

    make: _MakeBlock
    key: bytes

    def __call__(self, part: Any, target: Any, length: int, first: int, digest: bytes) -> None:
        if self.make(part, target, length, first).digest(self.key) != digest:
            raise InvalidData(_NOT_THE_SAME)


def _part(block: Block, digest: bytes, key: bytes, work: Work, view: TargetView, most: int) -> FloatArray:
    """Return the part of a query on a worker; other rows than before, or more than its declared size, are refused."""
    if block.digest(key) != digest:  # made again from a graph that does not give the same rows twice
        raise InvalidData(ROWS_CHANGED)
    return bounded_part(block, work, view, most)
