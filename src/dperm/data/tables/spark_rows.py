"""Spark DataFrames: rows and targets that stay on the workers of a Spark cluster.

The target is a column of the same DataFrame, because two DataFrames have no common order of rows. Rows are numbered by
the partitions in their order; the number of rows of each partition is counted once and checked whenever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.tables.frames import arrow_numbers, non_finite_message
from dperm.data.tables.row_source import ROWS_CHANGED, RowSource, rows_per_block
from dperm.data.tables.spark_jobs import answers_of_frame, collected, one_answer, run_job
from dperm.data.tables.target_source import TargetSource
from dperm.errors import InvalidData
from dperm.types import BoolArray, FloatArray, IntArray

__all__ = ["PartitionRows", "SparkRows", "SparkTable", "SparkTarget", "rows_and_target", "spark_rows"]

_NUMBERS = {"byte", "tinyint", "short", "smallint", "integer", "int", "long", "bigint", "float", "double", "boolean"}
_LABELS = _NUMBERS | {"string"}

_Y_IS_A_NAME = (
    "two Spark DataFrames have no common order of rows: give y as the name of a column of the DataFrame X, as in "
    "fit(df, 'label'); that column is then no feature."
)
_CONNECT = "X is a DataFrame of Spark Connect, whose workers keep no blocks of rows: use a classic Spark session."
_Y_MISSING = "y contains missing values: remove those rows."
_Y_NOT_FINITE = "y contains NaN or infinite values: remove those rows."
_CHANGED = f"{ROWS_CHANGED.rstrip('.')}; persist() the DataFrame so that its partitions stay the same."


def spark_rows(X: Any, names: Iterable[str] | None = None) -> SparkRows:
    """Return the rows of a Spark DataFrame without a target: the columns of these names, or all."""
    return SparkRows(SparkTable.of(X, names=names))


def rows_and_target(X: Any, y: Any, names: Iterable[str] | None = None) -> tuple[SparkRows, SparkTarget]:
    """Return the rows of a Spark DataFrame, by names or all, and the target in its column named ``y``."""
    if not isinstance(y, str):
        raise InvalidData(_Y_IS_A_NAME)
    table = SparkTable.of(X, y, names)
    return SparkRows(table), SparkTarget(table)


@dataclass(frozen=True)
class PartitionRows:
    """Reads the Arrow batches of a partition as blocks of rows with their targets; runs on a worker."""

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    most: int
    #: public rules that turn the column of the target into numbers, one after the other; None without a target
    rules: tuple[Callable[[NDArray[Any]], Any], ...] | None = None
    reads_features: bool = True

    @property
    def firsts(self) -> list[int]:
        """Number of the first row of every partition."""
        return [0, *accumulate(self.lengths)]

    def blocks(self, partition: int, batches: Iterator[Any]) -> Iterator[tuple[int, FloatArray, NDArray[Any] | None]]:
        """Yield the number of the first row, the rows and the targets of every block."""
        if partition >= len(self.lengths):
            raise InvalidData(_CHANGED)
        first = start = self.firsts[partition]
        for table in _of_size(batches, self.most):
            # the features come first, then the target
            rows = np.zeros((table.num_rows, 0))
            if self.reads_features:
                rows = arrow_numbers(table.select(list(range(len(self.names)))))
                problem = non_finite_message(rows, self.names)
                if problem is not None:
                    raise InvalidData(problem)
            yield first, rows, self._target(table)
            first += table.num_rows
        if first - start != self.lengths[partition]:
            raise InvalidData(_CHANGED)

    def _target(self, table: Any) -> NDArray[Any] | None:
        if self.rules is None:
            return None
        target = _plain_labels(table.column(table.num_columns - 1))
        for rule in self.rules:
            target = rule(target)
        return target


def _of_size(batches: Iterator[Any], most: int) -> Iterator[Any]:
    """Yield Arrow tables of ``most`` rows, and a last one with the rest."""
    import pyarrow as pa

    waiting: list[Any] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows < most:
            continue
        table = pa.Table.from_batches(waiting)
        whole = rows - rows % most
        for start in range(0, whole, most):
            yield table.slice(start, most)
        waiting, rows = table.slice(whole).to_batches(), rows - whole
    if rows:
        yield pa.Table.from_batches(waiting)


def _plain_labels(column: Any) -> NDArray[Any]:
    """Return labels or numbers of an Arrow column; missing ones are refused."""
    import pyarrow as pa

    if column.null_count:
        raise InvalidData(_Y_MISSING)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64(), safe=False)
    values = np.asarray(column.to_numpy())
    return values.astype(str) if values.dtype == object else values


@dataclass(frozen=True)
class SparkTable:
    """Some columns of a Spark DataFrame, the target last if there is one, and the rows of every partition."""

    frame: Any
    names: tuple[str, ...]
    boolean: BoolArray | None
    target: str | None
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, X: Any, target: str | None = None, names: Iterable[str] | None = None) -> SparkTable:
        """Check the types of the columns, which are public, and count the rows of every partition.

        Without ``names`` all columns but the target are features.
        """
        types = _types(X)
        if target is not None and target not in types:
            raise InvalidData(f"X has no column named {target!r}, which y names as the target.")
        names = tuple(name for name in types if name != target) if names is None else tuple(names)
        if target in names:
            raise InvalidData(f"the target {target!r} is one of the columns that the model was fitted on.")
        for name in names:
            if name not in types:
                raise InvalidData(f"X has no column named {name!r}, which the model was fitted on.")
            if not _is_one_of(types[name], _NUMBERS):
                kind = f"is of type {types[name]}: convert it to a numeric type"
                raise InvalidData(f"X must hold numbers only, and column {name!r} {kind}.")
        if target is not None and not _is_one_of(types[target], _LABELS):
            raise InvalidData(f"the target {target!r} is of type {types[target]}: give labels or numbers.")
        flags = np.array([types[name] == "boolean" for name in names], bool)
        columns = [*names] if target is None else [*names, target]
        frame = X.select(*map(_quoted, columns))
        made = cls(frame, names, flags if flags.any() else None, target, ())
        return replace(made, lengths=made._counted())

    @cached_property
    def context(self) -> Any:
        """The Spark context."""
        return self.frame.sparkSession.sparkContext

    @property
    def target_alone(self) -> Any:
        """The column of the target."""
        assert self.target is not None
        return self.frame.select(_quoted(self.target))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return sum(self.lengths), len(self.names)

    def _counted(self) -> tuple[int, ...]:
        answers = answers_of_frame(self.frame, _count)
        counts = collected(self.context, "count rows", answers)
        found = dict(one.value for one in counts)
        return tuple(found[k] for k in sorted(found))

    def reader(self, rules: Sequence[Any] | None = None, *, features: bool = True, width: int = 0) -> PartitionRows:
        """Return what reads a partition on a worker."""
        most = rows_per_block(width or len(self.names))
        return PartitionRows(self.names, self.lengths, most, None if rules is None else tuple(rules), features)


def _types(X: Any) -> dict[str, str]:
    """Return the names and types of the columns of a classic Spark DataFrame."""
    where, kind = type(X).__module__, type(X).__name__
    if ".connect." in where:
        raise InvalidData(_CONNECT)
    if where.startswith("pyspark.pandas"):
        raise InvalidData("X is a pandas-on-Spark table: give X.to_spark(), with the target as a column of it.")
    if kind != "DataFrame":
        raise InvalidData(f"X must be a Spark DataFrame, not {kind}.")
    if X.isStreaming:
        raise InvalidData("X is a stream, which has no number of rows: give a DataFrame that is no stream.")
    names = [field.name for field in X.schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise InvalidData(f"X has more than one column named {name!r}: give every column its own name.")
    return {field.name: field.dataType.typeName() for field in X.schema.fields}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _is_one_of(kind: str, kinds: set[str]) -> bool:
    return kind in kinds or kind.startswith("decimal")


def _count(partition: int, batches: Iterator[Any]) -> Iterator[tuple[int, int]]:
    yield partition, sum(batch.num_rows for batch in batches)


class SparkRows(RowSource):
    """The features of a Spark DataFrame."""

    def __init__(self, table: SparkTable) -> None:
        self.table = table
        self.shape, self.names, self.boolean = table.shape, list(table.names), table.boolean

    #: passes over the rows run on the workers of a cluster
    on_cluster = True

    def added(self, count: Callable[[FloatArray], IntArray]) -> IntArray:
        work = _PartitionCounts(self.table.reader(), count)
        found: IntArray = _added(self.table, self.table.frame, work, "count values of columns")
        return found

    def check(self) -> None:
        _added(self.table, self.table.frame, _PartitionCounts(self.table.reader(), len), "check rows")

    def summed_with(
        self,
        name: str,
        work: Callable[..., Any],
        target: SparkTarget | None,
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return the sum over all blocks of ``work(rows, target)``; ``finish`` is applied to it on a worker."""
        reader = self.table.reader(None if target is None else target.rules)
        answers = answers_of_frame(self.table.frame, _PartitionSums(reader, work))
        return one_answer(self.table.context, name, answers, _sum, finish)

    def with_targets(self, target: SparkTarget) -> Iterator[tuple[FloatArray, NDArray[Any]]]:
        """Yield blocks of rows with their targets, for those who read a whole table in this process.

        Both are read together: a DataFrame without a fixed order cannot give a person another one's target.
        """
        return _brought(self.table, _RowsAndTargets(self.table.reader(target.rules)))

    def _parts(self) -> Iterator[NDArray[Any]]:
        return _brought(self.table, _RowsAlone(self.table.reader()))


class SparkTarget(TargetSource):
    """The target column of a Spark DataFrame, as it is or in numbers."""

    def __init__(self, table: SparkTable, rules: tuple[Callable[[NDArray[Any]], NDArray[Any]], ...] = ()) -> None:
        self.table, self.rules = table, rules
        self.shape, self.names = (table.shape[0], 1), None

    def labels(self, most: int) -> NDArray[Any]:
        answers = answers_of_frame(self._frame, _PartitionLabels(self._reader(), most))
        return np.asarray(one_answer(self.table.context, "find labels", answers, _MergedLabels(most)))

    def varies(self) -> bool:
        answers = answers_of_frame(self._frame, _PartitionLabels(self._reader(), 1))
        return bool(one_answer(self.table.context, "compare targets", answers, _MergedLabels(1), _several))

    def in_numbers(self, rule: Callable[[NDArray[Any]], NDArray[Any]]) -> SparkTarget:
        return SparkTarget(self.table, (*self.rules, rule))

    def added(self, count: Callable[[FloatArray], IntArray]) -> IntArray:
        work = _PartitionCounts(self._reader(), count, of_target=True)
        found: IntArray = _added(self.table, self._frame, work, "count values of the target")
        return found

    def check(self) -> None:
        _added(self.table, self._frame, _PartitionCounts(self._reader(), len, of_target=True), "check targets")

    def _reader(self) -> PartitionRows:
        return self.table.reader(self.rules, features=False, width=1)

    @property
    def _frame(self) -> Any:
        return self.table.target_alone


def _added(table: SparkTable, frame: Any, work: Callable[..., Any], what: str) -> Any:
    answers = answers_of_frame(frame, work)
    return one_answer(table.context, what, answers, _sum)


def _sum(one: Any, other: Any) -> Any:
    return one + other


def _brought(table: SparkTable, work: Callable[..., Any]) -> Iterator[Any]:
    """Yield the rows in order, one partition at a time, for those who read a whole table in this process."""
    answers = answers_of_frame(table.frame, work)
    for partition in range(len(table.lengths)):
        found = run_job(table.context, "read rows", partial(table.context.runJob, answers, list, [partition]))
        for one in found:
            if one.refusal:
                raise InvalidData(one.refusal)
            yield one.value


@dataclass(frozen=True)
class _PartitionCounts:
    """The sum of whole numbers that are counted in the blocks of a partition."""

    reader: PartitionRows
    count: Callable[[FloatArray], Any]
    of_target: bool = False

    def __call__(self, partition: int, batches: Iterator[Any]) -> Iterator[Any]:
        total: Any = None
        for _, rows, target in self.reader.blocks(partition, batches):
            here = self.count(_as_column(target) if self.of_target else rows)
            total = here if total is None else total + here
        if total is not None:
            yield total


@dataclass(frozen=True)
class _RowsAlone:
    """The rows of a partition themselves."""

    reader: PartitionRows

    def __call__(self, partition: int, batches: Iterator[Any]) -> Iterator[Any]:
        for _, rows, _ in self.reader.blocks(partition, batches):
            yield rows


@dataclass(frozen=True)
class _RowsAndTargets:
    """The rows of a partition with their targets."""

    reader: PartitionRows

    def __call__(self, partition: int, batches: Iterator[Any]) -> Iterator[Any]:
        for _, rows, target in self.reader.blocks(partition, batches):
            yield rows, target


@dataclass(frozen=True)
class _PartitionSums:
    """The sum over the blocks of a partition of a function of rows and targets."""

    reader: PartitionRows
    work: Callable[..., Any]

    def __call__(self, partition: int, batches: Iterator[Any]) -> Iterator[Any]:
        total: Any = None
        for _, rows, target in self.reader.blocks(partition, batches):
            here = self.work(rows) if target is None else self.work(rows, np.asarray(target, np.float64))
            total = here if total is None else total + here
        if total is not None:
            yield total


def _as_column(target: NDArray[Any] | None) -> NDArray[Any]:
    assert target is not None
    if target.dtype.kind in "biuf":
        target = np.asarray(target, np.float64)
        if not np.isfinite(target).all():
            raise InvalidData(_Y_NOT_FINITE)
    return target[:, None]


@dataclass(frozen=True)
class _PartitionLabels:
    """The different labels of a partition, one more than ``most`` at the most."""

    reader: PartitionRows
    most: int

    def __call__(self, partition: int, batches: Iterator[Any]) -> Iterator[Any]:
        found: Any = None
        for _, _, target in self.reader.blocks(partition, batches):
            assert target is not None
            here = np.unique(_as_column(target)[:, 0] if target.dtype.kind == "f" else target)
            found = here if found is None else np.union1d(found, here)
            found = found[: self.most + 1]
        if found is not None:
            yield found


def _several(labels: Any) -> bool:
    return len(labels) > 1


@dataclass(frozen=True)
class _MergedLabels:
    """Joins the labels of two partitions."""

    most: int

    def __call__(self, one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
        return np.union1d(one, other)[: self.most + 1]
