"""The refit for several classes: the loss is minimised over an intercept of each class and a factor of what was learnt.

A person's scores reach it through a released map, so a person adds a short gradient: one number for each direction and
one for each class. Scores are scaled so that the loss has the curvature in a factor that it has for two classes and
scores of typical size 1. Then the constants of the rule hold here too. Proof: ``wide.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dperm.data.design.row_map import RowMap
from dperm.data.holding.holder import DataHolder
from dperm.objective import Multinomial, Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, PlannedRelease
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.class_scores import ClassScoreGradient
from dperm.queries.whitened import RowLengths
from dperm.solvers.central.auto.clipped_response import ClippedResponse
from dperm.solvers.central.auto.constants import RULE, SMALLEST, TINY
from dperm.solvers.central.auto.costs import expected_noise, explainable, fraction_of
from dperm.solvers.central.auto.descent import Descent
from dperm.solvers.central.auto.learnt import NOISE_SCORE, Learnt, PenaltyOfFactors, largest_score, map_of
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.null_test import NullDistribution
from dperm.solvers.central.auto.scales import scale_of
from dperm.solvers.central.auto.shrinkage import shrinkage
from dperm.solvers.central.auto.starting_point import BestConstant
from dperm.types import FloatArray

__all__ = ["ClassRefit", "class_shares", "class_spread"]

#: typical slope and curvature of two classes, to which scores of several classes are scaled
_SLOPE, _CURVATURE = 0.5, 0.25


@dataclass(frozen=True)
class ClassRefit:
    """Minimises the loss over intercepts of the classes and one factor for each direction that was learnt."""

    objective: Objective
    holder: DataHolder
    calibrated: CalibratedPlan
    best: BestConstant
    row_length: float
    clip: float | None

    @staticmethod
    def releases(share: float, n_directions: int) -> tuple[int, float, list[PlannedRelease]]:
        """Number of lengths of scores and their budget share, and the other planned releases."""
        gradients = share * (1.0 - 0.25)
        return (
            n_directions,
            share * 0.25,
            [PlannedRelease(ClassScoreGradient.name, "gaussian", RULE.n_steps, gradients)],
        )

    def fitted(
        self, start: FloatArray, learnt: list[Learnt], progress: Callable[[int], None]
    ) -> tuple[FloatArray, float]:
        """Return the change of the weights, and how much is left of the columns: the typical size of a score."""
        facts, loss, scale = self.holder.facts, self.objective.loss, scale_of(self.objective.loss)
        assert isinstance(loss, Multinomial)
        shares = class_shares(self.best, loss.n_classes)
        scores, own, first = self._scores(learnt, shares)
        n_directions, n_classes = len(learnt), loss.n_classes
        has_intercept = facts.d > facts.n_features
        rows = map_of(np.hstack(list(scores)), facts)
        # one height for all: the gradient of a rare class would be so long that it is clipped much more than others
        same = float(shares @ shares)
        heights = np.full(n_classes if has_intercept else 0, _SLOPE * RULE.intercept_height / math.sqrt(same))
        typical = _SLOPE * math.sqrt(
            n_directions + (RULE.intercept_height**2 * (1.0 - same) / same if has_intercept else 0.0)
        )
        inner = replace(facts, n_features=n_directions, d=n_directions + len(heights), intercept_height=0.0)
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(ClassScoreGradient.name))
        mu = math.sqrt(RULE.n_steps) / mechanism.noise_multiplier
        excess = expected_noise(loss, inner, mu, self.holder.neighbours) / n_classes
        fraction = fraction_of(excess)
        clip_in_typical = self.clip or scale.clip_at(fraction)
        longest = loss.slope_bound * facts.block_bound(facts.n_features) * float(np.linalg.norm(rows.matrix, 2))
        # no gradient is longer than this
        longest = max(math.hypot(longest, loss.slope_bound * heights.max(initial=0.0)), typical)
        clip = min(clip_in_typical * typical, longest)
        noise = mechanism.noise_multiplier * self.holder.neighbours.records_apart * clip / facts.n
        penalty = self._penalty(scores, learnt, min(1.0, clip_in_typical))
        descent = Descent.planned(
            scale,
            fraction,
            (typical / _SLOPE) ** 2 / inner.d,
            explainable(loss) / excess,
            RULE.n_steps,
            0.0,
            np.diag(penalty.ridge),
        )
        least = np.zeros(n_directions)
        least[0] = RULE.least_kept
        constants = start[-1] * facts.intercept_height if has_intercept else np.zeros(n_classes)
        first = np.append(first, np.zeros(len(heights)))
        v, total = first, np.zeros(inner.d)
        for t, step in enumerate(descent.steps):
            at = constants + heights * v[n_directions:] if has_intercept else constants
            query = ClassScoreGradient(loss, rows, v[:n_directions], at, heights, clip, 1.0 - fraction)
            gradient = self.holder.release(query, mechanism) / facts.n
            v = v - step * gradient
            weights = np.tensordot(v[:n_directions], scores, 1)[: facts.n_features]
            pushed = v[:n_directions] - step * (own + penalty.slope_of_l1(weights.ravel()))
            v[:n_directions] = np.maximum(penalty.prox(pushed, step), least)
            progress(t + 1)
            if t >= RULE.n_steps - descent.n_averaged:
                total += v
        v = total / descent.n_averaged - first
        if not scores.any():
            return np.zeros_like(start), 0.0
        passed = min(1.0, clip_in_typical)
        response = ClippedResponse(
            np.array([passed * scale.curvature]),
            np.array([passed * _CURVATURE]),
            np.array([passed**2 * _SLOPE**2]),
        )
        factors = replace(inner, d=n_directions)
        metric = Metric(
            RowMap(np.eye(n_directions), factors.grids), np.ones(n_directions), math.sqrt(n_directions), np.zeros(0)
        )
        null = NullDistribution.of(response, metric, descent, noise, facts.n, fraction)
        kept, factor = shrinkage(v[:n_directions], metric, null, factors, None, False, RULE.least_kept, 1.0)
        kept = kept + first[:n_directions]
        move = np.tensordot(kept, scores, 1)
        if has_intercept:
            # offsets of the scores shrink with them
            left = min(1.0, factor / null.learnt**factor)
            change = heights * v[n_directions:]
            move[-1] = left * (change - change.mean()) / facts.intercept_height
        return move, float(np.abs(kept).max())

    def _scores(self, learnt: list[Learnt], shares: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return weights of shape (directions, d, K) that give scores of typical size, their own parts, first factors.

        A typical score is that of two classes: its variance over classes is a quarter. It is found from the released
        mean length of the scores along each direction, in standard deviations of their noise.
        """
        facts, neighbours, scale = self.holder.facts, self.holder.neighbours, scale_of(self.objective.loss)
        spread = max(class_spread(shares), TINY)
        mechanism = GaussianNoise(self.calibrated.noise_multiplier(RowLengths.name))
        rows_times_mu = facts.n / mechanism.noise_multiplier / neighbours.records_apart
        largest = largest_score(rows_times_mu)
        curvature = scale.curvature / _CURVATURE * min(1.0, self.clip or scale.clip)
        scores, own, first = np.zeros((len(learnt), facts.d, len(shares))), np.zeros(len(learnt)), np.zeros(len(learnt))
        for k, one in enumerate(learnt):
            unit = 1.0 / max(one.deviation * self.row_length, SMALLEST)
            scores[k, : facts.n_features] = unit * one.weights
            # a score common to all classes changes no prediction; the rest counts by the class frequency
            centred = scores[k] - (scores[k] @ shares)[:, None]
            lengths = map_of(centred * np.sqrt(shares) / spread, facts)
            released = float(self.holder.release(RowLengths(largest, lengths), mechanism)[0])
            typical = min(max(released / facts.n + 0.5 * largest, NOISE_SCORE), largest)
            size = typical * spread / unit
            scores[k] *= _SLOPE / (typical * spread)
            first[k] = min(size / _SLOPE * one.best_factor(size**2, curvature), 1.0)
            # where scores are mostly signal, own parts change predictions as much as slopes, and the two effects cancel
            own[k] = unit * one.own * _SLOPE / (typical * spread) * min(1.0, 1.0 / typical**2)
        return scores, own, first

    def _penalty(self, scores: FloatArray, learnt: list[Learnt], share: float) -> PenaltyOfFactors:
        """Return the penalty as a function of the factors; it leaves intercepts alone."""
        facts, penalty = self.holder.facts, SeparablePenalty.of(self.objective.penalty)
        matrix = scores[:, : facts.n_features].reshape(len(scores), -1).T
        signal = matrix * [one.signal for one in learnt]
        penalised = np.full(facts.d, share)
        penalised[list(self.objective.unpenalised)] = 0.0
        each = np.repeat(penalised[: facts.n_features], scores.shape[2])
        return PenaltyOfFactors(matrix, penalty.l1 * each, signal.T @ (penalty.l2 * each[:, None] * signal))


def class_shares(best: BestConstant, n_classes: int) -> FloatArray:
    """Return the class frequencies that the descent starts from."""
    if best.constant is None:
        return np.full(n_classes, 1.0 / n_classes)
    odds = np.exp(best.constant - np.max(best.constant))
    shares: FloatArray = odds / odds.sum()
    return shares


def class_spread(shares: FloatArray) -> float:
    """Return the mean size of a slope where predictions are the class frequencies: root of 1 - sum of squares."""
    return math.sqrt(max(1.0 - float(shares @ shares), 0.0))
