"""Noisy gradient descent in a released metric: the main solver of ``solver="auto"``.

A few small releases come first: the mean of the target (the model starts at the best constant), the mean length of a
row, and the second moments of the rows. The second moments give a map B under which the data are isotropic, as far as
their noise allows, so that equal noise in all mapped directions follows the curvature. Then come ``n_steps`` noisy
gradients,

    v <- prox(v + momentum (v - v before) - step (B' gradient + noise)),    w = start + B v,

with an average of the last of them. Finally the result is shrunk according to its share of noise. In regression each
step goes to the posterior mean of the weights given all gradients before it instead (``posterior.py``).

With exact Gaussian composition the number of steps does not affect the noise of the sum of all gradients. The total
step length is what trades signal for noise, and it is chosen from the known noise. One public number, the
``noise_fraction``, sets how cautious each choice is (``docs/automatic.md``).

**Guarantee.** Released to whoever sees the model or any step: target mean (class counts), for regression the mean
deviation of the target, mean row length, one second-moment matrix and ``n_steps`` clipped gradient sums, all with
Gaussian noise. Composition is exact Gaussian composition. Everything is fixed in advance except the map, clip and step
lengths, which use earlier releases only. Proof: ``whitened.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.row_map import RowMap
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import Loss, Objective, Squared
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.statistics import unpack_symmetric
from dperm.queries.whitened import MappedGradient, MappedSecondMoment, RowLengths
from dperm.solvers.base import Forecast, Progress, Solution, Solver
from dperm.solvers.central.auto.clipped_response import ClippedResponse
from dperm.solvers.central.auto.constants import RULE, TINY
from dperm.solvers.central.auto.costs import expected_noise, explainable, skewed
from dperm.solvers.central.auto.descent import Descent
from dperm.solvers.central.auto.metric import Metric, MetricProx
from dperm.solvers.central.auto.null_test import NullDistribution, sampling_shares
from dperm.solvers.central.auto.posterior import Posterior, shrunken_posterior
from dperm.solvers.central.auto.row_length import longest_guess, released_row_length
from dperm.solvers.central.auto.scales import scale_of
from dperm.solvers.central.auto.shrinkage import NO_INFORMATIVE_COLUMN, shrinkage
from dperm.solvers.central.auto.starting_point import BestConstant, StartingPoint
from dperm.solvers.option_checks import require_fraction, require_positive, require_rest, require_share, require_whole
from dperm.types import FloatArray

__all__ = ["WhitenedDescent"]

#: share of the largest weight below which a weight under an l1 penalty is what rounding and averaging left of zero
_ROUNDING = math.sqrt(TINY)


@dataclass(frozen=True)
class WhitenedDescent(Solver):
    """Noisy gradient descent in the metric of released second moments.

    Parameters
    ----------
    n_steps : int
        Number of gradients.
    noise_fraction : float
        How far noise dominates the result, from 0 to 1; see :func:`~dperm.solvers.central.auto.costs.noise_fraction`.
    momentum : float
        Heavy-ball coefficient in [0, 1); regression rarely uses it.
    target_share, deviation_share, length_share, moment_share : float
        Shares of the budget for the target's mean, its mean deviation (regression only), the mean row length and the
        second moments; the gradients get the rest.
    clip : float, optional
        Clipping threshold for one person's gradient, in typical gradients; by default it follows the noise fraction.
    shrink : bool
        Whether the result is shrunk according to its share of noise.
    """

    n_steps: int = RULE.n_steps
    noise_fraction: float = 0.0
    momentum: float = RULE.momentum
    target_share: float = RULE.small_share
    deviation_share: float = RULE.small_share
    length_share: float = RULE.small_share
    moment_share: float = RULE.moment_share
    clip: float | None = None
    shrink: bool = True

    name: ClassVar[str] = "whitened"

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_positive(self, "clip")
        require_fraction(self, "momentum")
        require_share(self, "target_share", "deviation_share", "length_share", "moment_share")
        if not 0.0 <= self.noise_fraction <= 1.0:
            raise InvalidInput(f"noise_fraction must be between 0 and 1, not {self.noise_fraction!r}.")
        require_rest(self, "target_share", "deviation_share", "length_share", "moment_share")

    @property
    def starting_point(self) -> StartingPoint:
        """Releases of the best constant and the slope size."""
        return StartingPoint(self.target_share, self.deviation_share)

    # ------------------------------------------------------------------------------------------------ plan
    def plan(self, objective: Objective, facts: Facts) -> Plan:
        loss = objective.loss
        MetricProx.check(objective)
        most = 2 * RULE.most_columns_of_metric
        if facts.d > most:
            raise Unsupported(
                f"this solver releases all second moments and takes at most {most} columns, not {facts.d}: "
                "use solver='wide'."
            )
        # the query refuses losses with unbounded slopes
        MappedGradient(loss, np.zeros(0), RowMap(np.ones((facts.d, 1)), facts.grids), 1.0)
        releases = self.starting_point.releases(loss, facts)
        releases.append(PlannedRelease(RowLengths.name, "gaussian", 1, self.length_share))
        ratio = MappedSecondMoment.replacement_ratio
        releases.append(
            PlannedRelease(MappedSecondMoment.name, "gaussian", 1, self.moment_share, replacement_ratio=ratio)
        )
        rest = 1.0 - sum(release.share for release in releases)
        return Plan((*releases, PlannedRelease(MappedGradient.name, "gaussian", self.n_steps, rest)))

    # ------------------------------------------------------------------------------------------------ solve
    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        facts, loss, scale = holder.facts, objective.loss, scale_of(objective.loss)
        best = self.starting_point.release(loss, holder, calibrated)
        noise_fraction = skewed(self.noise_fraction, best.skew)
        start = np.zeros(facts.d if loss.n_outputs == 1 else (facts.d, loss.n_outputs))
        if best.constant is not None:
            start[-1] = best.constant / facts.intercept_height
        # the posterior takes slopes for residuals, which those of a robust loss with a low threshold are not
        by_posterior = loss.task == "regression" and loss.slope_bound >= RULE.much_noise * best.slope
        metric = self._metric(holder, calibrated, self._height(loss, noise_fraction))
        clip_in_typical = self.clip or scale.clip_at(noise_fraction)
        # no gradient is longer than the steepest slope times the longest row times the norm of the map
        longest = loss.slope_bound * facts.row_bound * float(np.linalg.norm(metric.row_map.matrix, 2))
        mechanism = GaussianNoise(calibrated.noise_multiplier(MappedGradient.name))
        if by_posterior:
            move, kept = self._posterior_mean(
                objective, holder, mechanism, metric, best, noise_fraction, longest, progress
            )
            return self._noted(self._without_rounding(start + move, objective), kept, best, loss, holder, calibrated)
        clip = min(clip_in_typical * best.slope * metric.row_length, longest)
        noise = mechanism.noise_multiplier * holder.neighbours.records_apart * clip / facts.n
        # clipping shortens the gradients, so the penalty is scaled by the same share: otherwise weights were too small
        prox = MetricProx(objective, metric.row_map.matrix, start, min(1.0, clip_in_typical))
        descent = self._descent(
            metric.row_length**2 / facts.d, noise_fraction, loss, facts, calibrated, holder.neighbours
        )
        descent = replace(descent, penalty_curvature=prox.penalty_curvature)
        # clipping by the label would make models overconfident; where noise dominates it costs less than it saves
        label_independence = 1.0 - noise_fraction if loss.task == "classification" else 0.0
        v = previous = total = np.zeros_like(start)
        for t, step in enumerate(descent.steps):
            weights = start + metric.row_map.matrix @ v
            query = MappedGradient(loss, weights, metric.row_map, clip, label_independence)
            gradient = holder.release(query, mechanism) / facts.n
            pushed = v + self.momentum * (v - previous) - step * gradient
            previous, v = v, prox(pushed, v, float(step))
            if t >= self.n_steps - descent.n_averaged:
                total = total + v
            if progress is not None:
                progress(t + 1, self.n_steps)
        v = total / descent.n_averaged
        null = None
        if self.shrink:
            response = ClippedResponse.of(loss, scale, best, clip_in_typical, label_independence)
            null = NullDistribution.of(response, metric, descent, noise, facts.n, noise_fraction)
        constant = best if loss.task == "regression" and best.constant is not None else None
        least = RULE.least_kept if loss.task == "classification" else 0.0
        # a robust loss does not target the mean
        move, factor = shrinkage(v, metric, null, facts, constant, False, least, RULE.null_level)
        return self._noted(self._without_rounding(start + move, objective), factor, best, loss, holder, calibrated)

    def _noted(
        self,
        weights: FloatArray,
        factor: float,
        best: BestConstant,
        loss: Loss,
        holder: DataHolder,
        calibrated: CalibratedPlan,
    ) -> Solution:
        """Return the solution, with a note where weights were shrunk to a small factor of what was found."""
        notes = best.notes
        # one warning is enough: the plan's covers all, a note on the target covers all but the loss of every column
        planned = self.starting_point.utility_warnings(loss, holder.facts, calibrated, holder.neighbours)
        warned = planned or (notes and factor >= RULE.least_kept)
        if factor < RULE.much_noise and not warned:
            notes += (_shrinkage_note(factor, loss),)
        return Solution(weights, self.n_steps, notes)

    @staticmethod
    def _without_rounding(weights: FloatArray, objective: Objective) -> FloatArray:
        """Return the weights with exact zeros where an l1 penalty left rounding errors of the map only."""
        if not SeparablePenalty.of(objective.penalty).l1:
            return weights
        out: FloatArray = np.where(np.abs(weights) > _ROUNDING * np.abs(weights).max(), weights, 0.0)
        return out

    def _posterior_mean(
        self,
        objective: Objective,
        holder: DataHolder,
        mechanism: GaussianNoise,
        metric: Metric,
        best: BestConstant,
        noise_fraction: float,
        longest: float,
        progress: Progress | None,
    ) -> tuple[FloatArray, float]:
        """Release the gradients of a regression; return the change of the weights and the share that is kept."""
        facts, loss, scale = holder.facts, objective.loss, scale_of(objective.loss)
        start = np.zeros(facts.d)
        if best.constant is not None:
            start[-1] = best.constant / facts.intercept_height
        clip_in_typical = self.clip or scale.clip_at(noise_fraction)
        clipped, whole = (ClippedResponse.of(loss, scale, best, clip, 0.0) for clip in (clip_in_typical, 1.0 / TINY))
        # a robust loss is treated as if it were squared: its curvature is not known before its centre is
        response, squared = (
            ClippedResponse.of(Squared(), scale, best, clip, 0.0) for clip in (clip_in_typical, 1.0 / TINY)
        )
        counted = sampling_shares(noise_fraction, facts.d, facts.n)[1]
        posterior = Posterior.of(metric, response, float(squared.square[0]), facts.n, counted)
        root = np.sqrt(posterior.moments)
        prox = MetricProx(objective, metric.row_map.matrix / root, start)
        # clipping shortens the gradients: the penalty is scaled by the same share
        share = float(clipped.curvature[0] / max(whole.curvature[0], TINY))
        v = np.zeros(facts.d)

        def penalised(mean: FloatArray) -> FloatArray:
            out: FloatArray = prox(root * mean, root * v, share / posterior.curvature) / root
            return out

        for t in range(self.n_steps):
            clip = min(clip_in_typical * best.slope * posterior.residual * metric.row_length, longest)
            query = MappedGradient(loss, start + metric.row_map.matrix @ v, metric.row_map, clip)
            gradient = holder.release(query, mechanism) / facts.n
            posterior.observe(
                v, gradient, mechanism.noise_multiplier * holder.neighbours.records_apart * clip / facts.n
            )
            v = penalised(posterior.mean)
            if progress is not None:
                progress(t + 1, self.n_steps)
        # the squared loss targets the mean, which was released; a robust loss targets another centre
        half = 0.5 * (facts.target_high - facts.target_low)
        targets_mean = isinstance(loss, Squared) and loss.slope_bound >= half
        if not self.shrink:
            return metric.row_map.matrix @ penalised(posterior.observed), 1.0
        return shrunken_posterior(
            posterior, metric, penalised, facts, None if best.constant is None else best, targets_mean
        )

    def _descent(
        self,
        mean_square: float,
        noise_fraction: float,
        loss: Loss,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
    ) -> Descent:
        """Return the step lengths for mapped rows whose coordinates have this mean square."""
        scale, noise = scale_of(loss), expected_noise(loss, facts, self._mu(calibrated), neighbours)
        # the same signal for any number of classes: each direction of many classes has a smaller part of it
        signal = RULE.explainable * (scale.slope or 1.0) ** 2
        return Descent.planned(scale, noise_fraction, mean_square, signal / noise, self.n_steps, self.momentum)

    def _mu(self, calibrated: CalibratedPlan) -> float:
        """Return the budget of all gradients."""
        return math.sqrt(self.n_steps) / calibrated.noise_multiplier(MappedGradient.name)

    @staticmethod
    def _height(loss: Loss, noise_fraction: float) -> float:
        """Return the height of the intercept's column, in row lengths.

        With a high intercept columns that are far from zero can be learnt. But noise pushes it away from the best
        constant, and so do clipped slopes of unequal classes and the centre of a skewed target that a robust loss has.
        """
        return RULE.intercept_height * (1.0 - 0.5 * noise_fraction) * (2.0 if isinstance(loss, Squared) else 1.0)

    @staticmethod
    def _metric(holder: DataHolder, calibrated: CalibratedPlan, height: float) -> Metric:
        facts = holder.facts
        query, heights, length = _moment_query(facts, released_row_length(holder, calibrated), height)
        mechanism = GaussianNoise(calibrated.noise_multiplier(MappedSecondMoment.name))
        sensitivity = query.sensitivity(facts, holder.neighbours)
        noise = mechanism.noise_scale(sensitivity, query.bound(facts), query.size(facts)) / facts.n
        moments = unpack_symmetric(holder.release(query, mechanism), facts.d) / facts.n
        return Metric.of(moments, heights, noise, length, facts.grids)

    def _min_column_deviation(
        self, loss: Loss, facts: Facts, calibrated: CalibratedPlan, neighbours: Neighbours
    ) -> float:
        """Standard deviation, in ranges, of a column whose weight the descent learns by half; a public number.

        A column whose second moment is below the floor of the metric is mapped as if its second moment were the floor,
        so it is learnt more slowly in the same proportion.
        """
        scale, (query, *_) = (
            scale_of(loss),
            _moment_query(facts, longest_guess(facts), self._height(loss, self.noise_fraction)),
        )
        noise = calibrated.noise_multiplier(MappedSecondMoment.name) * query.sensitivity(facts, neighbours) / facts.n
        time = self._descent(1.0, self.noise_fraction, loss, facts, calibrated, neighbours).time
        slowdown = math.log(2.0) / (scale.curvature * min(1.0, scale.clip_at(self.noise_fraction)) * time)
        return math.sqrt(noise * math.sqrt(2.0 * facts.d) * slowdown) / (2.0 * facts.value_bound)

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        scale = scale_of(objective.loss)
        unit = "" if scale.slope is not None else ", in units of the target's squared mean deviation"
        min_deviation = self._min_column_deviation(objective.loss, facts, calibrated, neighbours)
        noise = expected_noise(objective.loss, facts, self._mu(calibrated), neighbours)
        columns = explainable(objective.loss)
        return Forecast(
            # a cautious descent stops early and is shrunk: of its noise this share remains
            excess=noise * columns / (columns + self.noise_fraction * noise),
            null_excess=columns,
            basis=f"Estimate, not a bound: the noise of all gradients together in an isotropic metric, shrunk{unit}.",
            assumptions=(
                f"the second derivative of the loss is about {scale.curvature:g}",
                "rows have similar lengths, and the noise of the second moments does not hide the metric",
                "every column is well spread over its range: one whose standard deviation is below about "
                f"{math.ceil(1000.0 * min(min_deviation, 0.5)) / 1000.0:.1%} of its range may be learnt only in part",
                f"the columns can explain about {columns:.2g} of a constant's loss",
            ),
            warnings=self.starting_point.utility_warnings(objective.loss, facts, calibrated, neighbours),
            min_column_deviation=min_deviation,
        )


def _shrinkage_note(factor: float, loss: Loss) -> str:
    if factor < RULE.least_kept:
        return NO_INFORMATIVE_COLUMN
    constant = "the target's mean" if loss.task == "regression" else "the class frequencies"
    return (
        f"Noise is a large part of the weights, which were shrunk to {factor:.0%}: if the columns explain little of "
        f"the target, predictions may be worse than {constant} alone"
    )


def _moment_query(facts: Facts, length: float, height: float) -> tuple[MappedSecondMoment, FloatArray, float]:
    """Return the second-moment query for rows of this length, its column heights and its clipping threshold."""
    heights = np.ones(facts.d)
    if facts.d > facts.n_features:
        heights[-1] = height * length / facts.intercept_height
        length *= math.hypot(1.0, height)
    return MappedSecondMoment(length, RowMap(np.diag(heights), facts.grids)), heights, length
