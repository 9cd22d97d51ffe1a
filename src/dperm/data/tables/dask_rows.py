"""Dask arrays and dataframes, read in blocks of rows.

Without a cluster the partitions are computed one after the other, and the scaled rows are kept on local disk. With a
``dask.distributed`` client every pass over the rows runs on the workers, and each partition is scaled on its worker and
stays there (``executors/dask_cluster.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.tables.dask_tasks import Cluster, current_cluster
from dperm.data.tables.frames import boolean_columns, non_finite_message, plain_matrix, require_numeric_types
from dperm.data.tables.row_source import ROWS_CHANGED, RowSource
from dperm.errors import InvalidData
from dperm.types import FloatArray, IntArray

__all__ = ["DaskRows", "ReadRows", "SecondReading", "dask_rows", "partition_matrix", "without_values"]

T = TypeVar("T")

_NOT_NUMBERS = "X must hold numbers only, and one of its partitions could not be computed or converted to numbers."


def dask_rows(X: Any, lengths: Sequence[int] | None = None) -> DaskRows:
    """Return the rows of a Dask array or dataframe; ``lengths`` of its partitions if they are known."""
    if not (hasattr(X, "to_delayed") and getattr(X, "ndim", 0) == 2):
        raise InvalidData("X must be a two-dimensional Dask array or a Dask dataframe.")
    if hasattr(X, "columns"):
        plain_matrix(X._meta)  # types are public: columns without numbers are refused before anything is computed
        require_numeric_types(X.columns, X._meta.dtypes)
        names, boolean = [str(name) for name in X.columns], boolean_columns(X._meta)
        return DaskRows(frame_partitions(X), len(names), names, boolean, lengths=lengths)
    if X.dtype.kind not in "biuf":
        raise InvalidData(f"X is a Dask array of type {X.dtype}: convert it to a numeric type.")
    width = int(X.shape[1])
    rows = X.rechunk({1: -1})  # a row is not split
    boolean = boolean_columns(np.zeros((0, width), X.dtype))
    return DaskRows(rows.to_delayed()[:, 0], width, None, boolean, lengths=known_lengths(rows))


def known_lengths(array: Any) -> list[int] | None:
    """Return the lengths of an array's chunks of rows, None if Dask does not know them.

    A chunk that has another length is refused when it is read.
    """
    lengths = array.chunks[0]
    return None if any(math.isnan(n) for n in lengths) else [int(n) for n in lengths]


def frame_partitions(frame: Any) -> list[Any]:
    """Return the partitions of a Dask dataframe or series as it says they are.

    Dask would read several small files at once where few columns are needed: X and y of one table would then have
    different partitions.
    """
    with import_module("dask").config.set({"optimization.tune.active": False}):
        return list(frame.to_delayed())


class DaskRows(RowSource):
    """Partitions of rows, in their order; empty ones are left out.

    Parameters
    ----------
    parts : sequence of Delayed
        The partitions: arrays or dataframes, not yet computed.
    width : int
        Number of columns.
    names : list of str, optional
        Names of the columns.
    boolean : array of bool, optional
        Which columns are of type bool.
    cluster : Cluster, optional
        The cluster that computes them; by default that of this process's client, if it has one.
    lengths : sequence of int, optional
        Number of rows of each partition; counted by default, which reads all of them.

    Attributes
    ----------
    lengths : list of int
        Number of rows of each partition.
    """

    def __init__(
        self,
        parts: Sequence[Any],
        width: int,
        names: list[str] | None = None,
        boolean: Any = None,
        cluster: Cluster | None = None,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self.cluster = current_cluster() if cluster is None else cluster
        self.names, self.boolean = names, boolean
        self.parts, self.lengths = filled_partitions(self.cluster, parts, lengths)
        self.shape = (sum(self.lengths), width)
        self._unconfirmed: list[SecondReading] = []

    @property
    def on_cluster(self) -> bool:
        """Whether passes over the rows run on the workers of a cluster."""
        return self.cluster is not None

    @property
    def first_rows(self) -> list[int]:
        """Number of the first row of each partition."""
        return [0, *accumulate(self.lengths)][:-1]

    @property
    def reader(self) -> ReadRows:
        """What turns a computed partition into rows."""
        return ReadRows(self.shape[1], self.names)

    def _parts(self) -> Iterator[NDArray[Any]]:
        for part, length in zip(self.parts, self.lengths, strict=True):
            rows = partition_matrix(without_values(part.compute), self.shape[1])
            if len(rows) != length:
                raise InvalidData(ROWS_CHANGED)
            yield rows

    def added(self, count: Callable[[FloatArray], IntArray]) -> IntArray:
        if self.cluster is None:
            return super().added(count)
        found: IntArray = self.summed("count", _Count(count))
        return found

    def check(self) -> None:
        if self.cluster is None:
            super().check()
        else:
            self.summed("check", _nothing)

    def check_with(self, target: Any) -> None:
        if self.cluster is None:
            super().check_with(target)
        else:  # targets in memory were checked there
            self.summed_with("check", _nothing, target if isinstance(target, RowSource) else None)

    def confirm(self) -> None:
        for one in list(self._unconfirmed):
            one.confirm()

    def read_again(self, target: Any, check: Callable[..., Any], expected: Sequence[tuple[Any, ...]]) -> SecondReading:
        """Return a reading that is still to be made, in which ``check(part, target, *expected)`` refuses other rows.

        The next pass over rows and these targets makes it, whatever it is for.
        """
        made = SecondReading(self, target, check, expected)
        self._unconfirmed.append(made)
        return made

    def summed(self, name: str, work: Callable[..., Any]) -> Any:
        """Return the sum over the partitions of ``work(rows)``, computed and added on the workers."""
        assert self.cluster is not None
        return self.cluster.total(name, _OnRows(work, self.reader), list(zip(self.parts, self.lengths, strict=True)))

    def summed_with(
        self, name: str, work: Callable[..., Any], target: Any, finish: Callable[[Any], Any] | None = None
    ) -> Any:
        """Return the same sum of ``work(rows, target)``; ``finish`` is applied to it on a worker."""
        from dperm.data.tables.dask_targets import target_pieces

        assert self.cluster is not None
        pieces: Sequence[Any] = [None] * len(self.parts)
        read = None
        if target is not None:
            pieces, read = target_pieces(target, self.lengths)
        due = [one for one in self._unconfirmed if one.target is target]
        expected = zip(*(one.expected for one in due), strict=True) if due else [()] * len(self.parts)
        run = _OnRows(work, self.reader, read, tuple(one.check for one in due))
        found = self.cluster.total(
            name, run, list(zip(self.parts, self.lengths, pieces, expected, strict=True)), finish
        )
        self._unconfirmed = [one for one in self._unconfirmed if one not in due]
        return found

    def unconfirmed(self, reading: SecondReading) -> bool:
        """Whether a second reading is still to be made."""
        return reading in self._unconfirmed


@dataclass(frozen=True, eq=False)
class SecondReading:
    """A second reading of rows and targets that must give the same people; see :meth:`DaskRows.read_again`."""

    rows: DaskRows
    target: Any
    check: Callable[..., Any]
    #: what the check is given for each partition
    expected: Sequence[tuple[Any, ...]]

    def confirm(self) -> None:
        """Make the reading, unless another pass has made it."""
        if self.rows.unconfirmed(self):
            self.rows.summed_with("read again", _nothing, self.target)


def filled_partitions(
    cluster: Cluster | None, parts: Sequence[Any], known: Sequence[int] | None = None
) -> tuple[list[Any], list[int]]:
    """Return the partitions that have rows, and how many each has; they are read unless the numbers are ``known``."""
    if known is not None:
        lengths = list(known)
    elif cluster is not None:
        lengths = cluster.each("length", len, [(part,) for part in parts])
    else:
        dask: Any = import_module("dask")
        counts = [dask.delayed(len)(part) for part in parts]
        lengths = [int(n) for n in without_values(lambda: dask.compute(*counts))]
    filled = [(part, n) for part, n in zip(parts, lengths, strict=True) if n]
    return [part for part, _ in filled], [n for _, n in filled]


# -------------------------------------------------------------------------------------------- on the workers
@dataclass(frozen=True)
class ReadRows:
    """Turns a computed partition into doubles, and refuses values that are not finite."""

    width: int
    names: list[str] | None = None

    def __call__(self, part: Any, length: int) -> FloatArray:
        rows = partition_matrix(part, self.width)
        if len(rows) != length:
            raise InvalidData(ROWS_CHANGED)
        problem = non_finite_message(rows, self.names)
        if problem is not None:
            raise InvalidData(problem)
        return rows


@dataclass(frozen=True)
class _OnRows:
    work: Callable[..., Any]
    read: ReadRows
    read_target: Callable[[Any, int], Any] | None = None
    checks: tuple[Callable[..., Any], ...] = ()

    def __call__(self, part: Any, length: int, target: Any = None, expected: Any = ()) -> Any:
        for check, wanted in zip(self.checks, expected, strict=True):
            check(part, target, *wanted)
        rows = self.read(part, length)
        if self.read_target is None:
            return self.work(rows)
        return self.work(rows, np.asarray(self.read_target(target, length), np.float64))


@dataclass(frozen=True)
class _Count:
    count: Callable[[FloatArray], IntArray]

    def __call__(self, rows: FloatArray) -> IntArray:
        return self.count(rows)


def _nothing(rows: FloatArray, target: Any = None) -> int:
    return 0


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
