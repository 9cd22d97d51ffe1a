"""Scores for private selection. Proof: ``scores.proof.md``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.facts import Facts
from dperm.data.holder import DesignData
from dperm.data.query import Query
from dperm.errors import InvalidInput
from dperm.objective import Loss
from dperm.queries.gradients import check_weights, clipped_slopes

__all__ = ["AtomScores"]


@dataclass(frozen=True, eq=False)
class AtomScores(Query):
    """How much each signed coordinate direction would lower the total loss, to first order.

    Candidates 0..d-1 are +e_j with score -g_j, candidates d..2d-1 are -e_j with score g_j, where g is the sum over
    people of their gradients. One person changes any score by at most slope bound times value bound.
    """

    loss: Loss
    weights: NDArray[np.float64]

    name: ClassVar[str] = "atom scores"
    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        if not math.isfinite(self.loss.slope_bound):
            raise InvalidInput(
                f"the {self.loss.name} loss has unbounded slopes: give it a residual_clip before a private selection."
            )
        if self.loss.n_outputs != 1:
            raise InvalidInput("atom scores are defined for losses of one prediction per person.")

    def evaluate(self, data: DesignData) -> NDArray[np.float64]:
        slopes, spacing = clipped_slopes(data, self.loss, self.weights, np.inf)
        gradient = data.design.sums(slopes) * (data.design.spacing * spacing)
        return np.concatenate([-gradient, gradient])

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self.loss.slope_bound * facts.value_bound * (1.0 + 2.0**-50)

    def bound(self, facts: Facts) -> float:
        return facts.n * self.zero_out_sensitivity(facts)

    def size(self, facts: Facts) -> int:
        check_weights(self.weights, self.loss, facts)
        return 2 * facts.d
