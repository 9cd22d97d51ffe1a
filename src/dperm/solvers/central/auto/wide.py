"""Noisy gradient descent for data with many columns, and a paid refit: ``solver="auto"`` uses it for wide data.

In a generalised linear model noise in directions that rows do not reach costs nothing. So the harm of the noise of a
descent without a metric grows with the length of the rows and the time of the descent, not with the number of columns
(Song et al. 2021). Two phases descend from the best constant, a short one and a longer one, and move the columns'
weights only. How long is best depends on the data. So a refit follows, in which the loss is minimised over three
numbers: the intercept, and one factor for what each phase has learnt. It costs little, because it is a problem of three
columns: the scores of the two phases, and a constant.

**Guarantee.** Released to whoever sees the model or any step: target mean, for regression the mean deviation of the
target, mean row length, ``n_steps`` clipped gradient sums of the columns, and in the refit the mean length of the
scores, their second moments and ``REFIT_STEPS`` clipped gradient sums, all with Gaussian noise. Composition is exact.
Everything is fixed in advance except clips, weights, step lengths and the map of the refit, which use earlier releases
only. Proof: ``wide.proof.md``.
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
from dperm.queries.gradients import FeatureGradient
from dperm.queries.whitened import MappedGradient, MappedSecondMoment, RowLengths
from dperm.solvers.base import Forecast, Progress, Solution, Solver
from dperm.solvers.central.auto.metric import MetricProx
from dperm.solvers.central.auto.recipes import expected_noise, recipe_for
from dperm.solvers.central.auto.refit import REFIT_LENGTH_SHARE, REFIT_MOMENT_SHARE, REFIT_STEPS, Phase, Refit
from dperm.solvers.central.auto.shrinkage import (
    NO_INFORMATIVE_COLUMN,
    NO_WEIGHTS,
)
from dperm.solvers.central.auto.starting_point import BestConstant, StartingPoint
from dperm.solvers.option_checks import require_positive, require_share, require_whole
from dperm.types import FloatArray

__all__ = ["WideDescent"]

#: share of the steps, and so of the budget of both phases, that the short phase takes
_SHORT_STEPS = 0.6
#: duration of each phase (total step length times curvature times squared row length), in rows times mu
_SHORT_TIME, _LONG_TIME = 0.1, 0.4
#: clip, in typical gradients, at which these times were measured: noise, and so the best time, go with the clip
_CLIP_OF_TIMES = 0.5
#: heavy-ball coefficient of both phases, and the longest step, in 1 / (curvature bound times squared row length): with
#: this momentum steps below 3.6 are stable in every direction
_MOMENTUM, _LONGEST_STEP = 0.8, 3.0
#: a mean row length is taken to be at least this many standard deviations of its noise
_LEAST_LENGTH = 2.0
#: and at least this share of the longest possible row, so that no step is infinite
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
        Number of gradients of both phases together.
    target_share, deviation_share, length_share, refit_share : float
        Shares of the budget for the target's mean, its mean deviation (regression only), the mean row length and the
        refit; the gradients of the two phases get the rest.
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
    #: name of the gradients of both phases in the plan
    group: ClassVar[str] = FeatureGradient.name

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_positive(self, "clip")
        require_share(self, "target_share", "deviation_share", "length_share", "refit_share")
        if self.n_steps < 2:
            raise InvalidInput("n_steps must be at least 2, one step for each phase.")
        if self.target_share + self.deviation_share + self.length_share + self.refit_share > 0.9:
            raise InvalidInput("the shares leave less than a tenth of the budget for the gradients: make them smaller.")

    @property
    def starting_point(self) -> StartingPoint:
        """Releases of the best constant and the slope size."""
        return StartingPoint(self.target_share, self.deviation_share)

    def _phases(self, loss: Loss, rows_times_mu: float, clip: float, sparse: bool) -> list[tuple[int, float]]:
        """Return steps and duration of each phase, for a clip in typical gradients; with an l1 penalty there is one.

        A duration is the total step length times curvature times squared row length.
        """
        n_short = self.n_steps if sparse else max(1, min(round(_SHORT_STEPS * self.n_steps), self.n_steps - 1))
        wanted = rows_times_mu * _CLIP_OF_TIMES / clip
        longest = _LONGEST_STEP / (1.0 - _MOMENTUM) * recipe_for(loss).curvature * min(1.0, clip) / loss.curvature_bound
        phases = ((n_short, _SHORT_TIME), (self.n_steps - n_short, _LONG_TIME))
        return [(n_steps, min(share * wanted, longest * n_steps)) for n_steps, share in phases if n_steps]

    # ------------------------------------------------------------------------------------------------ plan
    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        MetricProx.check(objective)
        FeatureGradient(objective.loss, np.zeros(0))  # refuses a loss without bounded slopes
        ratio = MappedSecondMoment.replacement_ratio
        releases = self.starting_point.releases(objective.loss, facts)
        lengths = self.length_share + self.refit_share * REFIT_LENGTH_SHARE
        rest = 1.0 - sum(release.share for release in releases) - self.length_share - self.refit_share
        moments = self.refit_share * REFIT_MOMENT_SHARE
        refit = self.refit_share * (1.0 - REFIT_LENGTH_SHARE - REFIT_MOMENT_SHARE)
        return Plan(
            (
                *releases,
                PlannedRelease(RowLengths.name, "gaussian", 2, lengths),
                PlannedRelease(self.group, "gaussian", self.n_steps, rest),
                PlannedRelease(MappedSecondMoment.name, "gaussian", 1, moments, replacement_ratio=ratio),
                PlannedRelease(MappedGradient.name, "gaussian", REFIT_STEPS, refit),
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
        facts = holder.facts
        best = self.starting_point.release(objective.loss, holder, calibrated)
        start = np.zeros(facts.d)
        if best.constant is not None:
            start[-1] = best.constant / facts.intercept_height
        lengths = GaussianNoise(calibrated.noise_multiplier(RowLengths.name))
        longest = facts.block_bound(facts.n_features)
        mean = float(holder.release(RowLengths(longest), lengths)[0]) / facts.n + 0.5 * longest
        noise = 0.5 * longest * lengths.noise_multiplier * holder.neighbours.records_apart / facts.n
        row_length = min(max(mean, _LEAST_LENGTH * noise, _LEAST_LENGTH_SHARE * longest), longest)
        phases = self._descend(objective, holder, calibrated, best, start, row_length, progress)
        refit = Refit(objective, holder, calibrated, best, row_length, self.clip)

        def in_refit(done: int) -> None:
            if progress is not None:
                progress(self.n_steps + done, self.n_steps + REFIT_STEPS)

        move, factor = refit.fitted(start, phases, in_refit)
        notes = best.notes
        planned = self.starting_point.utility_warnings(objective.loss, facts, calibrated, holder.neighbours)
        nothing = factor <= NO_WEIGHTS or not any(phase.weights.any() for phase in phases)
        if nothing and not planned:  # for classes the factor is at least that large
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
    ) -> list[Phase]:
        """Return what each phase has learnt."""
        facts, loss, recipe = holder.facts, objective.loss, recipe_for(objective.loss)
        mechanism = GaussianNoise(calibrated.noise_multiplier(self.group))
        longest = loss.slope_bound * facts.block_bound(facts.n_features)
        clip = min((self.clip or recipe.clip_high_noise) * best.slope * row_length, longest)
        clip_in_typical = clip / (best.slope * row_length)
        noise = mechanism.noise_multiplier * holder.neighbours.records_apart * clip / facts.n
        rows_times_mu = facts.n * math.sqrt(self.n_steps) / mechanism.noise_multiplier / holder.neighbours.records_apart
        sparse = SeparablePenalty.of(objective.penalty).l1 > 0.0
        unit = recipe.curvature * min(1.0, clip_in_typical) * row_length**2
        weights, phases, done = start, list[Phase](), 0
        for n_steps, duration in self._phases(loss, rows_times_mu, clip_in_typical, sparse):
            step = (1.0 - _MOMENTUM) * duration / n_steps / unit
            before, previous, total = weights, weights, np.zeros_like(weights)
            n_averaged = 1 if not phases else max(1, n_steps // 2)
            for t in range(n_steps):
                gradient = holder.release(FeatureGradient(loss, weights, clip), mechanism, self.group) / facts.n
                moved = weights + _MOMENTUM * (weights - previous)
                moved[: facts.n_features] -= step * gradient
                previous, weights = weights, objective.prox(moved, step)
                if t >= n_steps - n_averaged:
                    total += weights
                done += 1
                if progress is not None:
                    progress(done, self.n_steps + REFIT_STEPS)
            learnt = (total / n_averaged - before)[: facts.n_features]
            in_all = n_steps * step / (1.0 - _MOMENTUM)
            # an average over the last half has noise of two thirds of the variance
            deviation = in_all / math.sqrt(n_steps) * noise * (1.0 if n_averaged == 1 else math.sqrt(2.0 / 3.0))
            if np.abs(learnt).max() <= _NOTHING * deviation:
                learnt = np.zeros_like(learnt)
            elif sparse:
                learnt = np.where(np.abs(learnt) > _CLEAR_WEIGHT * deviation, learnt, 0.0)
            own = in_all * clip * best.slope * row_length / facts.n if self.correct_overfit else 0.0
            phases.append(Phase(learnt, deviation, own))
        return phases

    # ------------------------------------------------------------------------------------------------ forecast
    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        recipe = recipe_for(objective.loss)
        square = 1.0 if recipe.slope is None else recipe.slope**2
        unit = "" if recipe.slope is not None else ", in units of the target's squared mean deviation"
        mu = math.sqrt(REFIT_STEPS) / calibrated.noise_multiplier(MappedGradient.name)
        refit = expected_noise(objective.loss, replace(facts, d=3), mu, neighbours)
        mu = math.sqrt(self.n_steps) / calibrated.noise_multiplier(self.group)
        rows_times_mu, sparse = facts.n * mu / neighbours.records_apart, SeparablePenalty.of(objective.penalty).l1 > 0.0
        phases = self._phases(objective.loss, rows_times_mu, self.clip or recipe.clip_high_noise, sparse)
        duration = sum(one for _, one in phases)
        noise = square * (duration / rows_times_mu) ** 2 / (8.0 * recipe.curvature)
        columns = recipe.explainable * square
        directions = math.sqrt(facts.d)
        missed = math.exp(-2.0 * duration / directions)
        min_deviation = math.sqrt(math.log(2.0) * directions / duration) * facts.spread / (2.0 * facts.value_bound)
        return Forecast(
            excess=refit + min(columns, noise + columns * missed),
            null_excess=columns,
            basis=f"Estimate, not a bound: the noise of descent and refit, and what a short descent misses{unit}.",
            assumptions=(
                f"the second derivative of the loss is about {recipe.curvature:g}",
                f"rows have similar lengths, and about {directions:.0f} directions (the square root of the number of "
                "columns) carry most of what the columns explain; unrelated columns are learnt more slowly",
                f"the columns can explain about {columns:.2g} of a constant's loss",
            ),
            warnings=self.starting_point.utility_warnings(objective.loss, facts, calibrated, neighbours),
            min_column_deviation=min_deviation,
        )
