"""Greedy descent for many columns and few that matter: what ``solver="auto"`` uses where p is not small against n.

As :mod:`~dperm.solvers.central.greedy`, but started at the best constant, with a person's product of slope and value
clipped at a few typical ones (for regression from a released deviation of the target), and with every released
gradient u of noise s multiplied by max(0, 1 - (s / u)^2) g^2 / (g^2 + s^2), so that a column that was chosen by chance
moves little (the positive-part rule of James & Stein, and gradients of usual size g).

**Guarantee.** Released to whoever sees the model or any step: the target's mean, for regression its mean deviation,
``n_steps`` chosen coordinates and as many noisy gradient sums of one coordinate. Everything but the clip, which uses
an earlier release, is fixed in advance. Proof: ``pursuit.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dperm.data.design.facts import Facts
from dperm.data.design.weights import SparseWeights
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise, NoisyMax
from dperm.queries.gradients import GradientCoordinate
from dperm.queries.greedy import GreedyScores
from dperm.solvers._checks import positive, share, whole
from dperm.solvers.base import Forecast, Progress, Solution, Solver
from dperm.solvers.central.auto.null_test import NOTHING_SEEN
from dperm.solvers.central.auto.recipes import recipe_for
from dperm.solvers.central.auto.starting_point import StartingPoint
from dperm.solvers.central.blocks import coordinate_smoothness

__all__ = ["SparsePursuit"]

#: size of the gradient of a column that matters, in limits of one person's product
_TRUE_GRADIENT = 1.0 / 3.0


@dataclass(frozen=True)
class SparsePursuit(Solver):
    """Greedy coordinate descent with released scales and shrunken steps.

    Parameters
    ----------
    n_steps : int
        Number of steps, and the largest number of weights that are not zero, besides the intercept.
    selection_share : float
        Share of the descent's budget that is spent on choosing.
    target_share, deviation_share : float
        Shares of the whole budget for the target's mean (with an intercept) and its deviation (regression).
    clip : float
        Bound on one person's product of slope and value, in typical slopes times spread.
    box : float
        Public bound on a weight's contribution; weights are projected to it.
    """

    n_steps: int = 10
    selection_share: float = 0.75
    target_share: float = 0.03
    deviation_share: float = 0.03
    clip: float = 1.5
    box: float = 64.0

    name: ClassVar[str] = "pursuit"

    def __post_init__(self) -> None:
        whole(self, "n_steps")
        share(self, "selection_share", "target_share", "deviation_share")
        positive(self, "clip", "box")
        if self.target_share + self.deviation_share > 0.9:
            raise InvalidInput("the shares leave less than a tenth of the budget for the descent: make them smaller.")

    @property
    def _start(self) -> StartingPoint:
        return StartingPoint(self.target_share, self.deviation_share)

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        SeparablePenalty.of(objective.penalty)
        self.require_no_constraint(objective)
        before = self._start.releases(objective.loss, facts)
        rest = 1.0 - sum(release.share for release in before)
        chosen, measured = rest * self.selection_share, rest * (1.0 - self.selection_share)
        return Plan(
            (
                *before,
                PlannedRelease(GreedyScores.name, "selection", self.n_steps, chosen),
                PlannedRelease(GradientCoordinate.name, "gaussian", self.n_steps, measured),
            )
        )

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        facts, loss = holder.facts, objective.loss
        penalty = SeparablePenalty.of(objective.penalty)
        best = self._start.release(loss, holder, calibrated)
        smoothness = coordinate_smoothness(objective, facts) * (recipe_for(loss).bend / loss.curvature_bound)
        limit = min(self.clip * best.slope * facts.spread, loss.slope_bound * facts.value_bound)
        choose = NoisyMax(calibrated.noise_multiplier(GreedyScores.name))
        measure = GaussianNoise(calibrated.noise_multiplier(GradientCoordinate.name))
        noise = measure.noise_multiplier * holder.neighbours.records_apart * limit / facts.n
        heights = (facts.value_bound, facts.intercept_height or facts.value_bound)
        box = self.box / min(heights)
        # one curvature for all columns: the intercept is at its best constant and seldom worth a step
        query = GreedyScores(
            loss, SparseWeights(facts.d, {}, box), float(smoothness[0]), penalty, objective.unpenalised, "GS-r", limit
        )
        query = replace(query, race=(choose.noise_multiplier, query.sensitivity(facts, holder.neighbours)))
        entries: dict[int, float] = {}
        # the largest gradient that chance in the data gives to columns of no use
        chance = best.slope / best.skew * facts.spread * math.sqrt(2.0 * math.log(max(2, facts.d)) / facts.n)
        n_clear = 0
        if best.constant is not None:
            entries[facts.d - 1] = min(max(float(best.constant), -self.box), self.box) / facts.intercept_height
        for t in range(self.n_steps):
            weights = SparseWeights(facts.d, dict(entries), box)
            j = int(holder.release(replace(query, weights=weights), choose))
            released = holder.release(GradientCoordinate(loss, weights, limit, (j,)), measure)
            if j < facts.n_features:  # a constant that moves tells nothing of columns
                n_clear += abs(float(released[0])) / facts.n > 2.0 * noise + chance
            gradient = _shrunk(float(released[0]) / facts.n, noise, _TRUE_GRADIENT * limit)
            free = SeparablePenalty() if j in objective.unpenalised else penalty
            length = 1.0 / (float(smoothness[j]) + free.l2)
            weight = entries.get(j, 0.0)
            moved = free.prox_one(weight - length * (gradient + free.l2 * weight), length)
            most = self.box / heights[j == facts.n_features]
            entries[j] = min(max(moved, -most), most)
            if entries[j] == 0.0:
                del entries[j]
            if progress is not None:
                progress(t + 1, self.n_steps)
        notes = best.notes
        if not n_clear:
            entries = {j: weight for j, weight in entries.items() if j == facts.n_features}
            if not self._start.doubts(loss, facts, calibrated, holder.neighbours):  # the plan says more
                notes += (NOTHING_SEEN,)
        return Solution(SparseWeights(facts.d, entries, box).dense(), self.n_steps, notes)

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        recipe = recipe_for(objective.loss)
        slope = 1.0 if recipe.slope is None else recipe.slope
        unit = "" if recipe.slope is not None else ", in units of the target's squared mean deviation"
        largest = neighbours.records_apart * self.clip * slope / facts.n
        measured = calibrated.noise_multiplier(GradientCoordinate.name) * largest
        # the largest of d Gumbel noises is about log d of their scale: smaller gradients are not found
        missed = calibrated.noise_multiplier(GreedyScores.name) * largest * math.log(max(3, facts.d))
        return Forecast(
            excess=self.n_steps * (measured**2 + missed**2) / (2.0 * recipe.bend),
            null_excess=recipe.explained * slope**2,
            basis=f"Estimate, not a bound: noise of measured gradients, and gradients too small to be chosen{unit}.",
            assumes=(
                f"about {self.n_steps} columns matter",
                f"weights can explain about {recipe.explained * slope**2:.2g} of a constant's loss",
            ),
            doubts=self._start.doubts(objective.loss, facts, calibrated, neighbours),
        )


def _shrunk(value: float, noise: float, usual: float) -> float:
    """Shrink a noisy gradient twice: by what exceeds its noise, and as if true gradients were of the ``usual`` size.

    The second bounds what a wild draw does where noise is far above anything that a gradient can be.
    """
    if not value:
        return 0.0
    return value * max(0.0, 1.0 - (noise / value) ** 2) * usual**2 / (usual**2 + noise**2)
