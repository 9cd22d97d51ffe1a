"""Stochastic gradient descent on Poisson batches (DP-SGD).

At every step each person joins the batch with probability ``rate``, secretly and independently of other steps,

    w <- prox(w - step * (noisy sum of clipped gradients over the batch) / (rate n)),

with heavy-ball momentum and averaging of the last iterates, both post-processing (Abadi et al. 2016, arXiv 1607.00133).

**Guarantee.** Released to everyone who sees the model or any step: ``n_steps`` noisy sums over batches; who was in a
batch is not released. Proved for ``zero-out`` only. Proof: ``sgd.proof.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput
from dperm.objective import Objective
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.sampled_noise import SampledGaussianNoise
from dperm.queries.sampled import SampledGradient
from dperm.solvers.base import Progress, Solution, Solver, report_step
from dperm.solvers.option_checks import require_fraction, require_positive, require_whole

__all__ = ["StochasticGradientDescent"]


def sampling_rate(rate: float | None, batch_size: float | None, n: int) -> float:
    """Return the public sampling rate: as given, or from the expected batch size, or 0.05 (at least 256 people)."""
    if rate is not None:
        return rate
    return min(1.0, (max(0.05 * n, 256.0) if batch_size is None else batch_size) / n)


def planned_batches(query: str, count: int, share: float, rate: float) -> PlannedRelease:
    """Return the planned releases over batches; with rate 1 they are plain Gaussian releases."""
    if rate == 1.0:
        return PlannedRelease(query, "gaussian", count, share)
    return PlannedRelease(query, "poisson-gaussian", count, share, rate=rate)


def default_step(objective: Objective, facts: Facts) -> float:
    """Return 1 / (curvature of rows of a third of the row bound), from public numbers."""
    typical = facts.row_bound / 3.0  # rows of bounded columns are rarely near the largest possible norm
    return 1.0 / (objective.loss.curvature_bound * typical**2 + objective.penalty.strong_convexity)


@dataclass(frozen=True)
class StochasticGradientDescent(Solver):
    """DP-SGD with Poisson batches.

    Parameters
    ----------
    n_steps : int
        Number of steps, public and fixed.
    rate : float, optional
        Probability that a person is in a batch. By default 0.05, or the rate that gives 256 people on average.
    batch_size : float, optional
        Expected number of people in a batch, instead of ``rate``.
    clip : float, optional
        Bound on the L2 norm of one person's gradient; by default a quarter of the largest possible norm.
    step : float, optional
        Step length; by default 1 / (curvature of rows of a third of the row bound), from public numbers.
    momentum : float
        Heavy-ball coefficient in [0, 1).
    averaging : float
        Fraction of the iterates, the last ones, that are averaged, in [0, 1); 0 returns the last iterate.
    """

    n_steps: int = 256
    rate: float | None = None
    batch_size: float | None = None
    clip: float | None = None
    step: float | None = None
    momentum: float = 0.0
    averaging: float = 0.5

    name: ClassVar[str] = "sgd"
    supported_neighbours: ClassVar[tuple[Neighbours, ...]] = (Neighbours.ZERO_OUT,)

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_positive(self, "rate", "batch_size", "clip", "step")
        require_fraction(self, "momentum", "averaging")
        if self.rate is not None and self.batch_size is not None:
            raise InvalidInput("give rate or batch_size, not both.")
        if self.rate is not None:
            SampledGaussianNoise(1.0, rate=self.rate)  # refuses a rate outside its range

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        SampledGradient(objective.loss, np.zeros(0))  # refuses a loss without bounded slopes
        rate = sampling_rate(self.rate, self.batch_size, facts.n)
        return Plan((planned_batches(SampledGradient.name, self.n_steps, 1.0, rate),))

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
        clip = 0.25 * largest if self.clip is None else min(self.clip, largest)
        step = default_step(objective, facts) if self.step is None else self.step
        mechanism = SampledGaussianNoise(calibrated.noise_multiplier(SampledGradient.name), rate=rate)
        weights = np.zeros(facts.d if loss.n_outputs == 1 else (facts.d, loss.n_outputs))
        previous = weights
        total, n_averaged = np.zeros_like(weights), max(1, round(self.averaging * self.n_steps))
        for t in range(self.n_steps):
            gradient = holder.release(SampledGradient(loss, weights, clip), mechanism) / (rate * facts.n)
            # momentum includes the proximal step: momentum of gradients alone would weaken the penalty
            pushed = weights + self.momentum * (weights - previous) - step * gradient
            previous, weights = weights, objective.prox(pushed, step)
            if t >= self.n_steps - n_averaged:
                total = total + weights
            report_step(progress, t + 1, self.n_steps, weights.copy)
        return Solution(total / n_averaged, self.n_steps)
