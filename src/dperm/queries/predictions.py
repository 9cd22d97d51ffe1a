"""Per-person predictions, which may be shared inside a trusted domain but have no release. See the note below.

One person's prediction *is* that person's value: no useful sensitivity exists, so :class:`PartialPredictions` refuses
to state one and :meth:`DataHolder.release` therefore cannot let it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DesignData
from dperm.data.holding.query import Query
from dperm.errors import Unsupported
from dperm.queries.gradients import predictions
from dperm.types import FloatArray

__all__ = ["PartialPredictions"]


@dataclass(frozen=True, eq=False)
class PartialPredictions(Query):
    """This holder's part of every person's prediction at public weights."""

    weights: FloatArray

    name: ClassVar[str] = "partial predictions"
    norm: ClassVar[str] = "none"

    def evaluate(self, data: DesignData) -> FloatArray:
        return predictions(data, self.weights)

    def zero_out_sensitivity(self, facts: Facts) -> NoReturn:
        raise Unsupported("partial predictions have no release: share them inside a trusted domain.")

    def bound(self, facts: Facts) -> NoReturn:
        self.zero_out_sensitivity(facts)

    def size(self, facts: Facts) -> int:
        return facts.n
