"""The refit of a descent: the loss is minimised over the intercept and one factor for each direction that was learnt.

It costs little, because it is a problem of a few columns: the scores along the directions, and a constant. Rows are
mapped to their scores, so the queries are those of the descent in a metric. Proof: ``wide.proof.md``.
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
from dperm.privacy.accounting.calibration import CalibratedPlan, PlannedRelease
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.statistics import unpack_symmetric
from dperm.queries.whitened import MappedGradient, MappedSecondMoment, RowLengths
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.recipes import expected_noise, recipe_for
from dperm.solvers.central.auto.shrinkage import NULL_LEVEL, Descent, NullDistribution, shrinkage
from dperm.solvers.central.auto.starting_point import BestConstant, ClippedResponse
from dperm.types import FloatArray

__all__ = [
    "HEIGHT",
    "LARGEST_START",
    "LEAST_FACTOR",
    "LEAST_SCORE",
    "LEAST_TYPICAL_SCORE",
    "REFIT_LENGTH_SHARE",
    "REFIT_STEPS",
    "SCORE_PER_ROW",
    "Learnt",
    "PenaltyOfFactors",
    "Refit",
    "map_of",
]

#: gradients of the refit
REFIT_STEPS = 48
#: largest score that the refit is prepared for: this many standard deviations of its noise, and per row times mu
LEAST_SCORE, SCORE_PER_ROW = 3.0, 0.1
#: least typical score: noise alone has a mean size of 0.8 standard deviations
LEAST_TYPICAL_SCORE = 0.7
#: clip of a row of scores, in typical rows
_SCORE_CLIP = 2.0
#: budget shares of the refit for the length of the scores and for their second moments; its gradients get the rest
REFIT_LENGTH_SHARE, _REFIT_MOMENT_SHARE = 0.3, 0.2
#: smallest factor of the first direction for classes, in typical scores: it keeps the ranking, and the shrinkage
#: afterwards takes most of it away again where scores are noise. Tried: 0.02, 0.1 and 0.2
LEAST_FACTOR = 0.1
#: standard deviations by which the squared length of the weights must exceed that of their noise before it counts as
#: signal. Tried: 0.5, 1.5 and 2.5; with 0.5 pure noise of 20 columns and 500 rows cost twice as much at epsilon 0.1
_CLEAR_SIGNAL = 1.5
#: largest score, in logits, that the refit starts from. Tried: 0.7, 1 and 3
LARGEST_START = 1.0
#: a map whose largest entry is below this, or above its inverse, says nothing about the rows
_SMALLEST_MAP = 1e-80
#: least second moment of a direction of scores and constant, against the released one. Tried: 0 and 0.3; with 0 the
#: refit keeps nothing in up to a third of the fits where few rows make moments noisy
_LEAST_MOMENT = 0.3
#: height of the intercept column in the refit, in typical rows of scores
HEIGHT = 0.5


@dataclass(frozen=True, eq=False)
class Learnt:
    """A direction that was learnt: a weight for each column, and what is known about them.

    Attributes
    ----------
    weights : array of shape (p,)
        A weight for each column.
    deviation : float
        Standard deviation of the noise of a weight without a penalty: the unit of scores.
    noise : float
        What an l2 penalty leaves of it.
    own : float
        Mean product of slope and score that a person's own gradient causes: it looks like signal in the rows that the
        descent has seen, and helps nobody else.
    time : float
        Sum of the step lengths, less what an l2 penalty takes away; 0 where the weights are no plain sum of gradients,
        as with an l1 penalty.
    """

    weights: FloatArray
    deviation: float
    noise: float
    own: float
    time: float = 0.0

    @property
    def signal(self) -> float:
        """Root of the share of the weights' squared length that is not noise; at least one deviation of that share."""
        noisy = np.count_nonzero(self.weights)  # an l1 penalty leaves few
        if not noisy:
            return 1.0
        square = float(np.square(self.weights / max(self.noise, 1e-200)).sum())
        return math.sqrt(min(max(1.0 - noisy / square, math.sqrt(2.0 / noisy)), 1.0))

    def best_factor(self, square: float, curvature: float) -> float:
        """Factor of the weights that minimises the loss, as far as the weights themselves and public numbers tell.

        The weights are the time of the descent times the mean gradient on its way, plus noise. So their squared length
        without noise and own part, over the time, is the slope of the loss along them; ``square``, the mean square of a
        score, times ``curvature`` is its second derivative (one Newton step).
        """
        p = self.weights.size
        noise = self.noise**2 * (p + _CLEAR_SIGNAL * math.sqrt(2.0 * p))
        signal = float(np.square(self.weights).sum()) - noise - self.time * self.own
        if not (self.time > 0.0 and square > 0.0 and signal > 0.0):
            return 0.0
        return signal / (self.time * curvature * square)


@dataclass(frozen=True, eq=False)
class PenaltyOfFactors:
    """The penalty as a function of the refit's coordinates, ``share`` of it because clipping shortens gradients too.

    The length of weights is mostly that of their noise, which says nothing about how large weights should be. So an l2
    penalty counts what is left of their squared length without the known noise.
    """

    matrix: FloatArray
    #: strength of the l1 penalty for each weight
    l1: FloatArray
    #: second derivative of an l2 penalty
    ridge: FloatArray

    @classmethod
    def of(cls, objective: Objective, matrix: FloatArray, signal: FloatArray, share: float) -> PenaltyOfFactors:
        """Build it; ``signal`` is the part of ``matrix`` that is not noise."""
        penalty = SeparablePenalty.of(objective.penalty)
        penalised = np.full(len(matrix), share)
        penalised[list(objective.unpenalised)] = 0.0
        return cls(matrix, penalty.l1 * penalised, signal.T @ (penalty.l2 * penalised[:, None] * signal))

    def slope_of_l1(self, weights: FloatArray) -> FloatArray:
        slope: FloatArray = self.matrix.T @ (self.l1 * np.sign(weights))
        return slope

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """Return the proximal point of the l2 penalty, which may be far steeper than the loss."""
        values, vectors = np.linalg.eigh(self.ridge)
        out: FloatArray = vectors @ ((vectors.T @ v) / (1.0 + step * np.maximum(values, 0.0)))
        return out


def map_of(matrix: FloatArray, facts: Facts) -> RowMap:
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
    """Minimises the loss over the intercept and one factor for each direction that was learnt."""

    objective: Objective
    holder: DataHolder
    calibrated: CalibratedPlan
    best: BestConstant
    row_length: float
    clip: float | None

    @staticmethod
    def releases(share: float, n_directions: int) -> tuple[int, float, list[PlannedRelease]]:
        """Number of lengths of scores and their budget share, and the other planned releases."""
        moments, ratio = share * _REFIT_MOMENT_SHARE, MappedSecondMoment.replacement_ratio
        gradients = share * (1.0 - REFIT_LENGTH_SHARE - _REFIT_MOMENT_SHARE)
        return (
            1,
            share * REFIT_LENGTH_SHARE,
            [
                PlannedRelease(MappedSecondMoment.name, "gaussian", 1, moments, replacement_ratio=ratio),
                PlannedRelease(MappedGradient.name, "gaussian", REFIT_STEPS, gradients),
            ],
        )

    def fitted(
        self, start: FloatArray, learnt: list[Learnt], progress: Callable[[int], None]
    ) -> tuple[FloatArray, float]:
        """Return the change of the weights, and how much is left of the columns.

        That is the typical size of a score for classes, and the factor by which the refit was shrunk in regression.
        """
        facts, loss, recipe = self.holder.facts, self.objective.loss, recipe_for(self.objective.loss)
        directions, own, factors = self._directions(learnt)
        inner = replace(
            facts,
            n_features=len(learnt),
            d=directions.shape[1],
            intercept_height=HEIGHT if facts.d > facts.n_features else 0.0,
        )
        metric = self._metric(directions, inner)
        rows = map_of(directions @ metric.row_map.matrix, facts)
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
        signal = directions.copy()
        signal[:, : len(learnt)] *= [one.signal for one in learnt]
        signal = signal @ metric.row_map.matrix
        penalty = PenaltyOfFactors.of(self.objective, rows.matrix, signal, recipe.share_passed(clip_in_typical))
        least = np.zeros(len(learnt))
        least[0] = LEAST_FACTOR if loss.task == "classification" else 0.0
        own_slope = metric.row_map.matrix.T @ own
        first: FloatArray = np.linalg.solve(metric.row_map.matrix, factors).astype(np.float64, copy=False)
        v, total = first, np.zeros(inner.d)
        for t, step in enumerate(steps):
            weights = start + rows.matrix @ v
            gradient = self.holder.release(MappedGradient(loss, weights, rows, clip, independence), mechanism) / facts.n
            v = penalty.prox(v - step * (gradient + own_slope + penalty.slope_of_l1(weights)), step)
            v = _factors_at_least(least, v, metric.row_map.matrix)
            progress(t + 1)
            if t >= REFIT_STEPS - n_averaged:
                total = total + v
        v = total / n_averaged - first
        response = ClippedResponse.of(loss, recipe, self.best, clip_in_typical, independence)
        descent = Descent(steps, 0.0, n_averaged, np.diag(penalty.ridge))
        null = NullDistribution.of(response, metric, descent, noise, facts.n, fraction**0.25)
        half = 0.5 * (facts.target_high - facts.target_low)
        targets_mean = isinstance(loss, Squared) and loss.slope_bound >= half
        constant = self.best if loss.task == "regression" and self.best.constant is not None else None
        # a null test would throw the ranking of people away, which may be good where probabilities are not yet
        level = 1.0 if loss.task == "classification" else NULL_LEVEL
        move, factor = shrinkage(v, metric, null, recipe, inner, constant, targets_mean, level)
        kept = move + metric.row_map.matrix @ first
        left = float(np.abs(kept[: len(learnt)]).max()) if loss.task == "classification" else factor
        return directions @ kept, left

    def _directions(self, learnt: list[Learnt]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a column of weights for each direction and one for the intercept, their own parts, and first factors.

        Scores are divided by the released mean length of a row of them, in standard deviations of their noise. The
        refit starts from factors that follow from the weights, so that it loses little where noise hides its gradients.
        """
        facts, neighbours, recipe = self.holder.facts, self.holder.neighbours, recipe_for(self.objective.loss)
        columns = np.zeros((facts.d, len(learnt) + (facts.d > facts.n_features)))
        own, factors = np.zeros(columns.shape[1]), np.zeros(columns.shape[1])
        for k, one in enumerate(learnt):
            unit = 1.0 / max(one.deviation * self.row_length, 1e-200)
            columns[: facts.n_features, k], own[k] = unit * one.weights, unit * one.own
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(RowLengths.name))
        scores = map_of(columns[:, : len(learnt)], facts)
        rows_times_mu = facts.n / mechanism.noise_multiplier / neighbours.records_apart
        largest = math.sqrt(len(learnt)) * max(LEAST_SCORE, SCORE_PER_ROW * rows_times_mu)
        mean = float(self.holder.release(RowLengths(largest, scores), mechanism)[0]) / facts.n + 0.5 * largest
        typical = min(max(mean, LEAST_TYPICAL_SCORE), largest)
        columns /= typical
        if facts.d > facts.n_features:
            columns[-1, -1] = HEIGHT / facts.intercept_height
        if self.objective.loss.task == "classification":  # tried for these only
            for k, one in enumerate(learnt):
                size = typical * one.deviation * self.row_length
                curvature = recipe.curvature * min(1.0, self.clip or recipe.clip_high_noise)
                # the mean size of normal scores is sqrt(2 / pi) of their deviation
                factors[k] = min(size * one.best_factor(0.5 * math.pi * size**2, curvature), LARGEST_START)
        # where scores are mostly signal, own parts change predictions as much as slopes, and the two effects cancel
        return columns, own / typical * min(1.0, len(learnt) / typical**2), factors

    def _metric(self, directions: FloatArray, inner: Facts) -> Metric:
        facts = self.holder.facts
        clip = _SCORE_CLIP * math.hypot(1.0, HEIGHT)
        query = MappedSecondMoment(clip, map_of(directions, facts))
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(MappedSecondMoment.name))
        sensitivity = query.sensitivity(facts, self.holder.neighbours)
        noise = mechanism.noise_scale(sensitivity, query.bound(facts), query.size(facts)) / facts.n
        moments = unpack_symmetric(self.holder.release(query, mechanism), inner.d) / facts.n
        metric = Metric.of(moments, np.ones(inner.d), noise, clip, inner.grids)
        # a direction that noise makes look empty would take the others' evidence with it
        row_moments = np.maximum(metric.row_moments, _LEAST_MOMENT)
        return replace(metric, row_moments=row_moments, row_length=math.sqrt(float(row_moments.sum())))
