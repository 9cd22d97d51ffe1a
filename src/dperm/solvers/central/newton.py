"""Noisy second-order descent: one release of the curvature, then a few preconditioned gradient steps.

    H = bend * released second moments / n, its eigenvalues floored at the size of its own noise,
    w <- w - step (H + strength I)^-1 (noisy mean gradient + penalty gradient).

With exact Gaussian composition, few long preconditioned steps use the budget better than many short ones (second-order
methods under differential privacy: Ganesh, Haghifam, Steinke & Thakurta, 2023). ``bend`` is a bound on the second
derivative of the loss, the same at all weights (Boehning & Lindsay 1988); the second derivative at a single point is
not informative for losses that are curved in few places, such as the hinge. The method suits few columns relative to n
times epsilon, because the second moments are d (d + 1) / 2 numbers.

**Guarantee.** Released to everyone who sees the model or any step: one clipped second-moment sum and ``n_steps``
clipped gradient sums, all with Gaussian noise. Proof: ``newton.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import Unsupported
from dperm.objective import Objective
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.gradients import FullGradient
from dperm.queries.statistics import SecondMoment, unpack_symmetric
from dperm.solvers.base import Progress, Solution, Solver, report_step
from dperm.solvers.central.auto.scales import scale_of
from dperm.solvers.option_checks import require_positive, require_share, require_whole
from dperm.types import FloatArray

__all__ = ["Newton"]

#: the released matrix then has two million entries; with more, its noise leaves too little of the curvature
_MOST_COLUMNS = 2000


@dataclass(frozen=True)
class Newton(Solver):
    """Preconditioned noisy gradient descent with a released curvature.

    Parameters
    ----------
    n_steps : int
        Number of gradient steps.
    curvature_share : float
        Share of the budget spent on the second moments.
    clip : float, optional
        Bound on the L2 norm of one person's gradient, by default a quarter of the largest possible norm.
    row_clip : float, optional
        Rows are scaled down to this L2 norm in the second moments; by default the spread times the square root of the
        number of columns.
    step : float
        Public factor of the step.
    """

    n_steps: int = 8
    curvature_share: float = 0.15
    clip: float | None = None
    row_clip: float | None = None
    step: float = 0.7

    name: ClassVar[str] = "newton"

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_share(self, "curvature_share")
        require_positive(self, "clip", "row_clip", "step")

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        self.require_no_constraint(objective)
        if not objective.penalty.smooth:
            raise Unsupported("solver 'newton' takes smooth penalties only (none or l2): choose another solver.")
        if facts.d > _MOST_COLUMNS:
            raise Unsupported(
                f"solver 'newton' releases a whole curvature matrix and takes at most {_MOST_COLUMNS} columns, not "
                f"{facts.d}: choose another solver."
            )
        return Plan(
            (
                PlannedRelease(
                    SecondMoment.name,
                    "gaussian",
                    1,
                    self.curvature_share,
                    replacement_ratio=SecondMoment.replacement_ratio,
                ),
                PlannedRelease(FullGradient.name, "gaussian", self.n_steps, 1.0 - self.curvature_share),
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
        inverse = self._metric(objective, holder, calibrated)
        clip = self.clip or 0.25 * loss.slope_bound * facts.row_bound
        mechanism = GaussianNoise(calibrated.noise_multiplier(FullGradient.name))
        weights = np.zeros(facts.d)
        for t in range(self.n_steps):
            gradient = holder.release(FullGradient(loss, weights, clip), mechanism) / facts.n
            weights = weights - self.step * inverse @ (gradient + objective.penalty_gradient(weights))
            report_step(progress, t + 1, self.n_steps, weights.copy)
        return Solution(weights, self.n_steps)

    def _metric(self, objective: Objective, holder: DataHolder, calibrated: CalibratedPlan) -> FloatArray:
        """Inverse of the released curvature, with eigenvalues below the noise level raised to that level."""
        facts, bend = holder.facts, scale_of(objective.loss).step_curvature
        query = SecondMoment(self.row_clip or facts.spread * math.sqrt(facts.d))
        mechanism = GaussianNoise(calibrated.noise_multiplier(SecondMoment.name))
        sensitivity = query.sensitivity(facts, holder.neighbours)
        noise = mechanism.noise_scale(sensitivity, query.bound(facts), query.size(facts)) / facts.n
        released = unpack_symmetric(holder.release(query, mechanism), facts.d) / facts.n
        strength = np.full(facts.d, objective.penalty.strong_convexity)
        strength[list(objective.unpenalised)] = 0.0
        values, vectors = np.linalg.eigh(bend * released + np.diag(strength))
        # a symmetric matrix of d (d + 1) / 2 noises of this size has a spectral norm of about noise sqrt(2 d)
        floor = bend * max(noise * math.sqrt(2.0 * facts.d), 1e-6)
        return np.asarray((vectors / np.maximum(values, floor)) @ vectors.T)
