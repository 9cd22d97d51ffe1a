"""Targets that stay with their rows, on the machines of a cluster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from numpy.typing import NDArray

from dperm.data.tables.row_source import RowSource
from dperm.errors import InvalidData, PlanViolation
from dperm.types import FloatArray

__all__ = ["TargetSource", "other_lengths", "rows_and_named_target", "rows_and_target", "target_source"]

Y_WITHOUT_X = "y is a Dask collection and X is not: give both as Dask collections, or y.compute()."


def other_lengths(n_rows: int, n_targets: int) -> str:
    """Return the sentence about a table and targets that do not belong together.

    >>> other_lengths(1000, 999)
    'X has 1,000 rows and y has 999: y must hold one label or number for each row of X, in the same order.'
    """
    return (
        f"X has {n_rows:,} rows and y has {n_targets:,}: y must hold one label or number for each row of X, in the "
        "same order."
    )


class TargetSource(RowSource):
    """The target of every row of a table on a cluster, as a table of one column.

    Attributes
    ----------
    checked_with_rows : bool
        Whether unusable targets are refused when rows are scaled or checked, which is before anything is reserved: a
        reading for the targets alone is then not needed.
    """

    checked_with_rows = False

    @abstractmethod
    def labels(self, most: int) -> NDArray[Any]:
        """Return the different labels, sorted; only so many that one can see whether there are more than ``most``."""

    @abstractmethod
    def varies(self) -> bool:
        """Whether there are two different targets at least."""

    @abstractmethod
    def in_numbers(self, rule: Callable[[NDArray[Any]], NDArray[Any]]) -> TargetSource:
        """Return the targets after a public rule, which is applied where the rows are.

        The rule may refuse targets by :class:`~dperm.errors.InvalidData`, with a message that shows none of them.
        """

    def __len__(self) -> int:
        return self.shape[0]

    def _parts(self) -> Iterator[FloatArray]:
        raise PlanViolation("targets on a cluster stay there: nothing may read them one by one.")


def target_source(y: Any, X: Any) -> TargetSource | None:
    """Return the targets that stay on the cluster of ``X``; None for any other target."""
    if isinstance(y, TargetSource):
        return y
    if type(y).__module__.partition(".")[0] not in ("dask", "dask_expr"):
        return None
    from dperm.data.tables.dask_rows import DaskRows
    from dperm.data.tables.dask_targets import dask_target

    if not isinstance(X, DaskRows):
        raise InvalidData(Y_WITHOUT_X)
    return dask_target(y, X) if X.on_cluster else None


def rows_and_target(X: Any, y: Any) -> tuple[Any, Any]:
    """Return readers of data on a cluster that have to know rows and target together; any other data unchanged."""
    if type(X).__module__.partition(".")[0] == "dask":
        from dperm.data.tables.dask_targets import rows_and_target as dask_rows_and_target

        return dask_rows_and_target(X, y)
    return rows_and_named_target(X, y)


def rows_and_named_target(X: Any, y: Any, names: Iterable[str] | None = None) -> tuple[Any, Any]:
    """Return readers of a Spark DataFrame, whose target ``y`` names; any other data unchanged.

    ``names`` are the columns of a fit, by which a model finds its columns; without them all columns but the target are
    features.
    """
    if not type(X).__module__.startswith("pyspark."):
        return X, y
    from dperm.data.tables.spark_rows import rows_and_target as spark_rows_and_target  # pyspark is loaded already

    return spark_rows_and_target(X, y, names)
