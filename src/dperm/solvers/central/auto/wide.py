"""Noisy gradient descent for data with many columns, and a paid refit: ``solver="auto"`` uses it for wide data.

In a generalised linear model noise in directions that rows do not reach costs nothing. So the harm of the noise of a
descent without a metric grows with the length of the rows and the time of the descent, not with the number of columns
(Song et al. 2021). The descent starts at the best constant and moves the columns' weights only, for a time in
proportion to rows times mu. How large the weights should be depends on the data. So a refit follows, in which the loss
is minimised over the intercept (of each class) and one factor for what was learnt. It costs little, because it is a
problem of few columns: the score, and a constant.

**Guarantee.** Released to whoever sees the model or any step: target mean or class counts, for regression the mean
deviation of the target, mean row length, ``n_steps`` clipped gradient sums of the columns, and in the refit the mean
length of the scores, their second moments (not for more than two classes) and ``REFIT_STEPS`` clipped gradient sums,
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
from dperm.errors import InvalidInput
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
from dperm.solvers.central.auto.costs import cost_without_metric, explainable
from dperm.solvers.central.auto.metric import MetricProx
from dperm.solvers.central.auto.recipes import expected_noise, recipe_for
from dperm.solvers.central.auto.refit import REFIT_STEPS, Learnt, Refit
from dperm.solvers.central.auto.shrinkage import (
    NO_INFORMATIVE_COLUMN,
    NO_WEIGHTS,
    Descent,
)
from dperm.solvers.central.auto.starting_point import BestConstant, StartingPoint
from dperm.solvers.option_checks import require_positive, require_share, require_whole
from dperm.types import FloatArray

__all__ = ["WideDescent"]

#: duration of the descent (total step length times curvature times squared row length), in rows times mu. Tried on
#: twelve sets at epsilon 1 and 4: .1, .2, .4, and two phases of .1 and .4. Mean log loss .545, .538, .551, .545 and
#: .503, .500, .515, .503; in mean accuracy two phases were .0015 better at 1 and .005 worse at 4
_TIME = 0.2
#: clip, in typical gradients, at which this time was measured: noise, and so the best time, go with the clip
_CLIP_OF_TIME = 0.5
#: heavy-ball coefficient, and the longest step, in 1 / (curvature bound times squared row length): with
#: this momentum steps below 3.6 are stable in every direction
_MOMENTUM, _LONGEST_STEP = 0.8, 3.0
#: prior guess of the mean row length, in rows that are as long as the public spread or their bound allows, and its
#: relative error. It counts where noise hides the released length, as with some hundred rows at epsilon 0.1
_PRIOR_LENGTH, _PRIOR_LENGTH_ERROR = 0.9, 0.3
#: a mean row length is at least this share of the longest possible row, so that no step is infinite
_LEAST_LENGTH_SHARE = 1e-3
#: with an l1 penalty, weights of fewer standard deviations of their noise become 0
_CLEAR_WEIGHT = 2.5
#: weights below this share of their noise, as under an extremely strong penalty, are nothing but rounding
_NOTHING = 1e-9


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

    n_steps: int = 80
    target_share: float = 0.02
    deviation_share: float = 0.02
    length_share: float = 0.01
    refit_share: float = 0.1
    clip: float | None = None
    correct_overfit: bool = True

    name: ClassVar[str] = "wide"
    #: name of the descent's gradients in the plan
    group: ClassVar[str] = FeatureGradient.name

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_positive(self, "clip")
        require_share(self, "target_share", "deviation_share", "length_share", "refit_share")
        if self.target_share + self.deviation_share + self.length_share + self.refit_share > 0.9:
            raise InvalidInput("the shares leave less than a tenth of the budget for the gradients: make them smaller.")

    @property
    def starting_point(self) -> StartingPoint:
        """Releases of the best constant and the slope size."""
        return StartingPoint(self.target_share, self.deviation_share)

    def duration(self, loss: Loss, rows_times_mu: float, clip: float | None = None) -> float:
        """Return total step length times curvature times squared row length, for a clip in typical gradients."""
        clip = clip or self.clip or recipe_for(loss).clip_high_noise
        wanted = _TIME * rows_times_mu * _CLIP_OF_TIME / clip
        longest = _LONGEST_STEP / (1.0 - _MOMENTUM) * recipe_for(loss).curvature * min(1.0, clip) / loss.curvature_bound
        return min(wanted, longest * self.n_steps)

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
        lengths = GaussianNoise(calibrated.noise_multiplier(RowLengths.name))
        longest = facts.block_bound(facts.n_features)
        mean = float(holder.release(RowLengths(longest), lengths)[0]) / facts.n + 0.5 * longest
        noise = 0.5 * longest * lengths.noise_multiplier * holder.neighbours.records_apart / facts.n
        prior = _PRIOR_LENGTH * min(facts.spread * math.sqrt(facts.n_features), longest)
        variance = (_PRIOR_LENGTH_ERROR * prior) ** 2
        mean = (mean * variance + prior * noise**2) / (variance + noise**2)
        row_length = min(max(mean, _LEAST_LENGTH_SHARE * longest), longest)
        learnt = self._descend(objective, holder, calibrated, best, start, row_length, progress)
        make = Refit if loss.n_outputs == 1 else ClassRefit
        refit = make(objective, holder, calibrated, best, row_length, self.clip)

        def in_refit(done: int) -> None:
            if progress is not None:
                progress(self.n_steps + done, self.n_steps + REFIT_STEPS)

        move, left = refit.fitted(start, learnt, in_refit)
        notes = best.notes
        planned = self.starting_point.utility_warnings(loss, facts, calibrated, holder.neighbours)
        nothing = left <= NO_WEIGHTS or not any(one.weights.any() for one in learnt)
        if nothing and not planned:
            notes += (NO_INFORMATIVE_COLUMN,)
        return Solution(start + move, self.n_steps + REFIT_STEPS, notes)

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
        facts, loss, recipe = holder.facts, objective.loss, recipe_for(objective.loss)
        mechanism = GaussianNoise(calibrated.noise_multiplier(self.group))
        clip = self._gradient_clip(loss, facts, best, row_length)
        clip_in_typical = clip / (best.slope * row_length)
        noise = mechanism.noise_multiplier * holder.neighbours.records_apart * clip / facts.n
        rows_times_mu = facts.n * math.sqrt(self.n_steps) / mechanism.noise_multiplier / holder.neighbours.records_apart
        duration = self.duration(loss, rows_times_mu, clip_in_typical)
        # clipping shortens the gradients, and so the way of the descent
        time = duration / (recipe.curvature * min(1.0, clip_in_typical) * row_length**2)
        step = (1.0 - _MOMENTUM) * time / self.n_steps
        weights = previous = start
        for t in range(self.n_steps):
            gradient = holder.release(FeatureGradient(loss, weights, clip), mechanism, self.group) / facts.n
            moved = weights + _MOMENTUM * (weights - previous)
            moved[: facts.n_features] -= step * gradient
            previous, weights = weights, objective.prox(moved, step)
            if progress is not None:
                progress(t + 1, self.n_steps + REFIT_STEPS)
        learnt = (weights - start)[: facts.n_features]
        deviation = time / math.sqrt(self.n_steps) * noise
        penalty = SeparablePenalty.of(objective.penalty)
        # along directions in which nobody's data vary, only an l2 penalty shrinks noise and own parts
        gains = Descent(np.full(self.n_steps, step), _MOMENTUM, 1, penalty.l2).gains(np.zeros(1))
        left, time_left = math.sqrt(float(gains[0][0])) * noise, float(gains[1][0])
        slope = best.slope if loss.n_outputs == 1 else class_spread(class_shares(best, loss.n_outputs))
        own = time_left * clip * slope * row_length / facts.n if self.correct_overfit else 0.0
        if np.abs(learnt).max() <= _NOTHING * deviation:
            learnt = np.zeros_like(learnt)
        elif penalty.l1 > 0.0:
            return [Learnt(np.where(np.abs(learnt) > _CLEAR_WEIGHT * deviation, learnt, 0.0), deviation, left, own)]
        return [Learnt(learnt, deviation, left, own, time_left)]

    def _gradient_clip(self, loss: Loss, facts: Facts, best: BestConstant, row_length: float) -> float:
        """Clipping threshold of one person's gradient, at most the length of the longest one."""
        longest = loss.slope_bound * facts.block_bound(facts.n_features)
        return min((self.clip or recipe_for(loss).clip_high_noise) * best.slope * row_length, longest)

    # ------------------------------------------------------------------------------------------------ forecast
    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        loss, recipe = objective.loss, recipe_for(objective.loss)
        unit = "" if recipe.slope is not None else ", in units of the target's squared mean deviation"
        gradients, d = (MappedGradient, 2) if loss.n_outputs == 1 else (ClassScoreGradient, 1 + loss.n_outputs)
        mu = math.sqrt(REFIT_STEPS) / calibrated.noise_multiplier(gradients.name)
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
                f"the second derivative of the loss is about {recipe.curvature:g}",
                f"rows have similar lengths, and half of what the columns explain lies in about {directions:.0f} "
                "directions (the square root of the number of columns), half in all: related columns are learnt better",
                f"the columns can explain about {columns:.2g} of a constant's loss",
            ),
            warnings=self.starting_point.utility_warnings(loss, facts, calibrated, neighbours),
            min_column_deviation=min_deviation,
        )
