"""Per-person predictions, which may be shared inside a trusted domain but have no release. See the note below.

One person's prediction *is* that person's value: no useful sensitivity exists, so :class:`PartialPredictions` refuses
to state one and :meth:`DataHolder.release` therefore cannot let it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from dperm.data.facts import Facts
from dperm.data.holder import DesignData
from dperm.data.query import Query
from dperm.errors import Unsupported
from dperm.queries.gradients import predictions

__all__ = ["PartialPredictions"]


@dataclass(frozen=True, eq=False)
class PartialPredictions(Query):
    """This holder's part of every person's prediction at public weights."""

    weights: NDArray[np.float64]

    name: ClassVar[str] = "partial predictions"
    norm: ClassVar[str] = "none"

    def evaluate(self, data: DesignData) -> NDArray[np.float64]:
        return predictions(data, self.weights)

    def zero_out_sensitivity(self, facts: Facts) -> NoReturn:
        raise Unsupported("partial predictions have no release: share them inside a trusted domain.")

    def bound(self, facts: Facts) -> NoReturn:
        self.zero_out_sensitivity(facts)

    def size(self, facts: Facts) -> int:
        return facts.n
