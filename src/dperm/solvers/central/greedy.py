"""Greedy coordinate descent (DP-GCD) and its proximal version: each step updates the coordinate of largest score.

At every step one coordinate is chosen privately by its score and moved along its noisy gradient:

    j ~ Gumbel race over scores,   w_j <- prox(w_j - step / M_j (g_j + noise_j)),

from w = 0, so that after T steps at most T weights are nonzero (Mangold, Bellet, Salmon & Tommasi, AISTATS 2023).
Scores are gradients in units of sqrt(M_j). Their noise is calibrated to the largest C_j / sqrt(M_j), where C_j bounds
one person's contribution to column j; the noise of an update of column j is calibrated to its own C_j.
The published calibration (Laplace noise on the gradients before the absolute value) does not give the guarantee it
states. Here the scores get Gumbel noise for one common sensitivity, and the chosen gradient gets Gaussian noise.

**Guarantee.** Released to everyone who sees the model or any step: ``n_steps`` chosen coordinates and as many noisy
gradient sums of one coordinate. Proof: ``greedy.proof.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.weights import SparseWeights
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import BoxPenalty, Loss, Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.printed import LaplaceInsideMax, Printed, UncertifiedLaplaceInsideMax, greedy_epsilon
from dperm.privacy.mechanisms.standard import GaussianNoise, LaplaceNoise, NoisyMax
from dperm.queries.gradients import GradientCoordinate
from dperm.queries.greedy import RULES, ColumnConstants, GradientCoordinateL1, GreedyGradients, GreedyScores
from dperm.solvers.base import Forecast, Progress, Solution, Solver, report_step
from dperm.solvers.central.blocks import coordinate_smoothness
from dperm.solvers.option_checks import (
    one_per_column,
    require_positive,
    require_positive_or_list,
    require_share,
    require_whole,
)
from dperm.solvers.theory import forecasts
from dperm.types import FloatArray

__all__ = ["GreedyCoordinateDescent"]

#: a value bound of at most this many times the public guess of the root mean square is a declared range, not a clip
_RANGE_ONLY = 1.8


@dataclass(frozen=True)
class GreedyCoordinateDescent(Solver):
    """DP-GCD with Gumbel selection and Gaussian updates.

    Parameters
    ----------
    n_steps : int
        Number of steps, and the largest number of nonzero weights.
    rule : {"GS-r", "GS-s", "GS-q"}
        How a coordinate is scored when there is a penalty; without one all three are the magnitude of the gradient.
    selection_share : float
        Share of the budget spent on choosing coordinates.
    step : float
        Public factor of the step 1/M_j; the score always uses the unit step.
    limit : float or sequence of float, optional
        C_j, the bound on one person's slope times value in a coordinate: one number for all or one for each (the
        intercept's last). By default the largest possible product, which clips nothing. All scores get the noise of the
        largest C_j / sqrt(M_j), so C_j in proportion to sqrt(M_j) wastes no noise (Mangold et al. 2022).
    smoothness : float or sequence of float, optional
        M_j, the public curvature of the coordinates of the mean loss: one number for all features or one for each
        coordinate (the intercept's last). By default the curvature bound times the squared spread; where only a range
        was declared, times two thirds of the squared bound, because a column of two values fills its range. The
        intercept's M_j follows from its height.
    box : float
        Public bound on a weight's contribution (weight times value); weights are projected to it.
    printed_form : {"implicit", "closed"}
        Which of the paper's two formulas ``calibration="paper"`` uses.
    incremental : bool
        Whether scores of sparse data are updated from step to step instead of recomputed by a full pass; the
        distribution of the result is the same.
    """

    n_steps: int = 20
    rule: str = "GS-r"
    selection_share: float = 0.75
    step: float = 1.0
    limit: float | tuple[float, ...] | None = None
    smoothness: float | tuple[float, ...] | None = None
    box: float = 64.0
    printed_form: str = "implicit"
    incremental: bool = True

    name: ClassVar[str] = "greedy"

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_share(self, "selection_share")
        require_positive(self, "step", "box")
        require_positive_or_list(self, "limit", "smoothness")
        if self.rule not in RULES:
            raise InvalidInput(f"rule must be one of {', '.join(RULES)}, not {self.rule!r}.")

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        self.require_no_constraint(objective)
        SeparablePenalty.of(objective.penalty)
        self._smoothness(objective, facts)  # refuses a sequence of the wrong length
        self._limits(facts)
        return Plan(
            (
                PlannedRelease(GreedyScores.name, "selection", self.n_steps, self.selection_share),
                PlannedRelease(GradientCoordinate.name, "gaussian", self.n_steps, 1.0 - self.selection_share),
            )
        )

    def printed(self, objective: Objective, facts: Facts, budget: Budget) -> Printed:
        if self.rule != "GS-s":
            raise Unsupported("calibration='paper' of solver 'greedy' is certified for rule='GS-s' only: choose that.")
        if objective.penalty.name == BoxPenalty.name:
            raise Unsupported(
                "calibration='paper' of solver 'greedy' takes no box, because scores cut off at the box tie: use "
                "another penalty."
            )
        self._one_number_for_all()
        return Printed(
            self._printed_plan(budget, LaplaceInsideMax.kind),
            "the DP-GCD paper's calibration charges each greedy choice half of what it can cost",
        )

    def printed_noise(self, budget: Budget) -> CalibratedPlan:
        """Return the plan with the noise that the paper prints, for any rule; a comparison without any guarantee.

        Its event is unbounded. :meth:`printed` gives the certified cost where there is one.
        """
        return self._printed_plan(budget, UncertifiedLaplaceInsideMax.kind)

    def _one_number_for_all(self) -> tuple[float | None, float | None]:
        """Return limit and smoothness; the published noise is for one of each."""
        if isinstance(self.limit, tuple) or isinstance(self.smoothness, tuple):
            raise Unsupported(
                "the paper's noise of solver 'greedy' takes one limit and one smoothness for all columns only: give "
                "one number each."
            )
        return self.limit, self.smoothness

    def _printed_plan(self, budget: Budget, kind: str) -> CalibratedPlan:
        share = float(self.n_steps)  # share = count: the multiplier of both groups is the scale itself
        plan = Plan(
            (
                PlannedRelease(GreedyGradients.name, kind, self.n_steps, share),
                PlannedRelease(GradientCoordinate.name, LaplaceNoise.kind, self.n_steps, share),
            )
        )
        return CalibratedPlan(plan, 1.0 / greedy_epsilon(self.n_steps, budget, self.printed_form), budget)

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        if any(r.query == GreedyGradients.name for r in calibrated.plan.releases):
            return self._solve_printed(objective, holder, calibrated, progress)
        facts, loss = holder.facts, objective.loss
        penalty = SeparablePenalty.of(objective.penalty)
        smoothness = self._smoothness(objective, facts)
        limits = self._limits(facts)
        choose = NoisyMax(calibrated.noise_multiplier(GreedyScores.name))
        measure = GaussianNoise(calibrated.noise_multiplier(GradientCoordinate.name))
        box = self.box / facts.value_bound
        query = GreedyScores(
            loss,
            SparseWeights(facts.d, {}, box),
            ColumnConstants(smoothness) if smoothness.min() < smoothness.max() else float(smoothness[0]),
            penalty,
            objective.unpenalised,
            self.rule,
            ColumnConstants(limits) if isinstance(limits, np.ndarray) else limits,
        )
        # on sparse designs the race is kept from step to step; its parameters are public and the same for the whole run
        if self.incremental:
            query = replace(query, race=(choose.noise_multiplier, query.sensitivity(facts, holder.neighbours)))
        entries: dict[int, float] = {}
        for t in range(self.n_steps):
            weights = SparseWeights(facts.d, dict(entries), box)
            j = int(holder.release(replace(query, weights=weights), choose))
            coordinate = GradientCoordinate(loss, weights, self._limit(j, limits, loss, facts), (j,))
            gradient = float(holder.release(coordinate, measure)[0]) / facts.n
            self._move(entries, j, gradient, objective, penalty, float(smoothness[j]), box)
            report_step(progress, t + 1, self.n_steps, lambda: SparseWeights(facts.d, entries, box).dense())
        return Solution(SparseWeights(facts.d, entries, box).dense(), self.n_steps)

    def _limits(self, facts: Facts) -> FloatArray | float | None:
        """C_j of every column, or one number for all, or None for the largest possible."""
        return one_per_column("limit", self.limit, facts.d) if isinstance(self.limit, tuple) else self.limit

    @staticmethod
    def _limit(j: int, limits: FloatArray | float | None, loss: Loss, facts: Facts) -> float | None:
        """C_j of one column."""
        limit = float(limits[j]) if isinstance(limits, np.ndarray) else limits
        if j < facts.n_features:
            return limit
        # the intercept's height is public and the same for everybody
        natural = loss.slope_bound * facts.intercept_height * (1.0 + 2.0**-50)
        return natural if limit is None else min(limit, natural)

    def _smoothness(self, objective: Objective, facts: Facts) -> FloatArray:
        """M_j; two thirds of the largest possible curvature where only a range is declared.

        A step of 2/M_j overshoots to a point as bad as the one before, and the same coordinate would be chosen forever.
        Steps of 1.5/M_j converge for columns that fill their range, and are long enough for columns spread over it.
        """
        chosen = self.smoothness
        if chosen is None and facts.value_bound <= _RANGE_ONLY * facts.spread:
            chosen = objective.loss.curvature_bound * facts.value_bound**2 / 1.5
        return coordinate_smoothness(objective, facts, chosen)

    def _solve_printed(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None,
    ) -> Solution:
        """Solve with the noise as published, for one M and one limit: Laplace inside the score and on the update."""
        limit, _ = self._one_number_for_all()
        certified = calibrated.release(GreedyGradients.name).kind == LaplaceInsideMax.kind
        printed_choice = LaplaceInsideMax if certified else UncertifiedLaplaceInsideMax
        facts, loss = holder.facts, objective.loss
        penalty = SeparablePenalty.of(objective.penalty)
        smoothness = float(self._smoothness(objective, facts)[0])
        box = self.box / facts.value_bound
        measure = LaplaceNoise(calibrated.noise_multiplier(GradientCoordinate.name))
        entries: dict[int, float] = {}
        for t in range(self.n_steps):
            weights = SparseWeights(facts.d, dict(entries), box)
            rule = GreedyScores(loss, weights, smoothness, penalty, objective.unpenalised, self.rule, limit)
            # The paper cuts scores off at zero. Ties then go to the lowest index, and whether all scores are below the
            # threshold depends on all gradients at once, at a cost that grows with their number. So scores stay uncut.
            choose = printed_choice(calibrated.noise_multiplier(GreedyGradients.name), score=rule.scores_of)
            j = int(holder.release(GreedyGradients(loss, weights, limit), choose))
            coordinate = GradientCoordinateL1(loss, weights, limit, (j,))
            gradient = float(holder.release(coordinate, measure)[0]) / facts.n
            self._move(entries, j, gradient, objective, penalty, smoothness, box)
            report_step(progress, t + 1, self.n_steps, lambda: SparseWeights(facts.d, entries, box).dense())
        return Solution(SparseWeights(facts.d, entries, box).dense(), self.n_steps)

    def _move(
        self,
        entries: dict[int, float],
        j: int,
        gradient: float,
        objective: Objective,
        penalty: SeparablePenalty,
        smoothness: float,
        box: float,
    ) -> None:
        """Take one proximal step along a coordinate, inside the box; a weight of zero is not stored."""
        weight = entries.get(j, 0.0)
        if j in objective.unpenalised:
            moved = weight - self.step / smoothness * gradient
        else:
            length = self.step / (smoothness + penalty.l2)
            moved = penalty.prox_one(weight - length * (gradient + penalty.l2 * weight), length)
        entries[j] = min(max(moved, -box), box)
        if entries[j] == 0.0:
            del entries[j]

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        limits = self._limits(facts)
        return forecasts.greedy(
            objective,
            facts,
            calibrated,
            neighbours,
            n_steps=self.n_steps,
            step=self.step,
            smoothness=self._smoothness(objective, facts),
            limits=np.inf if limits is None else limits,
            **assumed,
        )
