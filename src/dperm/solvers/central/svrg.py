"""Variance-reduced stochastic gradient descent (DP-SVRG).

An epoch starts with one noisy full gradient at a reference point w0. Each further step of the epoch corrects it by a
noisy sum of gradient differences over a secret Poisson batch:

    v = (gradient sum at w0) / n + (sum over the batch of gradient at w - gradient at w0) / (rate n),
    w <- prox(w - step v).

Differences are clipped to the smaller of ``clip`` and curvature times the public distance of w and w0, so the noise of
a correction is small where w is close to w0. Method: Johnson & Zhang 2013; Wang, Ye & Xu 2017 (arXiv 1802.05251), who
sample one person at a time and add noise to v once. Here the two parts are separate releases, each with its own proof.

**Guarantee.** Released to everyone who sees the model or any step: one noisy gradient sum for every epoch and one noisy
sum of differences for every other step. Proved for ``zero-out`` only. Proof: ``svrg.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput
from dperm.objective import Loss, Objective
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.sampled_noise import SampledGaussianNoise
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.gradients import FullGradient
from dperm.queries.sampled import SampledCorrection
from dperm.solvers.base import Progress, Solution, Solver, report_step
from dperm.solvers.central.sgd import default_step, planned_batches, sampling_rate
from dperm.solvers.option_checks import require_fraction, require_positive, require_whole
from dperm.types import FloatArray

__all__ = ["VarianceReducedDescent"]


_SMALLEST = 2.0**-24  # the bound of a correction never falls below this share of the slope bound, so it stays positive


@dataclass(frozen=True)
class VarianceReducedDescent(Solver):
    """DP-SVRG with Poisson batches.

    Parameters
    ----------
    n_steps : int
        Total number of steps, public and fixed.
    epoch : int
        Steps of one epoch; the first step uses the full gradient alone.
    rate, batch_size : float, optional
        As for ``sgd``: probability that a person is in a batch, or expected size of a batch.
    gradient_share : float
        Share of the budget spent on full gradients.
    clip : float, optional
        Bound on the L2 norm of one person's gradient, and of a difference; by default a quarter of the largest possible
        gradient.
    step : float, optional
        Step length; by default 1 / (curvature of rows of a third of the row bound), from public numbers.
    averaging : float
        Fraction of the iterates, the last ones, that are averaged, in [0, 1); 0 returns the last iterate.
    """

    n_steps: int = 64
    epoch: int = 8
    rate: float | None = None
    batch_size: float | None = None
    gradient_share: float = 0.5
    clip: float | None = None
    step: float | None = None
    averaging: float = 0.5

    name: ClassVar[str] = "svrg"
    supported_neighbours: ClassVar[tuple[Neighbours, ...]] = (Neighbours.ZERO_OUT,)

    def __post_init__(self) -> None:
        require_whole(self, "n_steps", "epoch")
        require_positive(self, "rate", "batch_size", "gradient_share", "clip", "step")
        require_fraction(self, "gradient_share", "averaging")
        if self.rate is not None and self.batch_size is not None:
            raise InvalidInput("give rate or batch_size, not both.")
        if self.rate is not None:
            SampledGaussianNoise(1.0, rate=self.rate)  # refuses a rate outside its range

    @property
    def n_epochs(self) -> int:
        """Number of epochs, the last one possibly shorter."""
        return -(-self.n_steps // self.epoch)

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        FullGradient(objective.loss, np.zeros(0))  # refuses a loss without bounded slopes
        self.require_one_output(objective)
        n_corrections = self.n_steps - self.n_epochs
        if not n_corrections:
            return Plan((PlannedRelease(FullGradient.name, "gaussian", self.n_epochs),))
        rate = sampling_rate(self.rate, self.batch_size, facts.n)
        return Plan(
            (
                PlannedRelease(FullGradient.name, "gaussian", self.n_epochs, self.gradient_share),
                planned_batches(SampledCorrection.name, n_corrections, 1.0 - self.gradient_share, rate),
            )
        )

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        self.check_neighbours(holder.neighbours)
        facts, loss = holder.facts, objective.loss
        rate = sampling_rate(self.rate, self.batch_size, facts.n)
        largest = loss.slope_bound * facts.row_bound
        clip = 0.25 * largest if self.clip is None else min(self.clip, 2.0 * largest)
        step = default_step(objective, facts) if self.step is None else self.step
        full = GaussianNoise(calibrated.noise_multiplier(FullGradient.name))
        weights = np.zeros(facts.d)
        reference, anchor = weights, weights
        total, n_averaged = np.zeros_like(weights), max(1, round(self.averaging * self.n_steps))
        for t in range(self.n_steps):
            if t % self.epoch == 0:
                reference = weights
                anchor = holder.release(FullGradient(loss, reference, clip), full) / facts.n
                direction = anchor  # at the reference every difference is zero, so no correction is released
            else:
                query = self._correction(loss, facts, weights, reference, clip)
                part = SampledGaussianNoise(calibrated.noise_multiplier(SampledCorrection.name), rate=rate)
                direction = anchor + holder.release(query, part) / (rate * facts.n)
            weights = objective.prox(weights - step * direction, step)
            if t >= self.n_steps - n_averaged:
                total = total + weights
            report_step(progress, t + 1, self.n_steps, weights.copy)
        return Solution(total / n_averaged, self.n_steps)

    @staticmethod
    def _correction(
        loss: Loss, facts: Facts, weights: FloatArray, reference: FloatArray, clip: float
    ) -> SampledCorrection:
        """Query for differences, clipped to curvature times distance, both public; clipping enforces the bound."""
        distance = math.hypot(*(weights - reference))
        limit = max(loss.curvature_bound * facts.row_bound * distance, _SMALLEST * loss.slope_bound)
        return SampledCorrection(loss, weights, reference, min(clip, limit * facts.row_bound), limit)
