"""Noisy gradient descent for data with many columns, and a paid refit: ``solver="auto"`` uses it for wide data.

In a generalised linear model noise in directions that rows do not reach costs nothing. So the harm of the noise of a
descent without a metric grows with the length of the rows and the time of the descent, not with the number of columns
(Song et al. 2021). The descent starts at the best constant and moves the columns' weights only, for a time in
proportion to rows times mu. How large the weights should be depends on the data. So a refit follows, in which the loss
is minimised over the intercept (of each class) and one factor for what was learnt. It costs little, because it is a
problem of few columns: the score, and a constant.

**Guarantee.** Released to whoever sees the model or any step: target mean or class counts, for regression the mean
deviation of the target, mean row length, ``n_steps`` clipped gradient sums of the columns, and in the refit the mean
length of the scores, their second moments (not for more than two classes) and as many clipped gradient sums,
all with Gaussian noise. Composition is exact. Everything is fixed in advance except clips, weights, step lengths and
the map of the refit, which use earlier releases only. Proof: ``wide.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.objective import Loss, Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.class_scores import ClassScoreGradient
from dperm.queries.gradients import FeatureGradient
from dperm.queries.whitened import MappedGradient, RowLengths
from dperm.solvers.base import Forecast, Progress, Solution, Solver
from dperm.solvers.central.auto.class_refit import ClassRefit, class_shares, class_spread
from dperm.solvers.central.auto.constants import RULE, TINY
from dperm.solvers.central.auto.costs import cost_without_metric, expected_noise, explainable
from dperm.solvers.central.auto.descent import Descent, longest_step
from dperm.solvers.central.auto.learnt import Learnt
from dperm.solvers.central.auto.metric import MetricProx
from dperm.solvers.central.auto.refit import Refit
from dperm.solvers.central.auto.row_length import released_row_length
from dperm.solvers.central.auto.scales import scale_of
from dperm.solvers.central.auto.shrinkage import NO_INFORMATIVE_COLUMN
from dperm.solvers.central.auto.starting_point import BestConstant, StartingPoint
from dperm.solvers.option_checks import require_positive, require_rest, require_share, require_whole
from dperm.types import FloatArray

__all__ = ["WideDescent"]

#: weights below this share of their noise, as under an extremely strong penalty, are nothing but rounding
_NOTHING = math.sqrt(TINY)


def wanted_duration(loss: Loss, rows_times_mu: float, clip: float | None = None) -> float:
    """Return the best total step length times curvature times squared row length, for a clip in typical gradients.

    Noise, and so the best time, go with the clip.
    """
    return RULE.duration * rows_times_mu / (clip or scale_of(loss).clip)


@dataclass(frozen=True)
class WideDescent(Solver):
    """Noisy gradient descent without a metric, for many columns, and a refit of intercept and scale.

    Parameters
    ----------
    n_steps : int
        Number of gradients of the descent.
    target_share, deviation_share, length_share, refit_share : float
        Shares of the budget for the target's mean, its mean deviation (regression only), the mean row length and the
        refit; the gradients of the descent get the rest.
    clip : float, optional
        Clipping threshold for one person's gradient, in typical gradients; by default that of the automatic rule.
    correct_overfit : bool
        Whether the refit allows for the part of a person's score that the person's own gradients have caused.
    """

    n_steps: int = RULE.n_steps
    target_share: float = RULE.small_share
    deviation_share: float = RULE.small_share
    length_share: float = RULE.small_share
    refit_share: float = RULE.refit_share
    clip: float | None = None
    correct_overfit: bool = True

    name: ClassVar[str] = "wide"
    #: name of the descent's gradients in the plan
    group: ClassVar[str] = FeatureGradient.name

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_positive(self, "clip")
        require_share(self, "target_share", "deviation_share", "length_share", "refit_share")
        require_rest(self, "target_share", "deviation_share", "length_share", "refit_share")

    @property
    def starting_point(self) -> StartingPoint:
        """Releases of the best constant and the slope size."""
        return StartingPoint(self.target_share, self.deviation_share)

    def share_before(self, loss: Loss) -> float:
        """Return the budget share of the releases before the descent."""
        return self.target_share + self.length_share + (self.deviation_share if loss.task == "regression" else 0.0)

    def longest_duration(self, loss: Loss, clip: float | None = None) -> float:
        """Return the largest duration that is stable for any data."""
        clip = clip or self.clip or scale_of(loss).clip
        step = longest_step(loss.curvature_bound, RULE.momentum) / (1.0 - RULE.momentum)
        return step * scale_of(loss).curvature * min(1.0, clip) * self.n_steps

    def duration(self, loss: Loss, rows_times_mu: float, clip: float | None = None) -> float:
        """Return total step length times curvature times squared row length, for a clip in typical gradients."""
        return min(wanted_duration(loss, rows_times_mu, clip or self.clip), self.longest_duration(loss, clip))

    # ------------------------------------------------------------------------------------------------ plan
    def plan(self, objective: Objective, facts: Facts) -> Plan:
        MetricProx.check(objective)
        FeatureGradient(objective.loss, np.zeros(0))  # refuses a loss without bounded slopes
        releases = self.starting_point.releases(objective.loss, facts)
        rest = 1.0 - sum(release.share for release in releases) - self.length_share - self.refit_share
        refit = ClassRefit if objective.loss.n_outputs > 1 else Refit
        n_lengths, length_share, last = refit.releases(self.refit_share, 1)
        return Plan(
            (
                *releases,
                PlannedRelease(RowLengths.name, "gaussian", 1 + n_lengths, self.length_share + length_share),
                PlannedRelease(self.group, "gaussian", self.n_steps, rest),
                *last,
            )
        )

    # ------------------------------------------------------------------------------------------------ solve
    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        facts, loss = holder.facts, objective.loss
        best = self.starting_point.release(loss, holder, calibrated)
        start = np.zeros(facts.d if loss.n_outputs == 1 else (facts.d, loss.n_outputs))
        if best.constant is not None:
            start[-1] = best.constant / facts.intercept_height
        row_length = released_row_length(holder, calibrated)
        learnt = self._descend(objective, holder, calibrated, best, start, row_length, progress)
        make = Refit if loss.n_outputs == 1 else ClassRefit
        refit = make(objective, holder, calibrated, best, row_length, self.clip)

        def in_refit(done: int) -> None:
            if progress is not None:
                progress(self.n_steps + done, self.n_steps + RULE.n_steps)

        move, left = refit.fitted(start, learnt, in_refit)
        notes = best.notes
        planned = self.starting_point.utility_warnings(loss, facts, calibrated, holder.neighbours)
        nothing = left <= RULE.least_kept or not any(one.weights.any() for one in learnt)
        if nothing and not planned:
            notes += (NO_INFORMATIVE_COLUMN,)
        return Solution(start + move, self.n_steps + RULE.n_steps, notes)

    def _descend(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        best: BestConstant,
        start: FloatArray,
        row_length: float,
        progress: Progress | None,
    ) -> list[Learnt]:
        """Return the directions that were learnt, here one."""
        facts, loss, scale = holder.facts, objective.loss, scale_of(objective.loss)
        mechanism = GaussianNoise(calibrated.noise_multiplier(self.group))
        clip = self._gradient_clip(loss, facts, best, row_length)
        clip_in_typical = clip / (best.slope * row_length)
        noise = mechanism.noise_multiplier * holder.neighbours.records_apart * clip / facts.n
        rows_times_mu = facts.n * math.sqrt(self.n_steps) / mechanism.noise_multiplier / holder.neighbours.records_apart
        duration = self.duration(loss, rows_times_mu, clip_in_typical)
        # clipping shortens the gradients, and so the way of the descent
        time = duration / (scale.curvature * min(1.0, clip_in_typical) * row_length**2)
        step = (1.0 - RULE.momentum) * time / self.n_steps
        weights = previous = start
        for t in range(self.n_steps):
            gradient = holder.release(FeatureGradient(loss, weights, clip), mechanism, self.group) / facts.n
            moved = weights + RULE.momentum * (weights - previous)
            moved[: facts.n_features] -= step * gradient
            previous, weights = weights, objective.prox(moved, step)
            if progress is not None:
                progress(t + 1, self.n_steps + RULE.n_steps)
        learnt = (weights - start)[: facts.n_features]
        deviation = time / math.sqrt(self.n_steps) * noise
        penalty = SeparablePenalty.of(objective.penalty)
        # along directions in which nobody's data vary, only an l2 penalty shrinks noise and own parts
        gains = Descent(np.full(self.n_steps, step), RULE.momentum, 1, penalty.l2).gains(np.zeros(1))
        left, time_left = math.sqrt(float(gains[0][0])) * noise, float(gains[1][0])
        slope = best.slope if loss.n_outputs == 1 else class_spread(class_shares(best, loss.n_outputs))
        own = time_left * clip * slope * row_length / facts.n if self.correct_overfit else 0.0
        if np.abs(learnt).max() <= _NOTHING * deviation:
            learnt = np.zeros_like(learnt)
        elif penalty.l1 > 0.0:
            return [Learnt(np.where(np.abs(learnt) > RULE.clear * deviation, learnt, 0.0), deviation, left, own)]
        return [Learnt(learnt, deviation, left, own, time_left)]

    def _gradient_clip(self, loss: Loss, facts: Facts, best: BestConstant, row_length: float) -> float:
        """Clipping threshold of one person's gradient, at most the length of the longest one."""
        longest = loss.slope_bound * facts.block_bound(facts.n_features)
        return min((self.clip or scale_of(loss).clip) * best.slope * row_length, longest)

    # ------------------------------------------------------------------------------------------------ forecast
    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        loss, scale = objective.loss, scale_of(objective.loss)
        unit = "" if scale.slope is not None else ", in units of the target's squared mean deviation"
        gradients, d = (MappedGradient, 2) if loss.n_outputs == 1 else (ClassScoreGradient, 1 + loss.n_outputs)
        mu = math.sqrt(RULE.n_steps) / calibrated.noise_multiplier(gradients.name)
        refit = expected_noise(loss, replace(facts, d=d), mu, neighbours) / loss.n_outputs
        mu = math.sqrt(self.n_steps) / calibrated.noise_multiplier(self.group)
        rows_times_mu = facts.n * mu / neighbours.records_apart
        duration = self.duration(loss, rows_times_mu)
        columns, directions = explainable(loss), math.sqrt(facts.d)
        descent = cost_without_metric(loss, facts.d, duration, rows_times_mu)
        min_deviation = math.sqrt(math.log(2.0) * directions / duration) * facts.spread / (2.0 * facts.value_bound)
        return Forecast(
            # neither costs more than all that columns explain; the refit is shrunk, and starts from the weights
            excess=columns - (columns - descent) * columns / (columns + refit),
            null_excess=columns,
            basis=f"Estimate, not a bound: the noise of descent and refit, and what a short descent misses{unit}.",
            assumptions=(
                f"the second derivative of the loss is about {scale.curvature:g}",
                f"rows have similar lengths, and half of what the columns explain lies in about {directions:.0f} "
                "directions (the square root of the number of columns), half in all: related columns are learnt better",
                f"the columns can explain about {columns:.2g} of a constant's loss",
            ),
            warnings=self.starting_point.utility_warnings(loss, facts, calibrated, neighbours),
            min_column_deviation=min_deviation,
        )
