"""The refit of a descent: the loss is minimised over the intercept and one factor for what each phase has learnt.

It costs little, because it is a problem of a few columns: the scores of the phases, and a constant. Rows are mapped to
their scores, so the queries are those of the descent in a metric. Proof: ``wide.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.row_map import RowMap
from dperm.data.holding.holder import DataHolder
from dperm.objective import Objective, Squared
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.statistics import unpack_symmetric
from dperm.queries.whitened import MappedGradient, MappedSecondMoment, RowLengths
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.recipes import expected_noise, recipe_for
from dperm.solvers.central.auto.shrinkage import NULL_LEVEL, Descent, NullDistribution, shrinkage
from dperm.solvers.central.auto.starting_point import BestConstant, ClippedResponse
from dperm.types import FloatArray

__all__ = ["REFIT_LENGTH_SHARE", "REFIT_MOMENT_SHARE", "REFIT_STEPS", "Phase", "Refit"]

#: gradients of the refit
REFIT_STEPS = 48
#: largest score that the refit is prepared for: this many standard deviations of its noise, and per row times mu
_LEAST_SCORE, _SCORE_PER_ROW = 3.0, 0.1
#: least typical score: noise alone has a mean size of 0.8 standard deviations
_LEAST_TYPICAL_SCORE = 0.7
#: clip of a row of scores, in typical rows
_SCORE_CLIP = 2.0
#: budget shares of the refit for the length of the scores and for their second moments; its gradients get the rest
REFIT_LENGTH_SHARE, REFIT_MOMENT_SHARE = 0.1, 0.2
#: smallest factor of the short phase for classes, in typical scores: it keeps the ranking, and the shrinkage afterwards
#: takes most of it away again where scores are noise. Tried: 0.05, 0.2 and 0.4; pure noise costs .002, .002, .013
_LEAST_FACTOR = 0.2
#: a map whose largest entry is below this, or above its inverse, says nothing about the rows
_SMALLEST_MAP = 1e-80
#: least second moment of a direction of scores and constant, against the released one. Tried: 0 and 0.3; with 0 the
#: refit keeps nothing in up to a third of the fits where few rows make moments noisy
_LEAST_MOMENT = 0.3
#: height of the intercept column in the refit, in typical rows of scores
_HEIGHT = 0.5


@dataclass(frozen=True, eq=False)
class Phase:
    """What a phase has learnt: a weight for each column, the noise of a weight, and the rows' own part.

    ``own`` is the mean product of slope and score that a person's own gradient causes: it looks like signal in the rows
    that the descent has seen, and helps nobody else.
    """

    weights: FloatArray
    deviation: float
    own: float


@dataclass(frozen=True, eq=False)
class _PenaltyOfFactors:
    """The penalty as a function of the refit's coordinates, ``share`` of it because clipping shortens gradients too."""

    matrix: FloatArray
    #: strength of the l1 penalty for each weight
    l1: FloatArray
    #: second derivative of an l2 penalty
    ridge: FloatArray

    @classmethod
    def of(cls, objective: Objective, matrix: FloatArray, share: float) -> _PenaltyOfFactors:
        penalty = SeparablePenalty.of(objective.penalty)
        penalised = np.full(len(matrix), share)
        penalised[list(objective.unpenalised)] = 0.0
        return cls(matrix, penalty.l1 * penalised, matrix.T @ (penalty.l2 * penalised[:, None] * matrix))

    def slope_of_l1(self, weights: FloatArray) -> FloatArray:
        slope: FloatArray = self.matrix.T @ (self.l1 * np.sign(weights))
        return slope

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """Return the proximal point of the l2 penalty, which may be far steeper than the loss."""
        values, vectors = np.linalg.eigh(self.ridge)
        out: FloatArray = vectors @ ((vectors.T @ v) / (1.0 + step * np.maximum(values, 0.0)))
        return out


def _map_of(matrix: FloatArray, facts: Facts) -> RowMap:
    """Return a map of rows; where nothing is left of the columns, one that lets every release be made nevertheless."""
    largest = float(np.abs(matrix).max(initial=0.0))
    usable = _SMALLEST_MAP <= largest <= 1.0 / _SMALLEST_MAP
    return RowMap(matrix if usable else np.ones_like(matrix), facts.grids)


def _factors_at_least(least: FloatArray, v: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return coordinates whose factors are not too small: what was learnt may be worthless, but not the opposite."""
    factors = matrix @ v
    if np.all(factors[: len(least)] >= least):
        return v
    factors[: len(least)] = np.maximum(factors[: len(least)], least)
    return np.asarray(np.linalg.solve(matrix, factors), np.float64)


@dataclass(frozen=True)
class Refit:
    """Minimises the loss over the intercept and one factor for what each phase has learnt."""

    objective: Objective
    holder: DataHolder
    calibrated: CalibratedPlan
    best: BestConstant
    row_length: float
    clip: float | None

    def fitted(
        self, start: FloatArray, phases: list[Phase], progress: Callable[[int], None]
    ) -> tuple[FloatArray, float]:
        """Return the change of the weights, and the factor by which the refit was shrunk."""
        facts, loss, recipe = self.holder.facts, self.objective.loss, recipe_for(self.objective.loss)
        directions, own = self._directions(phases)
        inner = replace(
            facts,
            n_features=len(phases),
            d=directions.shape[1],
            intercept_height=_HEIGHT if facts.d > facts.n_features else 0.0,
        )
        metric = self._metric(directions, inner)
        rows = _map_of(directions @ metric.row_map.matrix, facts)
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(MappedGradient.name))
        mu = math.sqrt(REFIT_STEPS) / mechanism.noise_multiplier
        excess = expected_noise(loss, inner, mu, self.holder.neighbours)
        fraction = recipe.adjust_for_skew(excess / (excess + recipe.tolerated_excess), self.best.skew)
        clip_in_typical = self.clip or recipe.clip(fraction)
        longest = loss.slope_bound * facts.row_bound * float(np.linalg.norm(rows.matrix, 2))
        clip = min(clip_in_typical * self.best.slope * metric.row_length, longest)
        noise = mechanism.noise_multiplier * self.holder.neighbours.records_apart * clip / facts.n
        resolution = facts.n * mu / (self.holder.neighbours.records_apart * inner.d)
        time = recipe.total_time(fraction, metric.row_length**2 / inner.d, resolution)
        steps = recipe.first_step(fraction, time, REFIT_STEPS, 0.0) * recipe.step_decay(fraction, REFIT_STEPS)
        independence = recipe.interpolate(recipe.label_independence, fraction)
        n_averaged = max(1, round(0.5 * (1.0 - fraction) * REFIT_STEPS))
        penalty = _PenaltyOfFactors.of(self.objective, rows.matrix, recipe.share_passed(clip_in_typical))
        least = np.zeros(len(phases))
        least[0] = _LEAST_FACTOR if loss.task == "classification" else 0.0
        own_slope = metric.row_map.matrix.T @ own
        v, total = np.zeros(inner.d), np.zeros(inner.d)
        for t, step in enumerate(steps):
            weights = start + rows.matrix @ v
            gradient = self.holder.release(MappedGradient(loss, weights, rows, clip, independence), mechanism) / facts.n
            v = penalty.prox(v - step * (gradient + own_slope + penalty.slope_of_l1(weights)), step)
            v = _factors_at_least(least, v, metric.row_map.matrix)
            progress(t + 1)
            if t >= REFIT_STEPS - n_averaged:
                total = total + v
        v = total / n_averaged
        response = ClippedResponse.of(loss, recipe, self.best, clip_in_typical, independence)
        descent = Descent(steps, 0.0, n_averaged, np.diag(penalty.ridge))
        null = NullDistribution.of(response, metric, descent, noise, facts.n, fraction**0.25)
        half = 0.5 * (facts.target_high - facts.target_low)
        targets_mean = isinstance(loss, Squared) and loss.slope_bound >= half
        constant = self.best if loss.task == "regression" and self.best.constant is not None else None
        # a null test would throw the ranking of people away, which may be good where probabilities are not yet
        level = 1.0 if loss.task == "classification" else NULL_LEVEL
        move, factor = shrinkage(v, metric, null, recipe, inner, constant, targets_mean, level)
        return directions @ move, factor

    def _directions(self, phases: list[Phase]) -> tuple[FloatArray, FloatArray]:
        """Return a column of weights for each phase and one for the intercept, and the own part of each.

        Scores are divided by the released mean length of a row of them, in standard deviations of their noise.
        """
        facts, neighbours = self.holder.facts, self.holder.neighbours
        columns = np.zeros((facts.d, len(phases) + (facts.d > facts.n_features)))
        own = np.zeros(columns.shape[1])
        for k, phase in enumerate(phases):
            unit = 1.0 / max(phase.deviation * self.row_length, 1e-200)
            columns[: facts.n_features, k], own[k] = unit * phase.weights, unit * phase.own
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(RowLengths.name))
        scores = _map_of(columns[:, : len(phases)], facts)
        rows_times_mu = facts.n / mechanism.noise_multiplier / neighbours.records_apart
        largest = math.sqrt(len(phases)) * max(_LEAST_SCORE, _SCORE_PER_ROW * rows_times_mu)
        mean = float(self.holder.release(RowLengths(largest, scores), mechanism)[0]) / facts.n + 0.5 * largest
        typical = min(max(mean, _LEAST_TYPICAL_SCORE), largest)
        columns /= typical
        if facts.d > facts.n_features:
            columns[-1, -1] = _HEIGHT / facts.intercept_height
        # where scores are mostly signal, own parts change predictions as much as slopes, and the two effects cancel
        return columns, own / typical * min(1.0, len(phases) / typical**2)

    def _metric(self, directions: FloatArray, inner: Facts) -> Metric:
        facts = self.holder.facts
        clip = _SCORE_CLIP * math.hypot(1.0, _HEIGHT)
        query = MappedSecondMoment(clip, _map_of(directions, facts))
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(MappedSecondMoment.name))
        sensitivity = query.sensitivity(facts, self.holder.neighbours)
        noise = mechanism.noise_scale(sensitivity, query.bound(facts), query.size(facts)) / facts.n
        moments = unpack_symmetric(self.holder.release(query, mechanism), inner.d) / facts.n
        metric = Metric.of(moments, np.ones(inner.d), noise, clip, inner.grids)
        # a direction that noise makes look empty would take the others' evidence with it
        row_moments = np.maximum(metric.row_moments, _LEAST_MOMENT)
        return replace(metric, row_moments=row_moments, row_length=math.sqrt(float(row_moments.sum())))
