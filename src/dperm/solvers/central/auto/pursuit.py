"""Greedy descent for many columns of which few matter: ``solver="auto"`` uses it where noise dominates.

It works like :mod:`~dperm.solvers.central.greedy` with three changes. It starts at the best constant. One person's
product of slope and value is clipped at a few typical products (in regression their size comes from the released
deviation of the target). Each released gradient u with noise s is multiplied by
max(0, 1 - (s / u)^2) g^2 / (g^2 + s^2), with g the typical size of a gradient, so that a column selected by chance
moves little (positive-part James-Stein factor, and a normal prior).

**Guarantee.** Released to whoever sees the model or any step: the target's mean, for regression its mean deviation,
``n_steps`` selected coordinates and as many noisy gradient sums of one coordinate. Everything is fixed in advance
except the clip, which uses an earlier release. Proof: ``pursuit.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dperm.data.design.facts import Facts
from dperm.data.design.weights import SparseWeights
from dperm.data.holding.holder import DataHolder
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise, NoisyMax
from dperm.queries.gradients import GradientCoordinate
from dperm.queries.greedy import GreedyScores
from dperm.solvers.base import Forecast, Progress, Solution, Solver
from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.costs import explainable
from dperm.solvers.central.auto.scales import scale_of
from dperm.solvers.central.auto.shrinkage import NO_INFORMATIVE_COLUMN
from dperm.solvers.central.auto.starting_point import BestConstant, StartingPoint
from dperm.solvers.central.blocks import coordinate_smoothness
from dperm.solvers.option_checks import require_positive, require_rest, require_share, require_whole
from dperm.types import FloatArray

__all__ = ["Pursued", "SelectionCost", "SparsePursuit"]


@dataclass(frozen=True)
class SelectionCost:
    """How a step selects a column and measures its gradient, and which planned releases pay for it.

    Without a group each of the two is a planned release of its own.
    """

    select: NoisyMax
    measure: GaussianNoise
    group: str | None = None
    select_units: int = 1
    measure_units: int = 1


@dataclass(frozen=True)
class Pursued:
    """Weights that are not zero, the bound on each, how many steps found a gradient, and the typical size of a score.

    That size is what signal and noise of all steps would give together, from public and released numbers.
    """

    entries: dict[int, float]
    box: float
    n_significant: int
    typical_score: float


@dataclass(frozen=True)
class SparsePursuit(Solver):
    """Greedy coordinate descent with released scales and shrunken steps.

    Parameters
    ----------
    n_steps : int
        Number of steps, and the largest number of non-zero weights besides the intercept.
    selection_share : float
        Share of the descent's budget that is spent on selecting columns.
    target_share, deviation_share : float
        Shares of the whole budget for the target's mean (with an intercept) and its mean deviation
        (regression).
    clip : float
        Clipping threshold for one person's product of slope and value, in typical slopes times spread.
    box : float
        Public bound on a weight's contribution; weights are projected to it.
    """

    n_steps: int = RULE.n_steps // 4
    selection_share: float = RULE.selection_share
    target_share: float = RULE.small_share
    deviation_share: float = RULE.small_share
    clip: float = RULE.pursuit_clip
    box: float = RULE.largest_contribution

    name: ClassVar[str] = "pursuit"

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_share(self, "selection_share", "target_share", "deviation_share")
        require_positive(self, "clip", "box")
        require_rest(self, "target_share", "deviation_share")

    @property
    def starting_point(self) -> StartingPoint:
        """Releases of the best constant and the slope size."""
        return StartingPoint(self.target_share, self.deviation_share)

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        SeparablePenalty.of(objective.penalty)
        self.require_no_constraint(objective)
        before = self.starting_point.releases(objective.loss, facts)
        rest = 1.0 - sum(release.share for release in before)
        selected, measured = rest * self.selection_share, rest * (1.0 - self.selection_share)
        return Plan(
            (
                *before,
                PlannedRelease(GreedyScores.name, "selection", self.n_steps, selected),
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
        best = self.starting_point.release(loss, holder, calibrated)
        select = NoisyMax(calibrated.noise_multiplier(GreedyScores.name))
        measure = GaussianNoise(calibrated.noise_multiplier(GradientCoordinate.name))
        found = self.pursue(objective, holder, best, SelectionCost(select, measure), progress)
        entries, notes = found.entries, best.notes
        if not found.n_significant:
            entries = {j: weight for j, weight in entries.items() if j == facts.n_features}
            if not self.starting_point.utility_warnings(
                loss, facts, calibrated, holder.neighbours
            ):  # the plan has warned already
                notes += (NO_INFORMATIVE_COLUMN,)
        return Solution(SparseWeights(facts.d, entries, found.box).dense(), self.n_steps, notes)

    def _smoothness(self, objective: Objective, facts: Facts) -> FloatArray:
        """Return the curvature that sets the step along each column."""
        loss = objective.loss
        return coordinate_smoothness(objective, facts) * (scale_of(loss).step_curvature / loss.curvature_bound)

    def _scores(self, objective: Objective, facts: Facts, best: BestConstant) -> GreedyScores:
        """Return the query of a selection, at zero weights."""
        limit = min(self.clip * best.slope * facts.spread, objective.loss.slope_bound * facts.value_bound)
        weights = SparseWeights(facts.d, {}, self.box / min(facts.value_bound, facts.intercept_height or math.inf))
        # one curvature for all columns: the intercept starts at the best constant and seldom needs a step
        curvature, penalty = float(self._smoothness(objective, facts)[0]), SeparablePenalty.of(objective.penalty)
        return GreedyScores(objective.loss, weights, curvature, penalty, objective.unpenalised, "GS-r", limit)

    def check(
        self, objective: Objective, facts: Facts, neighbours: Neighbours, best: BestConstant, choice: SelectionCost
    ) -> None:
        """Refuse, from public numbers, what :meth:`pursue` would refuse later."""
        scores = self._scores(objective, facts, best)
        assert isinstance(scores.limit, float)
        coordinate = GradientCoordinate(objective.loss, scores.weights, scores.limit, (0,))
        choice.select.noise_scale(scores.sensitivity(facts, neighbours), scores.bound(facts), scores.size(facts))
        choice.measure.noise_scale(coordinate.sensitivity(facts, neighbours), coordinate.bound(facts), 1)

    def pursue(
        self,
        objective: Objective,
        holder: DataHolder,
        best: BestConstant,
        choice: SelectionCost,
        progress: Progress | None = None,
    ) -> Pursued:
        """Select and measure columns from the best constant on."""
        facts, loss = holder.facts, objective.loss
        penalty, smoothness = SeparablePenalty.of(objective.penalty), self._smoothness(objective, facts)
        query, select, measure = self._scores(objective, facts, best), choice.select, choice.measure
        limit, box = query.limit, query.weights.box
        assert isinstance(limit, float)
        noise = measure.noise_multiplier * holder.neighbours.records_apart * limit / facts.n
        heights = (facts.value_bound, facts.intercept_height or facts.value_bound)
        if choice.group is None:  # a race refuses some numbers, and what may follow a test must not be refused
            query = replace(query, race=(select.noise_multiplier, query.sensitivity(facts, holder.neighbours)))
        entries: dict[int, float] = {}
        # typical largest gradient of d uninformative columns, from sampling variation alone
        largest_by_chance = best.slope / best.skew * facts.spread * math.sqrt(2.0 * math.log(max(2, facts.d)) / facts.n)
        n_significant = 0
        if best.constant is not None:
            entries[facts.d - 1] = min(max(float(best.constant), -self.box), self.box) / facts.intercept_height
        for t in range(self.n_steps):
            weights = SparseWeights(facts.d, dict(entries), box)
            j = int(holder.release(replace(query, weights=weights), select, choice.group, choice.select_units))
            coordinate = GradientCoordinate(loss, weights, limit, (j,))
            released = holder.release(coordinate, measure, choice.group, choice.measure_units)
            if j < facts.n_features:  # the intercept is not evidence for a column
                n_significant += abs(float(released[0])) / facts.n > RULE.clear * noise + largest_by_chance
            gradient = _shrink(float(released[0]) / facts.n, noise, 0.5 * limit)
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
        typical = math.hypot(noise, 0.5 * limit) / (float(smoothness[0]) + penalty.l2)
        return Pursued(entries, box, n_significant, math.sqrt(self.n_steps) * typical * facts.spread)

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        scale = scale_of(objective.loss)
        slope = 1.0 if scale.slope is None else scale.slope
        unit = "" if scale.slope is not None else ", in units of the target's squared mean deviation"
        largest = neighbours.records_apart * self.clip * slope / facts.n
        measured = calibrated.noise_multiplier(GradientCoordinate.name) * largest
        # the largest of d Gumbel noises is about log d times their scale: smaller gradients are not selected
        missed = calibrated.noise_multiplier(GreedyScores.name) * largest * math.log(max(2, facts.d))
        return Forecast(
            excess=self.n_steps * (measured**2 + missed**2) / (2.0 * scale.step_curvature),
            null_excess=explainable(objective.loss),
            basis=f"Estimate, not a bound: noise of measured gradients, and gradients too small to be selected{unit}.",
            assumptions=(
                f"about {self.n_steps} columns are relevant",
                f"the columns can explain about {explainable(objective.loss):.2g} of a constant's loss",
            ),
            warnings=self.starting_point.utility_warnings(objective.loss, facts, calibrated, neighbours),
        )


def _shrink(value: float, noise: float, typical: float) -> float:
    """Shrink a noisy gradient by the James-Stein factor and by the factor of a normal prior.

    The prior has the standard deviation ``typical``. It limits the effect of extreme noise where noise is far larger
    than any possible gradient.
    """
    if not value:
        return 0.0
    return value * max(0.0, 1.0 - (noise / value) ** 2) * typical**2 / (typical**2 + noise**2)
