"""Targets that stay with their rows, on the machines of a cluster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from numpy.typing import NDArray

from dperm.data.tables.row_source import RowSource
from dperm.errors import InvalidData, PlanViolation
from dperm.types import FloatArray

__all__ = ["TargetSource", "target_source", "with_named_target"]

Y_WITHOUT_X = "y is a Dask collection and X is not: give both as Dask collections, or y.compute()."


class TargetSource(RowSource):
    """The target of every row of a table on a cluster, as a table of one column."""

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


def with_named_target(X: Any, y: Any, names: Iterable[str] | None = None) -> tuple[Any, Any]:
    """Return readers of a Spark DataFrame and of the target that ``y`` names; any other data unchanged.

    ``names`` are the columns of a fit; without them all other columns are features.
    """
    if type(X).__module__.partition(".")[0] != "pyspark":
        return X, y
    from dperm.data.tables.spark_rows import rows_and_target  # pyspark is loaded already

    return rows_and_target(X, y, names)
