"""Noisy gradient descent in a released metric: the workhorse of ``solver="auto"``.

A few small releases first: the mean of the target (the model starts at the best constant), the mean length of a row,
and the second moments of the rows. From the last comes a map B under which the data are round as far as the noise lets
one see, so that equal noise in all mapped directions follows the curvature. Then ``n_steps`` noisy gradients,

    v <- prox(v - eta_t (B' gradient + noise)),    w = start + B v,

with steps that decay, a tail average, and a last factor that shrinks the result by the share of noise in it.

With exact Gaussian composition the number of steps is not a privacy parameter; the total time sum eta_t is what trades
signal for noise, and it is chosen from the known noise. How much each choice leans towards caution follows one public
number, the ``dominance`` of noise (``docs/automatic.md``).

**Guarantee.** Released to whoever sees the model or any step: target mean (class counts), for regression the mean
deviation of the target, mean row length, one second-moment matrix and ``n_steps`` clipped gradient sums, all with
Gaussian noise; exact Gaussian composition, everything fixed in advance but the map, clip and step lengths, which use
earlier releases only. Proof: ``whitened.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.row_map import RowMap
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import Loss, Objective, Squared
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.statistics import unpack_symmetric
from dperm.queries.whitened import MappedGradient, MappedSecondMoment, RowLengths
from dperm.solvers.base import Forecast, Progress, Solution, Solver
from dperm.solvers.central.auto.metric import Metric, MetricProx
from dperm.solvers.central.auto.null_test import NOTHING_SEEN
from dperm.solvers.central.auto.recipes import Recipe, expected_noise, recipe_for
from dperm.solvers.central.auto.shrinkage import ClippedResponse, Descent, KnownNoise, shrinkage
from dperm.solvers.central.auto.starting_point import StartingPoint
from dperm.solvers.option_checks import require_fraction, require_positive, require_share, require_whole
from dperm.types import FloatArray

__all__ = ["WhitenedDescent"]


_MOST_COLUMNS = 2000
#: share of the weights that noise leaves, below which a fit says so
_DOUBTFUL = 0.5
#: and below which it says that no column could be told from noise, and nothing or next to nothing is left
_NOTHING = 0.1


@dataclass(frozen=True)
class WhitenedDescent(Solver):
    """Noisy gradient descent in the metric of released second moments.

    Parameters
    ----------
    n_steps : int
        Number of gradients.
    dominance : float
        How much noise will rule the result, from 0 to 1; see
        ``noise_dominance`` of the automatic rule.
    momentum : float
        Heavy-ball coefficient in [0, 1).
    target_share, deviation_share, length_share, moment_share : float
        Shares of the budget for the target's mean, its deviation (regression only), the mean row length and the second
        moments; the gradients get the rest.
    clip : float, optional
        Bound on one person's gradient, in typical ones; by default it follows the dominance.
    shrink : bool
        Whether the result is shrunk by its share of noise.
    """

    n_steps: int = 64
    dominance: float = 0.0
    momentum: float = 0.0
    target_share: float = 0.01
    deviation_share: float = 0.01
    length_share: float = 0.01
    moment_share: float = 0.15
    clip: float | None = None
    shrink: bool = True

    name: ClassVar[str] = "whitened"

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_positive(self, "clip")
        require_fraction(self, "momentum")
        require_share(self, "target_share", "deviation_share", "length_share", "moment_share")
        if not 0.0 <= self.dominance <= 1.0:
            raise InvalidInput(f"dominance must be between 0 and 1, not {self.dominance!r}.")
        if self.target_share + self.deviation_share + self.length_share + self.moment_share > 0.9:
            raise InvalidInput("the shares leave less than a tenth of the budget for the gradients: make them smaller.")

    @property
    def _start(self) -> StartingPoint:
        return StartingPoint(self.target_share, self.deviation_share)

    # ------------------------------------------------------------------------------------------------ plan
    def plan(self, objective: Objective, facts: Facts) -> Plan:
        loss = objective.loss
        MetricProx.check(objective)
        if facts.d > _MOST_COLUMNS:
            raise Unsupported(
                f"this solver releases all second moments, too much for {facts.d} columns (at most {_MOST_COLUMNS}): "
                "use solver='gradient' or 'greedy'."
            )
        MappedGradient(loss, np.zeros(0), RowMap(np.ones((facts.d, 1)), facts.grids), 1.0)  # refuses unbounded slopes
        releases = self._start.releases(loss, facts)
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
        facts, loss, recipe = holder.facts, objective.loss, recipe_for(objective.loss)
        best = self._start.release(loss, holder, calibrated)
        dominance = recipe.raised(self.dominance, best.skew)
        start = np.zeros(facts.d if loss.n_outputs == 1 else (facts.d, loss.n_outputs))
        if best.constant is not None:
            start[-1] = best.constant / facts.intercept_height
        metric = self._metric(holder, calibrated, recipe.mixed(recipe.heights, dominance))
        clip_in_typical = self.clip or recipe.clip(dominance)
        wanted = clip_in_typical * best.slope * metric.length
        # no gradient is longer than steepest slope times longest row, stretched as far as the map can
        longest = loss.slope_bound * facts.row_bound * float(np.linalg.norm(metric.rows.matrix, 2))
        clip = min(wanted, longest)
        mechanism = GaussianNoise(calibrated.noise_multiplier(MappedGradient.name))
        noise = mechanism.noise_multiplier * holder.neighbours.records_apart * clip / facts.n
        steps = self._steps(metric, mechanism, holder, recipe, dominance, loss.n_outputs)
        # what the clip takes from the gradients it must take from the penalty, or the result would be too small
        prox = MetricProx(objective, metric.rows.matrix, start, recipe.share_passed(clip_in_typical))
        blindness = recipe.mixed(recipe.blindness, dominance)
        n_averaged = max(1, round(0.5 * (1.0 - dominance) * self.n_steps))
        v = previous = total = np.zeros_like(start)
        for t, step in enumerate(steps):
            weights = start + metric.rows.matrix @ v
            gradient = holder.release(MappedGradient(loss, weights, metric.rows, clip, blindness), mechanism) / facts.n
            pushed = v + self.momentum * (v - previous) - step * gradient
            previous, v = v, prox(pushed, v, float(step))
            if t >= self.n_steps - n_averaged:
                total = total + v
            if progress is not None:
                progress(t + 1, self.n_steps)
        v = total / n_averaged
        known_noise = None
        if self.shrink:
            answer = ClippedResponse.of(loss, recipe, best, clip_in_typical, blindness)
            descent = Descent(steps, self.momentum, n_averaged, prox.bend)
            # the less noise there is, the more a fit is to be like one without privacy, by which chance is believed
            known_noise = KnownNoise.of(answer, metric, descent, noise, facts.n, dominance**0.25)
        # the squared loss asks for the mean, which is known; a robust one has its own idea of the middle of a target
        half = 0.5 * (facts.target_high - facts.target_low)
        asks_for_mean = isinstance(loss, Squared) and loss.slope_bound >= half
        known = best if loss.task == "regression" and best.constant is not None else None
        moved, kept = shrinkage(v, metric, known_noise, recipe, facts, known, asks_for_mean)
        notes = best.notes
        # the plan says more, and so does a note on the target, but not that every column is gone
        said = (notes and kept >= _NOTHING) or self._start.doubts(loss, facts, calibrated, holder.neighbours)
        if kept < _DOUBTFUL and not said:
            notes += (_doubtful(kept, loss),)
        return Solution(start + moved, self.n_steps, notes)

    def _steps(
        self,
        metric: Metric,
        mechanism: GaussianNoise,
        holder: DataHolder,
        recipe: Recipe,
        dominance: float,
        n_outputs: int,
    ) -> FloatArray:
        d = metric.rows.shape[0]
        mu = math.sqrt(self.n_steps) / mechanism.noise_multiplier
        resolution = holder.facts.n * mu / (holder.neighbours.records_apart * d * math.sqrt(n_outputs))
        time = recipe.total_time(dominance, metric.length**2 / d, resolution)
        first = recipe.first_step(dominance, time, self.n_steps, self.momentum)
        return first * recipe.decay(dominance, self.n_steps)

    def _metric(self, holder: DataHolder, calibrated: CalibratedPlan, height: float) -> Metric:
        facts = holder.facts
        longest = facts.block_bound(facts.n_features)
        mechanism = GaussianNoise(calibrated.noise_multiplier(RowLengths.name))
        mean = float(holder.release(RowLengths(longest), mechanism)[0]) / facts.n + 0.5 * longest
        query, heights, length = _moments(facts, min(max(mean, 0.1 * longest), longest), height)
        mechanism = GaussianNoise(calibrated.noise_multiplier(MappedSecondMoment.name))
        sensitivity = query.sensitivity(facts, holder.neighbours)
        noise = mechanism.noise_scale(sensitivity, query.bound(facts), query.size(facts)) / facts.n
        moments = unpack_symmetric(holder.release(query, mechanism), facts.d) / facts.n
        return Metric.of(moments, heights, noise, length, facts.grids)

    def _least_seen(self, facts: Facts, calibrated: CalibratedPlan, neighbours: Neighbours, recipe: Recipe) -> float:
        """Standard deviation, in ranges, of a column of which half is learnt in all steps; public.

        A column whose second moment is below the floor of the metric is mapped as if it had that of the floor, so it
        is learnt more slowly in the same proportion.
        """
        rows = min(facts.spread * math.sqrt(facts.n_features), facts.block_bound(facts.n_features))
        query, *_ = _moments(facts, rows, recipe.mixed(recipe.heights, self.dominance))
        noise = calibrated.noise_multiplier(MappedSecondMoment.name) * query.sensitivity(facts, neighbours) / facts.n
        mu = math.sqrt(self.n_steps) / calibrated.noise_multiplier(MappedGradient.name)
        resolution = facts.n * mu / (neighbours.records_apart * facts.d)
        time = recipe.total_time(self.dominance, 1.0, resolution)
        first = recipe.first_step(self.dominance, time, self.n_steps, self.momentum)
        lasting = first * float(recipe.decay(self.dominance, self.n_steps).sum()) / (1.0 - self.momentum)
        slow = math.log(2.0) / (recipe.curvature * min(1.0, recipe.clip(self.dominance)) * lasting)
        return math.sqrt(noise * math.sqrt(2.0 * facts.d) * slow) / (2.0 * facts.value_bound)

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        mu = math.sqrt(self.n_steps) / calibrated.noise_multiplier(MappedGradient.name)
        recipe = recipe_for(objective.loss)
        square = 1.0 if recipe.slope is None else recipe.slope**2
        unit = "" if recipe.slope is not None else ", in units of the target's squared mean deviation"
        least = self._least_seen(facts, calibrated, neighbours, recipe)
        return Forecast(
            excess=expected_noise(objective.loss, facts, mu, neighbours),
            null_excess=recipe.explained * square,
            basis=f"Estimate, not a bound: the noise of all gradients together in a round metric{unit}.",
            assumptions=(
                f"the second derivative of the loss is about {recipe.curvature:g}",
                "rows are about as long as one another, and the metric is seen",
                "the others spread over their ranges, a column whose standard deviation is below about "
                f"{min(max(least, 1e-3), 0.5):.1%} of its range loses half of its weight or more",
                f"weights can explain about {recipe.explained * square:.2g} of a constant's loss",
            ),
            warnings=self._start.doubts(objective.loss, facts, calibrated, neighbours),
            min_column_deviation=least,
        )


def _doubtful(kept: float, loss: Loss) -> str:
    if kept < _NOTHING:
        return NOTHING_SEEN
    instead = "its mean" if loss.task == "regression" else "the shares of its classes"
    return (
        f"noise is a large part of the weights, which were shrunk to {kept:.0%}: if the columns say little "
        f"about the target, predictions may be worse than {instead}"
    )


def _moments(facts: Facts, length: float, height: float) -> tuple[MappedSecondMoment, FloatArray, float]:
    """Return the query of second moments for rows of this length, the heights of its columns and its clip."""
    heights = np.ones(facts.d)
    if facts.d > facts.n_features:
        heights[-1] = height * length / facts.intercept_height
        length *= math.hypot(1.0, height)
    return MappedSecondMoment(length, RowMap(np.diag(heights), facts.grids)), heights, length
