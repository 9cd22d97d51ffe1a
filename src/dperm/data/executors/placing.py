"""The choice of an executor, by the kind of data."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dperm.data.design.matrix import Scaling
from dperm.data.executors.executor import Executor, Reading
from dperm.data.executors.files import file_executor
from dperm.data.executors.threads import MemoryExecutor
from dperm.data.tables.row_source import RowSource

__all__ = ["place"]

#: module and executor for rows on a cluster; imported when there are such rows, and then their library is loaded
_CLUSTERS = {
    "DaskRows": ("dperm.data.executors.dask_cluster", "DaskExecutor"),
    "SparkRows": ("dperm.data.executors.spark_cluster", "SparkExecutor"),
}


def place(X: Any, target: Any, scaling: Scaling, intercept: float = 0.0, reading: Reading | None = None) -> Executor:
    """Clip, scale and round the rows of ``X`` with public constants, and keep them with their targets.

    Parameters
    ----------
    X : array, scipy sparse array or RowSource
        The user's table.
    target : array or TargetSource
        One number for each row.
    scaling : Scaling
        Public constants of the columns.
    intercept : float
        Height of the constant column, 0 for none.
    reading : callable, optional
        Told how many rows are read, and how many there are. Rows in memory are not read; Spark shows its jobs itself.
    """
    if not isinstance(X, RowSource):
        return MemoryExecutor(X, target, scaling, intercept)
    if not X.on_cluster:
        return file_executor(X, target, scaling, intercept, reading)
    module, name = _CLUSTERS[type(X).__name__]
    made: Executor = getattr(import_module(module), name)(X, target, scaling, intercept, reading)
    return made
