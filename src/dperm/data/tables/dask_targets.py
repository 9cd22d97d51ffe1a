"""Targets in the partitions of a Dask series or array, which stay on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.tables.dask_rows import DaskRows, dask_rows, filled_partitions, frame_partitions, known_lengths
from dperm.data.tables.dask_tasks import Cluster, current_cluster
from dperm.data.tables.row_source import ROWS_CHANGED
from dperm.data.tables.target_source import TargetSource, other_lengths
from dperm.errors import InvalidData
from dperm.types import FloatArray, IntArray

__all__ = ["DaskTarget", "ReadTarget", "dask_target", "rows_and_target", "target_pieces"]

OTHER_PARTITIONS = (
    "X and y have different partitions: take both from one Dask dataframe, or repartition y so that each of its "
    "partitions has as many rows as that of X."
)
_NOT_LABELS = "Unknown label type: y mixes labels of several kinds; give all as text or all as whole numbers."

Rule = Callable[[NDArray[Any]], NDArray[Any]]


def rows_and_target(X: Any, y: Any) -> tuple[Any, Any]:
    """Return rows and targets of dataframes on a cluster, whose lengths are counted together; other data unchanged."""
    cluster = current_cluster()
    kinds = hasattr(X, "columns") and getattr(X, "ndim", 0) == 2 and hasattr(y, "divisions") and y.ndim == 1
    if cluster is None or not kinds or X.npartitions != y.npartitions:
        return X, y
    parts = frame_partitions(y)
    counted = cluster.each("length", _lengths, list(zip(frame_partitions(X), parts, strict=True)))
    rows = dask_rows(X, [n for n, _ in counted])
    found = DaskTarget(cluster, *filled_partitions(cluster, parts, [n for _, n in counted]))
    _same_partitions(found, rows)
    return rows, found


def dask_target(y: Any, X: DaskRows) -> DaskTarget:
    """Return the targets of a Dask series or of a one-dimensional Dask array, one for each row of ``X``."""
    if hasattr(y, "to_delayed") and getattr(y, "ndim", 0) == 2 and y.shape[1] == 1:  # a table of one column
        y = y[y.columns[0]] if hasattr(y, "columns") else y[:, 0]
    if not hasattr(y, "to_delayed") or getattr(y, "ndim", 0) != 1:
        raise InvalidData("y must be a Dask series or a one-dimensional Dask array.")
    assert X.cluster is not None
    lengths: list[int] | None = None
    if hasattr(y, "rechunk"):
        if known_lengths(y) is not None:
            _same_rows(int(y.shape[0]), X)
            lengths = X.lengths
            y = y.rechunk((tuple(lengths),))
        parts = list(y.to_delayed().ravel())
    else:
        parts = frame_partitions(y)
    found = DaskTarget(X.cluster, *filled_partitions(X.cluster, parts, lengths))
    _same_partitions(found, X)
    return found


def _same_partitions(found: DaskTarget, X: DaskRows) -> None:
    _same_rows(len(found), X)
    if found.lengths != X.lengths:
        raise InvalidData(OTHER_PARTITIONS)


def _same_rows(n: int, X: DaskRows) -> None:
    if n != X.shape[0]:
        raise InvalidData(other_lengths(X.shape[0], n))


class DaskTarget(TargetSource):
    """Partitions of targets, in their order, and the public rules that are applied to them on the workers."""

    checked_with_rows = True

    def __init__(self, cluster: Cluster, parts: list[Any], lengths: list[int], rules: tuple[Rule, ...] = ()) -> None:
        self.cluster, self.parts, self.lengths, self._rules = cluster, parts, lengths, rules
        self.shape = (sum(lengths), 1)

    def in_numbers(self, rule: Rule) -> DaskTarget:
        return DaskTarget(self.cluster, self.parts, self.lengths, (*self._rules, rule))

    def labels(self, most: int) -> NDArray[Any]:
        found: _FewLabels = self._total("labels", _DistinctLabels(most))
        return found.values

    def varies(self) -> bool:
        found: bool = self._total("variation", _DistinctLabels(1), _several)
        return found

    def added(self, count: Callable[[FloatArray], IntArray]) -> IntArray:
        found: IntArray = self._total("count", _ColumnCount(count))
        return found

    def check(self) -> None:
        self._total("check", _nothing)

    @property
    def reader(self) -> ReadTarget:
        """What turns a computed partition into targets."""
        return ReadTarget(self._rules)

    def _total(self, name: str, work: Callable[[Any], Any], finish: Callable[[Any], Any] | None = None) -> Any:
        run = _OnTargets(work, self.reader)
        return self.cluster.total(f"target {name}", run, list(zip(self.parts, self.lengths, strict=True)), finish)


def target_pieces(target: Any, lengths: Sequence[int]) -> tuple[Sequence[Any], ReadTarget]:
    """Return the targets of each partition, and what turns them into numbers on a worker.

    An array is cut; its pieces are sent with the tasks that use them, so that they can be sent again.
    """
    if isinstance(target, DaskTarget):
        if target.lengths != list(lengths):
            raise InvalidData(OTHER_PARTITIONS)
        return target.parts, target.reader
    ends = np.cumsum([0, *lengths]).tolist()
    whole = np.asarray(target, np.float64)
    return [whole[a:b] for a, b in pairwise(ends)], ReadTarget(())


# -------------------------------------------------------------------------------------------- on the workers
def _lengths(rows: Any, target: Any) -> tuple[int, int]:
    return len(rows), len(target)


@dataclass(frozen=True)
class ReadTarget:
    """Applies the public rules to a computed partition of targets."""

    rules: tuple[Rule, ...]

    def __call__(self, part: Any, length: int) -> NDArray[Any]:
        if len(part) != length:
            raise InvalidData(ROWS_CHANGED)
        for rule in self.rules:
            part = rule(part)
        return np.asarray(part)


@dataclass(frozen=True)
class _OnTargets:
    work: Callable[[Any], Any]
    read: ReadTarget

    def __call__(self, part: Any, length: int) -> Any:
        return self.work(self.read(part, length))


@dataclass(frozen=True)
class _ColumnCount:
    count: Callable[[FloatArray], IntArray]

    def __call__(self, target: NDArray[Any]) -> IntArray:
        return self.count(np.asarray(target, np.float64)[:, None])


@dataclass(frozen=True, eq=False)
class _FewLabels:
    """The smallest labels of some people, one more than the most that may be."""

    values: NDArray[Any]
    most: int

    @classmethod
    def of(cls, values: Any, most: int) -> _FewLabels:
        mixed = False
        try:
            found = np.unique(values)
        except TypeError:
            mixed = True
        if mixed:  # raised outside the except block: an error's context would keep the hidden values
            raise InvalidData(_NOT_LABELS)
        return cls(found[: most + 1], most)

    def __add__(self, other: _FewLabels) -> _FewLabels:
        return _FewLabels.of(np.concatenate([self.values, other.values]), self.most)


@dataclass(frozen=True)
class _DistinctLabels:
    most: int

    def __call__(self, target: NDArray[Any]) -> _FewLabels:
        return _FewLabels.of(target, self.most)


def _several(found: _FewLabels) -> bool:
    return len(found.values) > 1


def _nothing(target: NDArray[Any]) -> int:
    return 0
