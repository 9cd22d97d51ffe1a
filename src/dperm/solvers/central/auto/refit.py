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
from dperm.data.holding.holder import DataHolder
from dperm.objective import Objective, Squared
from dperm.privacy.accounting.calibration import CalibratedPlan, PlannedRelease
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.statistics import unpack_symmetric
from dperm.queries.whitened import MappedGradient, MappedSecondMoment, RowLengths
from dperm.solvers.central.auto.clipped_response import ClippedResponse
from dperm.solvers.central.auto.constants import RULE, SMALLEST
from dperm.solvers.central.auto.costs import expected_noise, explainable, fraction_of, skewed
from dperm.solvers.central.auto.descent import Descent
from dperm.solvers.central.auto.learnt import NOISE_SCORE, Learnt, PenaltyOfFactors, largest_score, map_of
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.null_test import NullDistribution
from dperm.solvers.central.auto.scales import scale_of
from dperm.solvers.central.auto.shrinkage import shrinkage
from dperm.solvers.central.auto.starting_point import BestConstant
from dperm.types import FloatArray

__all__ = ["Refit"]


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
        moments, ratio = share * 0.25, MappedSecondMoment.replacement_ratio
        gradients = share * (1.0 - 0.25 - 0.25)
        return (
            1,
            share * 0.25,
            [
                PlannedRelease(MappedSecondMoment.name, "gaussian", 1, moments, replacement_ratio=ratio),
                PlannedRelease(MappedGradient.name, "gaussian", RULE.n_steps, gradients),
            ],
        )

    def fitted(
        self, start: FloatArray, learnt: list[Learnt], progress: Callable[[int], None]
    ) -> tuple[FloatArray, float]:
        """Return the change of the weights, and how much is left of the columns.

        That is the typical size of a score for classes, and the factor by which the refit was shrunk in regression.
        """
        facts, loss, scale = self.holder.facts, self.objective.loss, scale_of(self.objective.loss)
        directions, own, factors = self._directions(learnt)
        inner = replace(
            facts,
            n_features=len(learnt),
            d=directions.shape[1],
            intercept_height=RULE.intercept_height if facts.d > facts.n_features else 0.0,
        )
        metric = self._metric(directions, inner)
        rows = map_of(directions @ metric.row_map.matrix, facts)
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(MappedGradient.name))
        mu = math.sqrt(RULE.n_steps) / mechanism.noise_multiplier
        excess = expected_noise(loss, inner, mu, self.holder.neighbours)
        fraction = skewed(fraction_of(excess), self.best.skew)
        clip_in_typical = self.clip or scale.clip_at(fraction)
        longest = loss.slope_bound * facts.row_bound * float(np.linalg.norm(rows.matrix, 2))
        clip = min(clip_in_typical * self.best.slope * metric.row_length, longest)
        noise = mechanism.noise_multiplier * self.holder.neighbours.records_apart * clip / facts.n
        independence = 1.0 - fraction if loss.task == "classification" else 0.0
        signal = directions.copy()
        signal[:, : len(learnt)] *= [one.signal for one in learnt]
        signal = signal @ metric.row_map.matrix
        penalty = PenaltyOfFactors.of(self.objective, rows.matrix, signal, min(1.0, clip_in_typical))
        descent = Descent.planned(
            scale,
            fraction,
            metric.row_length**2 / inner.d,
            explainable(loss) / excess,
            RULE.n_steps,
            0.0,
            np.diag(penalty.ridge),
        )
        least = np.zeros(len(learnt))
        least[0] = RULE.least_kept if loss.task == "classification" else 0.0
        own_slope = metric.row_map.matrix.T @ own
        first: FloatArray = np.linalg.solve(metric.row_map.matrix, factors).astype(np.float64, copy=False)
        v, total = first, np.zeros(inner.d)
        for t, step in enumerate(descent.steps):
            weights = start + rows.matrix @ v
            gradient = self.holder.release(MappedGradient(loss, weights, rows, clip, independence), mechanism) / facts.n
            v = penalty.prox(v - step * (gradient + own_slope + penalty.slope_of_l1(weights)), step)
            v = _factors_at_least(least, v, metric.row_map.matrix)
            progress(t + 1)
            if t >= RULE.n_steps - descent.n_averaged:
                total = total + v
        v = total / descent.n_averaged - first
        response = ClippedResponse.of(loss, scale, self.best, clip_in_typical, independence)
        null = NullDistribution.of(response, metric, descent, noise, facts.n, fraction)
        half = 0.5 * (facts.target_high - facts.target_low)
        targets_mean = isinstance(loss, Squared) and loss.slope_bound >= half
        constant = self.best if loss.task == "regression" and self.best.constant is not None else None
        # a null test would throw the ranking of people away, which may be good where probabilities are not yet
        level, kept = (1.0, RULE.least_kept) if loss.task == "classification" else (RULE.null_level, 0.0)
        move, factor = shrinkage(v, metric, null, inner, constant, targets_mean, kept, level)
        moved = move + metric.row_map.matrix @ first
        left = float(np.abs(moved[: len(learnt)]).max()) if loss.task == "classification" else factor
        return directions @ moved, left

    def _directions(self, learnt: list[Learnt]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a column of weights for each direction and one for the intercept, their own parts, and first factors.

        Scores are divided by the released mean length of a row of them, in standard deviations of their noise. The
        refit starts from factors that follow from the weights, so that it loses little where noise hides its gradients.
        """
        facts, neighbours, scale = self.holder.facts, self.holder.neighbours, scale_of(self.objective.loss)
        columns = np.zeros((facts.d, len(learnt) + (facts.d > facts.n_features)))
        own, factors = np.zeros(columns.shape[1]), np.zeros(columns.shape[1])
        for k, one in enumerate(learnt):
            unit = 1.0 / max(one.deviation * self.row_length, SMALLEST)
            columns[: facts.n_features, k], own[k] = unit * one.weights, unit * one.own
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(RowLengths.name))
        scores = map_of(columns[:, : len(learnt)], facts)
        rows_times_mu = facts.n / mechanism.noise_multiplier / neighbours.records_apart
        largest = math.sqrt(len(learnt)) * largest_score(rows_times_mu)
        mean = float(self.holder.release(RowLengths(largest, scores), mechanism)[0]) / facts.n + 0.5 * largest
        typical = min(max(mean, NOISE_SCORE), largest)
        columns /= typical
        if facts.d > facts.n_features:
            columns[-1, -1] = RULE.intercept_height / facts.intercept_height
        if self.objective.loss.task == "classification":  # tried for these only
            for k, one in enumerate(learnt):
                size = typical * one.deviation * self.row_length
                curvature = scale.curvature * min(1.0, self.clip or scale.clip)
                # the mean size of normal scores is sqrt(2 / pi) of their deviation
                factors[k] = min(size * one.best_factor(0.5 * math.pi * size**2, curvature), 1.0)
        # where scores are mostly signal, own parts change predictions as much as slopes, and the two effects cancel
        return columns, own / typical * min(1.0, len(learnt) / typical**2), factors

    def _metric(self, directions: FloatArray, inner: Facts) -> Metric:
        facts = self.holder.facts
        clip = RULE.clear * math.hypot(1.0, RULE.intercept_height)
        query = MappedSecondMoment(clip, map_of(directions, facts))
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(MappedSecondMoment.name))
        sensitivity = query.sensitivity(facts, self.holder.neighbours)
        noise = mechanism.noise_scale(sensitivity, query.bound(facts), query.size(facts)) / facts.n
        moments = unpack_symmetric(self.holder.release(query, mechanism), inner.d) / facts.n
        metric = Metric.of(moments, np.ones(inner.d), noise, clip, inner.grids)
        # a direction that noise makes look empty would take the others' evidence with it
        row_moments = np.maximum(metric.row_moments, RULE.least_kept)
        return replace(metric, row_moments=row_moments, row_length=math.sqrt(float(row_moments.sum())))
