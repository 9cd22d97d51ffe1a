"""Tasks on the workers of a Dask cluster: one for each partition, added in a tree, of which one result comes back.

A task that refuses its rows returns the reason as a :class:`Refused`. An error that Dask sends across a cluster would
carry the values that caused it, in its message or in its traceback.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import operator
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

import numpy as np

from dperm.errors import ClusterLost, DpermError, InvalidData, InvalidInput, PlanViolation

__all__ = ["CANNOT_COMPUTE", "LOOK", "PATIENCE", "Cluster", "Refused", "current_cluster"]

CANNOT_COMPUTE = (
    "the table cannot be used: one of its partitions could not be computed on a worker, or converted to numbers."
)
CLUSTER_LOST = (
    "the Dask cluster does not answer any more, or has lost rows that it cannot read again: start it again and repeat; "
    "anything that was reserved before stays spent."
)
NO_WORKERS = "the Dask cluster has no workers: start some and repeat; anything that was reserved before stays spent."
_NO_SUM = "a query returned something other than one sum over people from a partition, and nothing of it was sent."

#: results that one task adds: few enough that workers share the additions, enough that the tree is low
_FAN_IN = 16
#: seconds between two looks at the cluster, and without any worker until it counts as lost
LOOK, PATIENCE = 5.0, 120.0


@dataclass(frozen=True)
class Refused:
    """The reason why a worker refused its rows, in place of a result."""

    message: str
    kind: type[DpermError] = InvalidData

    def error(self) -> DpermError:
        """Return the error to raise where the fit was called."""
        return self.kind(self.message)


def current_cluster() -> Cluster | None:
    """Return the cluster of this process's ``distributed`` client; None without one."""
    distributed = sys.modules.get("distributed")  # without it there is no client
    if distributed is None:
        return None
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    return Cluster(client) if client is not None and not client.asynchronous else None


class Cluster:
    """A Dask cluster, which computes on partitions and keeps them."""

    def __init__(self, client: Any) -> None:
        self.client = client

    # ---------------------------------------------------------------------------------- on partitions that are read
    def total(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Run a function once for each partition, add the results on the workers and return the sum.

        ``arguments`` has one tuple for each partition, whose first entry is the partition, not yet computed. ``finish``
        turns the sum into what is returned, on a worker.
        """
        parts = self.delayed(name, function, arguments)
        add = import_module("dask").delayed(_added, pure=False)
        while len(parts) > 1:
            key = _key(f"{name} add")
            parts = [add(some, dask_key_name=(*key, i)) for i, some in enumerate(_groups(parts))]
        if finish is not None:
            parts = self.delayed(f"{name} finish", finish, [(parts[0],)])
        return self._value(self._compute(parts)[0])

    def each(self, name: str, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run a function once for each partition and return its results, which must be small."""
        futures = self._compute(self.delayed(name, function, arguments))
        return [self._value(future) for future in futures]

    def kept(self, name: str, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run a function once for each partition and leave its results on the workers, as futures."""
        return self._compute(self.delayed(name, function, arguments))

    @staticmethod
    def delayed(name: str, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return one task for each partition, to be computed by others; a refusal takes the place of its result."""
        run, key = import_module("dask").delayed(_guarded, pure=False), _key(name)
        return [run(function, *one, dask_key_name=(*key, i)) for i, one in enumerate(arguments)]

    def _compute(self, parts: list[Any]) -> list[Any]:
        with warnings.catch_warnings():  # targets in memory are sent with their block: so they can be sent again
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            futures: list[Any] = self._safely(lambda: self.client.compute(parts))
        return futures

    # ---------------------------------------------------------------------------------- on results that are kept
    def sum_of_kept(self, name: str, function: Callable[..., Any], *kept: Sequence[Any], constants: Any = ()) -> Any:
        """Run a function on each kept result where it is, add the results on the workers and return the sum.

        More sequences than the kept results have one more argument each; ``constants`` are the last ones of all.
        """
        return self._value(self._safely(lambda: self._submitted(name, function, kept, constants)))

    def _submitted(self, name: str, function: Callable[..., Any], kept: Sequence[Any], constants: Any) -> Any:
        client, parts = self.client, self._mapped(name, function, kept, constants)
        while len(parts) > 1:
            key = _key(f"{name} add")
            parts = [client.submit(_added, some, key=(*key, i)) for i, some in enumerate(_groups(parts))]
        return parts[0]

    def each_kept(self, name: str, function: Callable[..., Any], kept: Sequence[Any], *constants: Any) -> Iterator[Any]:
        """Run a function on each kept result where it is; yield its results, which must be small, as they come."""
        for future in self._safely(lambda: self._mapped(name, function, [kept], constants)):
            yield self._value(future)

    def _mapped(self, name: str, function: Callable[..., Any], kept: Sequence[Any], constants: Any) -> list[Any]:
        key = _key(name)
        keys = [(*key, i) for i in range(len(kept[0]))]
        futures: list[Any] = self.client.map(_Guarded(function, constants), *kept, key=keys, pure=False)
        return futures

    # ---------------------------------------------------------------------------------- results
    def _value(self, future: Any) -> Any:
        """Return a result; errors of workers are replaced by a sentence without values."""
        found = self._safely(lambda: self._waited(future))
        if isinstance(found, Refused):
            raise found.error()
        return found

    def _waited(self, future: Any) -> Any:
        alone = 0.0
        while True:
            started = time.monotonic()
            try:
                future.exception(timeout=LOOK)  # waits until the task has ended, well or not
                return self.client.gather(future)
            except TimeoutError:
                if future.done():
                    raise
            alone = alone + time.monotonic() - started if not self._has_workers() else 0.0
            if alone >= PATIENCE:  # a cluster that adapts starts workers only when there is work
                raise ClusterLost(NO_WORKERS if self.client.status == "running" else CLUSTER_LOST)

    def _has_workers(self) -> bool:
        return self.client.status == "running" and bool(self.client.nthreads())

    def _safely(self, work: Callable[[], Any]) -> Any:
        """Run ``work``; an error of Dask, or of the graph that makes the partitions, becomes a sentence."""
        refused: DpermError
        try:
            return work()
        except DpermError as error:
            refused = type(error)(str(error))
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            refused = ClusterLost(CLUSTER_LOST)
        except Exception as error:
            lost = self.client.status != "running" or _is_loss(error)
            refused = ClusterLost(CLUSTER_LOST) if lost else InvalidData(CANNOT_COMPUTE)
        raise refused  # outside the except block: an error's context would keep the values


def _is_loss(error: Exception) -> bool:
    """Whether an error says that a worker or its data are gone."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    gone = {"KilledWorker", "CommClosedError", "FutureCancelledError", "TimeoutError", "NoValidWorkerError"}
    return bool(kinds & gone) or "lost dependencies" in str(error)


def _key(name: str) -> tuple[str]:
    """Return the first part of the keys of tasks, by which the dashboard names and groups them."""
    words = f"dperm {name}".replace(" ", "-")
    return (f"{words}-{uuid.uuid4().hex}",)


def _groups(parts: Sequence[Any]) -> list[list[Any]]:
    return [list(parts[start : start + _FAN_IN]) for start in range(0, len(parts), _FAN_IN)]


# -------------------------------------------------------------------------------------------- on the workers
def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function, or the reason for its refusal."""
    for one in arguments:
        if isinstance(one, Refused):
            return one
    try:
        return function(*arguments)
    except DpermError as error:
        kinds = (InvalidData, InvalidInput, PlanViolation)
        return Refused(str(error), next(kind for kind in kinds if isinstance(error, kind) or kind is PlanViolation))
    except Exception:  # its message may show values
        return Refused(CANNOT_COMPUTE)


@dataclass(frozen=True, eq=False)
class _Guarded:
    """The same with constants, which are sent with the task."""

    function: Callable[..., Any]
    constants: tuple[Any, ...]

    def __call__(self, *kept: Any) -> Any:
        return _guarded(self.function, *kept, *self.constants)


def _added(parts: list[Any]) -> Any:
    """Return the sum of results, the first refusal among them, or a refusal of arrays of different shapes."""
    refused = next((one for one in parts if isinstance(one, Refused)), None)
    if refused is not None:
        return refused
    if len({np.shape(one) for one in parts if isinstance(one, np.ndarray)}) > 1:
        return Refused(_NO_SUM, PlanViolation)
    return _guarded(reduce, operator.add, parts)
