"""Scores of signed coordinate directions, for private selection. Proof: ``scores.proof.md``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.weights import SparseWeights
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query, added
from dperm.errors import InvalidInput
from dperm.objective import Loss
from dperm.objective.penalties import SeparablePenalty
from dperm.queries.gradients import FullGradient, Weights, check_weights
from dperm.types import FloatArray

__all__ = ["AtomScores", "PenalisedAtomScores"]


@dataclass(frozen=True, eq=False)
class AtomScores(Query):
    """How much each signed coordinate direction would lower the total loss, to first order.

    Candidates 0..d-1 are +e_j with score -g_j, candidates d..2d-1 are -e_j with score g_j, where g is the sum over
    people of their gradients. One person changes any score by at most slope bound times value bound.
    """

    loss: Loss
    weights: Weights

    name: ClassVar[str] = "atom scores"
    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        if not math.isfinite(self.loss.slope_bound):
            raise InvalidInput(
                f"the {self.loss.name} loss has unbounded slopes: give it a residual_clip before a private selection."
            )
        if self.loss.n_outputs != 1:
            raise InvalidInput("atom scores are defined for losses of one prediction per person.")

    def part(self, block: DesignData) -> FloatArray:
        return FullGradient(self.loss, self.weights).part(block)

    def total(self, parts: Iterable[FloatArray], facts: Facts) -> FloatArray:
        gradient = added(parts)
        return np.concatenate([-gradient, gradient])

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self.loss.slope_bound * facts.value_bound * (1.0 + 2.0**-50)

    def bound(self, facts: Facts) -> float:
        return facts.n * self.zero_out_sensitivity(facts)

    def size(self, facts: Facts) -> int:
        check_weights(self.weights, self.loss, facts)
        return 2 * facts.d


@dataclass(frozen=True, eq=False)
class PenalisedAtomScores(AtomScores):
    """:class:`AtomScores` of loss and penalty together; the penalty's part is public.

    The l2 part enters by its gradient at ``weights``, the l1 part by its value at the atom (generalised conditional
    gradient: Bach, SIAM J. Optim. 2015). With an l1 part the origin is one more candidate, the last, of score 0.
    Weights must be :class:`SparseWeights`, whose box bounds them.
    """

    penalty: SeparablePenalty = field(default_factory=SeparablePenalty)
    unpenalised: tuple[int, ...] = ()

    name: ClassVar[str] = "penalised atom scores"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.weights, SparseWeights):
            raise InvalidInput("scores with a penalty need SparseWeights, whose box bounds the penalty's part.")
        if any(abs(value) > self.weights.box for value in self.weights.entries.values()):
            raise InvalidInput("scores with a penalty need weights inside their box.")
        if not (math.isinf(self.penalty.low) and math.isinf(self.penalty.high)):
            raise InvalidInput("scores with a penalty take an l1 and an l2 part, not a box.")

    @property
    def _sparse(self) -> SparseWeights:
        assert isinstance(self.weights, SparseWeights)
        return self.weights

    def _n_origins(self) -> int:
        return 1 if self.penalty.l1 > 0.0 else 0

    def total(self, parts: Iterable[FloatArray], facts: Facts) -> FloatArray:
        n, d = facts.n, facts.d
        out = np.concatenate([super().total(parts, facts), np.zeros(self._n_origins())])
        unpenalised = list(self.unpenalised)
        l1_part = np.full(d, n * self.penalty.l1)
        l1_part[unpenalised] = 0.0
        l2_part = n * self.penalty.l2 * self._sparse.dense()
        l2_part[unpenalised] = 0.0
        out[:d] -= l2_part + l1_part
        out[d : 2 * d] += l2_part - l1_part
        return out

    def zero_out_sensitivity(self, facts: Facts) -> float:
        # the public part cancels between neighbours, except for the rounding of two additions per score
        return super().zero_out_sensitivity(facts) + 2.0**-50 * self.bound(facts)

    def bound(self, facts: Facts) -> float:
        # not super().bound, which uses the sensitivity
        loss_part = self.loss.slope_bound * facts.value_bound
        return facts.n * (loss_part + self.penalty.l1 + self.penalty.l2 * self._sparse.box) * (1.0 + 2.0**-48)

    def size(self, facts: Facts) -> int:
        return super().size(facts) + self._n_origins()
