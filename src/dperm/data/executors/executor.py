"""Blocks of rows, and the interface of everything that computes on them. Proof: ``executor.proof.md``."""

from __future__ import annotations

import hashlib
import hmac
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix, Shape
from dperm.data.executors.target_rules import AsGiven, TargetRule
from dperm.data.holding.design_data import DesignData
from dperm.data.tables.row_source import ROWS_CHANGED
from dperm.errors import InvalidData, PlanViolation
from dperm.types import FloatArray

__all__ = ["Block", "Executor", "PlacedData", "Reading", "TargetView", "Work", "bounded_part"]

#: told how many rows are read, and how many there are
Reading = Callable[[int, int], None]

_NO_SUM = (
    "a query returned something other than sums over people, or more of them than it declares, and nothing of it was "
    "sent."
)


class Work(Protocol):
    """What an executor runs: a query, or one of the sums that a private objective is made of."""

    @property
    def name(self) -> str:
        """Name of the tasks that compute it on a cluster."""

    @property
    def reads_columns(self) -> bool:
        """Whether a part reads few columns only, so that reading whole blocks ahead would be a waste."""

    def part(self, block: DesignData) -> FloatArray:
        """Return the exact sum over the people of a block."""

    def part_size(self, facts: Facts) -> int:
        """Largest number of coordinates of a part; public, and the same for any number of people in a block."""


@dataclass(frozen=True)
class TargetView:
    """How a problem sees the targets: a public rule for each of them, and the bounds of the result."""

    low: float = 0.0
    high: float = 1.0
    rule: TargetRule = field(default_factory=AsGiven)


class Block:
    """Some scaled rows with their targets, and everything that is kept about these people between queries.

    Nothing of it leaves the block but the results of :meth:`part`.

    Parameters
    ----------
    design : DesignMatrix
        The rows, with the public shape of the whole table.
    target : array
        One number for each row.
    first : int
        Number of the first row in the whole table.
    """

    def __init__(self, design: DesignMatrix, target: FloatArray, first: int) -> None:
        if design.n_rows != len(target):
            raise InvalidData(ROWS_CHANGED)
        self._design, self._target, self._first = design, target, first
        self._seen: tuple[TargetView, DesignData] | None = None
        self._digest: tuple[bytes, bytes] | None = None
        self._lock = threading.Lock()

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._target)

    def digest(self, key: bytes) -> bytes:
        """Return a keyed digest of rows, targets and their place in the table, by which a lost block is recognised."""
        if self._digest is None or self._digest[0] != key:
            # SHA-256 because processors compute it: the digest is most of the work of placing a block
            made = hmac.new(key, str((self._first, self.n_rows)).encode(), hashlib.sha256)
            for array in (*self._design.stored(), self._target):
                made.update(f"{array.dtype.str} {array.shape}".encode())
                made.update(np.ascontiguousarray(array).data)
            self._digest = key, made.digest()
        return self._digest[1]

    def seen(self, view: TargetView) -> DesignData:
        """Return the rows with the targets of a problem; what is kept belongs to the last problem."""
        with self._lock:
            if self._seen is None or self._seen[0] != view:
                self._seen = view, DesignData(self._design, view.rule(self._target), view.low, view.high, self._first)
            return self._seen[1]

    def part(self, work: Work, view: TargetView) -> FloatArray:
        """Return the part of a query on these rows."""
        data = self.seen(view)
        # kept results are changed in place, and a floating-point warning would reveal something about a person
        with data.cache.lock, np.errstate(all="ignore"):
            return work.part(data)

    def __sizeof__(self) -> int:
        # in memory, roughly: a scheduler moves small results to idle workers, and large ones stay where they are
        return object.__sizeof__(self) + self.n_rows * (4 * self._design.n_features + 8)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_seen": None}  # what is kept can be recomputed anywhere

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())


def bounded_part(block: Block, work: Work, view: TargetView, most: int) -> FloatArray:
    """Return the part of a query on a worker; anything but an array of at most ``most`` numbers stays there."""
    part = block.part(work, view)
    if not isinstance(part, np.ndarray) or part.dtype != np.float64 or part.size > most:
        raise PlanViolation(_NO_SUM)
    return part


class Executor(ABC):
    """Keeps the blocks of a table where they are, runs queries on them and returns sums over people.

    Attributes
    ----------
    shape : Shape
        Public numbers of the design.
    n_rows : int
        Number of rows; equals the public ``shape.n``.
    """

    shape: Shape
    n_rows: int

    def __reduce__(self) -> str:
        raise TypeError("an executor keeps raw data and cannot be pickled.")

    @abstractmethod
    def parts(self, work: Work, view: TargetView) -> Iterator[FloatArray]:
        """Run ``work.part`` on every block, and yield its results or sums of them, in any order."""

    def only_block(self, view: TargetView) -> DesignData | None:
        """Return the data if all are one block in this process, else None."""
        return None


@dataclass(frozen=True)
class PlacedData:
    """The private data of one problem, wherever they are: what a :class:`DataHolder` asks for a query's value."""

    executor: Executor = field(repr=False)
    view: TargetView = field(default_factory=TargetView)

    @property
    def facts(self) -> Facts:
        """Public facts of the table."""
        return Facts.of_design(self.executor.shape, self.view.low, self.view.high)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.executor.n_rows

    def __reduce__(self) -> str:
        raise TypeError("placed data lead to raw data and cannot be pickled.")

    @property
    def only_block(self) -> DesignData | None:
        """The data if all are one block in this process, else None."""
        return self.executor.only_block(self.view)

    def parts(self, work: Work) -> Iterator[FloatArray]:
        """Yield the parts of a query, or sums of them."""
        return self.executor.parts(work, self.view)
