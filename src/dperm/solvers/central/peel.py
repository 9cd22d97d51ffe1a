"""Peeling: choose the support once, privately, then fit on it.

The ``n_selected`` largest gradients at w = 0 are chosen one after the other by Gumbel races (the same distribution as
keeping the largest of one set of noisy scores). Then full-batch noisy proximal gradient steps run on the chosen and the
unpenalised coordinates. This suits weakly correlated columns. With correlated columns the greedy solver is better,
because it computes new scores after every step.

**Guarantee.** Released to everyone who sees the model or any step: the chosen coordinates in their order (one selection
each) and ``n_steps`` clipped gradient sums on them with Gaussian noise. Proof: ``peel.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.weights import BoxedWeights, SparseWeights
from dperm.data.holding.holder import DataHolder
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms.standard import GaussianNoise, NoisyMax
from dperm.queries.gradients import GradientBlock
from dperm.queries.greedy import GreedyScores
from dperm.solvers.base import Progress, Solution, Solver
from dperm.solvers.central.blocks import coordinate_smoothness
from dperm.solvers.option_checks import require_positive, require_share, require_whole

__all__ = ["Peel"]


@dataclass(frozen=True)
class Peel(Solver):
    """One-shot selection of coordinates, then noisy proximal gradient steps on them.

    Parameters
    ----------
    n_selected : int
        Size of the support, not counting unpenalised coordinates.
    n_steps : int
        Gradient steps on the support.
    selection_share : float
        Share of the budget spent on choosing coordinates.
    limit : float, optional
        Bound on one person's slope times value in one coordinate, for choosing.
    clip : float, optional
        Bound on the L2 norm of one person's gradient on the support; by default half of the largest possible norm.
    step : float
        Public factor of the step; the unit step is safe for fully correlated columns.
    box : float
        Public bound on a weight's contribution.
    """

    n_selected: int = 10
    n_steps: int = 16
    selection_share: float = 0.4
    limit: float | None = None
    clip: float | None = None
    step: float = 1.0
    box: float = 64.0

    name: ClassVar[str] = "peel"

    def __post_init__(self) -> None:
        require_whole(self, "n_selected", "n_steps")
        require_share(self, "selection_share")
        require_positive(self, "limit", "clip", "step", "box")

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        self.require_no_constraint(objective)
        SeparablePenalty.of(objective.penalty)
        return Plan(
            (
                PlannedRelease(GreedyScores.name, "selection", self._count(objective, facts), self.selection_share),
                PlannedRelease(GradientBlock.name, "gaussian", self.n_steps, 1.0 - self.selection_share),
            )
        )

    def _count(self, objective: Objective, facts: Facts) -> int:
        return min(self.n_selected, facts.d - len(objective.unpenalised))

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        facts, penalty = holder.facts, SeparablePenalty.of(objective.penalty)
        n_selections = self._count(objective, facts)
        support = self._choose(objective, holder, calibrated, n_selections)
        box = self.box / facts.value_bound
        smoothness = coordinate_smoothness(objective, facts)[support].sum() + penalty.l2
        clip = self.clip or 0.5 * objective.loss.slope_bound * facts.block_bound(len(support))
        mechanism = GaussianNoise(calibrated.noise_multiplier(GradientBlock.name))
        penalised = ~np.isin(support, objective.unpenalised)
        length = self.step / smoothness
        weights = np.zeros(facts.d)
        for t in range(self.n_steps):
            query = GradientBlock(objective.loss, BoxedWeights(weights, box), clip, tuple(support))
            gradient = holder.release(query, mechanism) / facts.n
            old = weights[support]
            moved = old - length * (gradient + np.where(penalised, penalty.l2 * old, 0.0))
            weights[support] = np.clip(np.where(penalised, penalty.prox(moved, length), moved), -box, box)
            if progress is not None:
                progress(n_selections + t + 1, n_selections + self.n_steps)
        return Solution(weights, self.n_steps)

    def _choose(
        self, objective: Objective, holder: DataHolder, calibrated: CalibratedPlan, n_selections: int
    ) -> list[int]:
        """Choose the largest scores at weights 0, one after the other; add the unpenalised coordinates."""
        facts = holder.facts
        zero = SparseWeights(facts.d, {}, self.box / facts.value_bound)
        query = GreedyScores(
            objective.loss,
            zero,
            objective.loss.curvature_bound * facts.spread**2,
            replace(SeparablePenalty.of(objective.penalty), low=-math.inf, high=math.inf),
            objective.unpenalised,
            limit=self.limit,
            excluded=tuple(objective.unpenalised),
        )
        mechanism = NoisyMax(calibrated.noise_multiplier(GreedyScores.name))
        chosen: list[int] = []
        for _ in range(n_selections):
            query = replace(query, excluded=(*objective.unpenalised, *chosen))
            chosen.append(query.coordinate(int(holder.release(query, mechanism))))
        return sorted({*chosen, *objective.unpenalised})
