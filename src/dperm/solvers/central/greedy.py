"""Greedy coordinate descent (DP-GCD) and its proximal version.

At every step one coordinate is chosen by its score and moved along its gradient:

    j ~ Gumbel race over scores,   w_j <- prox(w_j - step / M (g_j + noise)),

from w = 0, so that after T steps at most T weights are not zero (Mangold, Bellet, Salmon & Tommasi, AISTATS 2023).
Their printed calibration (Laplace noise on the gradients before the absolute value) does not give the guarantee it
states; here the noise is Gumbel noise on scores with one common sensitivity, and Gaussian noise on the chosen gradient.

**Guarantee.** Released to whoever sees the model or any step: ``n_steps`` chosen coordinates and as many noisy gradient
sums of one coordinate. Proof: ``greedy.proof.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dperm.data.facts import Facts
from dperm.data.holder import DataHolder
from dperm.data.weights import SparseWeights
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import BoxPenalty, Objective
from dperm.objective.separable import SeparablePenalty
from dperm.privacy.budget import Budget
from dperm.privacy.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms import GaussianNoise, LaplaceNoise, NoisyMax
from dperm.privacy.printed import LaplaceInsideMax, Printed, greedy_epsilon
from dperm.queries.gradients import GradientCoordinate
from dperm.queries.greedy import RULES, GradientCoordinateL1, GreedyGradients, GreedyScores
from dperm.solvers._checks import positive, share, whole
from dperm.solvers.base import Progress, Solution, Solver

__all__ = ["GreedyCoordinateDescent"]


@dataclass(frozen=True)
class GreedyCoordinateDescent(Solver):
    """DP-GCD with Gumbel selection and Gaussian updates.

    Parameters
    ----------
    n_steps : int
        Number of steps, and the largest number of weights that are not zero.
    rule : {"GS-r", "GS-s", "GS-q"}
        How a coordinate is scored when there is a penalty; without one all are the size of the gradient.
    selection_share : float
        Share of the budget spent on choosing.
    step : float
        Public factor of the step 1/M; the score always uses the unit step.
    limit : float, optional
        Bound on one person's product slope times value in one coordinate; by default the largest possible one, which
        clips nothing.
    smoothness : float, optional
        M, the public curvature of one coordinate of the mean loss; by default curvature bound times spread squared.
    box : float
        Public bound on a weight's contribution (weight times value); weights are projected to it.
    printed_form : {"implicit", "closed"}
        Which of the paper's two formulas ``calibration="paper"`` uses.
    incremental : bool
        Whether scores of sparse data are kept up to date from step to step instead of computed by a full pass; the law
        of the result is the same.
    """

    n_steps: int = 20
    rule: str = "GS-r"
    selection_share: float = 0.75
    step: float = 1.0
    limit: float | None = None
    smoothness: float | None = None
    box: float = 64.0
    printed_form: str = "implicit"
    incremental: bool = True

    name: ClassVar[str] = "greedy"

    def __post_init__(self) -> None:
        whole(self, "n_steps")
        share(self, "selection_share")
        positive(self, "step", "limit", "smoothness", "box")
        if self.rule not in RULES:
            raise InvalidInput(f"rule must be one of {', '.join(RULES)}, not {self.rule!r}.")

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        SeparablePenalty.of(objective.penalty)
        return Plan(
            (
                PlannedRelease(GreedyScores.name, "selection", self.n_steps, self.selection_share),
                PlannedRelease(GradientCoordinate.name, "gaussian", self.n_steps, 1.0 - self.selection_share),
            )
        )

    def printed(self, objective: Objective, facts: Facts, budget: Budget) -> Printed:
        if self.rule != "GS-s":
            raise Unsupported("the printed greedy noise is offered with rule='GS-s', for which its cost is certified.")
        if objective.penalty.name == BoxPenalty.name:
            raise Unsupported("the printed greedy noise is not offered with a box: scores that it cuts off tie.")
        share = float(self.n_steps)  # share = count: the multiplier of both groups is the scale itself
        plan = Plan(
            (
                PlannedRelease(GreedyGradients.name, LaplaceInsideMax.kind, self.n_steps, share),
                PlannedRelease(GradientCoordinate.name, LaplaceNoise.kind, self.n_steps, share),
            )
        )
        scale = 1.0 / greedy_epsilon(self.n_steps, budget, self.printed_form)
        return Printed(
            CalibratedPlan(plan, scale, budget),
            "the DP-GCD paper's calibration counts each greedy choice at half of what it can cost",
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
        smoothness = self.smoothness or loss.curvature_bound * facts.spread**2
        if any(r.kind == LaplaceInsideMax.kind for r in calibrated.plan.releases):
            return self._solve_printed(objective, holder, calibrated)
        choose = NoisyMax(calibrated.noise_multiplier(GreedyScores.name))
        measure = GaussianNoise(calibrated.noise_multiplier(GradientCoordinate.name))
        box = self.box / facts.value_bound
        query = GreedyScores(
            loss, SparseWeights(facts.d, {}, box), smoothness, penalty, objective.unpenalised, self.rule, self.limit
        )
        # the race is kept from step to step on sparse designs; its numbers are public and the same for the whole run
        if self.incremental:
            query = replace(query, race=(choose.noise_multiplier, query.sensitivity(facts, holder.neighbours)))
        entries: dict[int, float] = {}
        for t in range(self.n_steps):
            weights = SparseWeights(facts.d, dict(entries), box)
            j = int(holder.release(replace(query, weights=weights), choose))
            coordinate = GradientCoordinate(loss, weights, self.limit, (j,))
            gradient = float(holder.release(coordinate, measure)[0]) / facts.n
            moved = self._moved(entries.get(j, 0.0), gradient, j in objective.unpenalised, penalty, smoothness)
            entries[j] = min(max(moved, -box), box)
            if entries[j] == 0.0:
                del entries[j]
            if progress is not None:
                progress(t + 1, self.n_steps)
        return Solution(SparseWeights(facts.d, entries, box).dense(), self.n_steps)

    def _solve_printed(self, objective: Objective, holder: DataHolder, calibrated: CalibratedPlan) -> Solution:
        """The paper's own noise: Laplace inside the score, Laplace on the update."""
        facts, loss = holder.facts, objective.loss
        penalty = SeparablePenalty.of(objective.penalty)
        smoothness = self.smoothness or loss.curvature_bound * facts.spread**2
        box = self.box / facts.value_bound
        measure = LaplaceNoise(calibrated.noise_multiplier(GradientCoordinate.name))
        entries: dict[int, float] = {}
        for _ in range(self.n_steps):
            weights = SparseWeights(facts.d, dict(entries), box)
            rule = GreedyScores(loss, weights, smoothness, penalty, objective.unpenalised, "GS-s", self.limit)
            # The paper cuts scores off at zero. Ties then go to the lowest index, and "all are below the threshold"
            # depends on all gradients at once, at a cost that grows with their number: the margin is kept whole.
            choose = LaplaceInsideMax(calibrated.noise_multiplier(GreedyGradients.name), score=rule.scores_of)
            j = int(holder.release(GreedyGradients(loss, weights, self.limit), choose))
            coordinate = GradientCoordinateL1(loss, weights, self.limit, (j,))
            gradient = float(holder.release(coordinate, measure)[0]) / facts.n
            moved = self._moved(entries.get(j, 0.0), gradient, j in objective.unpenalised, penalty, smoothness)
            entries[j] = min(max(moved, -box), box)
            if entries[j] == 0.0:
                del entries[j]
        return Solution(SparseWeights(facts.d, entries, box).dense(), self.n_steps)

    def _moved(
        self, weight: float, gradient: float, unpenalised: bool, penalty: SeparablePenalty, smoothness: float
    ) -> float:
        if unpenalised:
            return weight - self.step / smoothness * gradient
        length = self.step / (smoothness + penalty.l2)
        return penalty.prox_one(weight - length * (gradient + penalty.l2 * weight), length)
