"""The query interface: data -> value, plus its own sensitivity under declared neighbours and public facts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar

from dperm.data.design.facts import Facts
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.types import FloatArray

__all__ = ["Query"]


class Query(ABC):
    """Base of all queries.

    A query's fields hold public or already released values only; everything private happens inside ``evaluate``. The
    value is a sum over people, exact in floating point; dividing by the public ``n`` is the caller's post-processing.
    """

    #: name in plans, ledgers and reports
    name: ClassVar[str]
    #: norm of the sensitivity: "l2" for noise on values, "linf" for selection
    norm: ClassVar[str]
    #: sensitivity under replace-one divided by the one under zero-out
    replacement_ratio: ClassVar[float] = 2.0

    @property
    def family(self) -> Hashable | None:
        """Key of queries that share sensitivity, bound, size and checks, so that a holder works them out once.

        None, the default, has them worked out for every release. A class that answers for itself must not answer for
        its subclasses, whose numbers may differ.
        """
        return None

    @abstractmethod
    def evaluate(self, data: Any) -> FloatArray:
        """Return the value on private data; called by a holder only."""

    @abstractmethod
    def zero_out_sensitivity(self, facts: Facts) -> float:
        """Largest change of the value when one record is replaced by an empty one."""

    @abstractmethod
    def bound(self, facts: Facts) -> float:
        """Public bound on the absolute value of every coordinate."""

    @abstractmethod
    def size(self, facts: Facts) -> int:
        """Number of coordinates."""

    def sensitivity(self, facts: Facts, neighbours: Neighbours) -> float:
        """Largest change of the value between neighbours, in the query's norm."""
        base = self.zero_out_sensitivity(facts)
        return base if neighbours is Neighbours.ZERO_OUT else base * self.replacement_ratio
