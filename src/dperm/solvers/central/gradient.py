"""Full-batch noisy gradient descent.

Minimises mean loss + strength * penalty by

    w <- prox(w - step * (noisy sum of clipped gradients) / n),

with heavy-ball momentum and averaging of the last iterates, both post-processing.

**Guarantee.** Released to everyone who sees the model or any step: ``n_steps`` sums of per-person gradients, each
clipped to L2 norm ``clip``, with Gaussian noise on a lattice; every iterate is a function of them. The composition is
exact (Gaussian differential privacy) and the number of steps is fixed in advance. Proof: ``gradient.proof.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.objective import Objective
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries import FullGradient
from dperm.solvers.base import Forecast, Progress, Solution, Solver, report_step
from dperm.solvers.option_checks import require_fraction, require_positive, require_whole
from dperm.solvers.theory import forecasts

__all__ = ["GradientDescent"]


def noise_dominance(facts: Facts, calibrated: CalibratedPlan, neighbours: Neighbours) -> float:
    """Return how strongly noise will dominate the result, from 0 (not at all) to 1, from public numbers.

    The noise of all steps together moves a fitted weight by about (records apart) / (n mu) in units of half the clip.
    With d weights of curvature about 0.15 this costs ``excess`` in the objective, which is compared with 0.01.
    """
    per_weight = facts.d * neighbours.records_apart / 2.0 / (facts.n * calibrated.budget.mu)
    excess = per_weight**2 / (2.0 * 0.15)
    return excess / (excess + 0.01)


@dataclass(frozen=True)
class GradientDescent(Solver):
    """Full-batch noisy gradient descent with row clipping.

    Parameters
    ----------
    n_steps : int
        Number of steps, public and fixed. Noise is calibrated to it, so more steps do not cost more privacy.
    clip : float, optional
        Bound on the L2 norm of one person's gradient; by default an eighth (much noise) to a quarter (little noise) of
        the largest possible norm.
    step : float, optional
        Step length; by default 1 / (curvature of rows of a third of the row bound), from public numbers.
    momentum : float, optional
        Heavy-ball coefficient in [0, 1); by default 0 (much noise) to 0.8 (little noise).
    averaging : float
        Fraction of the iterates, the last ones, that are averaged, in [0, 1); 0 returns the last iterate.
    """

    n_steps: int = 64
    clip: float | None = None
    step: float | None = None
    momentum: float | None = None
    averaging: float = 0.5

    name: ClassVar[str] = "gradient"

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_positive(self, "clip", "step")
        require_fraction(self, "averaging")
        if self.momentum is not None:
            require_fraction(self, "momentum")

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        FullGradient(objective.loss, np.zeros(0))  # refuses a loss without bounded slopes before anything is reserved
        return Plan((PlannedRelease(FullGradient.name, "gaussian", self.n_steps),))

    def _clip(self, objective: Objective, facts: Facts, dominance: float) -> float:
        largest = objective.loss.slope_bound * facts.row_bound
        return largest * (0.25 - 0.125 * dominance) if self.clip is None else min(self.clip, largest)

    def _momentum(self, dominance: float) -> float:
        return 0.8 * (1.0 - dominance) if self.momentum is None else self.momentum

    @property
    def _n_averaged(self) -> int:
        return max(1, round(self.averaging * self.n_steps))

    def _step(self, objective: Objective, facts: Facts) -> float:
        if self.step is not None:
            return self.step
        typical = facts.row_bound / 3.0  # rows of bounded columns are rarely near the largest possible norm
        return 1.0 / (objective.loss.curvature_bound * typical**2 + objective.penalty.strong_convexity)

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        facts = holder.facts
        dominance = noise_dominance(facts, calibrated, holder.neighbours)
        clip, step = self._clip(objective, facts, dominance), self._step(objective, facts)
        momentum = self._momentum(dominance)
        mechanism = GaussianNoise(calibrated.noise_multiplier(FullGradient.name))
        outputs = objective.loss.n_outputs
        weights = np.zeros(facts.d if outputs == 1 else (facts.d, outputs))
        previous = weights
        total, n_averaged = np.zeros_like(weights), 0
        for t in range(self.n_steps):
            query = FullGradient(objective.loss, weights, clip)
            gradient = holder.release(query, mechanism) / facts.n
            # momentum includes the proximal step: momentum of gradients alone would weaken the penalty
            pushed = weights + momentum * (weights - previous) - step * gradient
            previous, weights = weights, objective.prox(pushed, step)
            if t >= self.n_steps - self._n_averaged:
                total, n_averaged = total + weights, n_averaged + 1
            report_step(progress, t + 1, self.n_steps, weights.copy)
        return Solution(total / n_averaged, self.n_steps)

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        dominance = noise_dominance(facts, calibrated, neighbours)
        return forecasts.gradient(
            objective,
            facts,
            calibrated,
            neighbours,
            n_steps=self.n_steps,
            n_averaged=self._n_averaged,
            step=self._step(objective, facts),
            clip=self._clip(objective, facts, dominance),
            momentum=self._momentum(dominance),
            **assumed,
        )
