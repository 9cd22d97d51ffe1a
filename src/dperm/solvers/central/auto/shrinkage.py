"""What is left of a descent whose noise is known: post-processing of released values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dperm.data.design.facts import Facts
from dperm.objective import Logistic, Loss, Squared
from dperm.solvers.central.auto.column_relevance import column_pulls
from dperm.solvers.central.auto.metric import Metric, handed_on
from dperm.solvers.central.auto.null_test import null_p_value
from dperm.solvers.central.auto.recipes import Recipe
from dperm.solvers.central.auto.starting_point import BestConstant
from dperm.types import FloatArray

__all__ = ["ClippedResponse", "Descent", "KnownNoise", "shrinkage"]


#: how far clipped residuals take the mean prediction from the mean of a target, in mean deviations, as one would guess
_SKEWED = 0.2
#: by how much of what columns add to the mean prediction the roughly known mean row may be wrong
_ROUGHLY = 0.5
#: most noise of the unit of residuals that counts, in units
_UNSURE = 0.5
#: least share of the way that a descent is taken to have gone
_LEAST_WAY = 0.1
#: least variance: below it, as under a penalty of any strength, neither noise nor weights are told from zero
_NEXT_TO_NONE = 1e-200
#: a result that columns of no use would show more often than this says nothing of any column
_UNLIKELY = 0.1
#: and one that they would show less often than this says so clearly that chance counts no more than it did
_CLEARLY = 1e-4
#: how far, as a power, that share is believed with classes, where less is known of the curvature away from the start
_OF_CLASSES = 0.5


@dataclass(frozen=True)
class ClippedResponse:
    """How clipped slopes answer to the weights, and how they scatter, where columns say nothing.

    Attributes
    ----------
    cautious, curvature : array of shape (outputs,)
        Second derivative of the loss as clipped slopes show it: not more than is usual where columns do say something,
        and at the best constant. A slope at its clip does not answer at all.
    square : array of shape (outputs,)
        Mean square of a clipped slope at the best constant.
    trusted : float
        How far, as a power, the first is believed away from the best constant too.
    """

    cautious: FloatArray
    curvature: FloatArray
    square: FloatArray
    trusted: float

    @classmethod
    def of(cls, loss: Loss, recipe: Recipe, best: BestConstant, clip: float, blindness: float) -> ClippedResponse:
        """Build it for a clip in typical slopes.

        >>> from dperm.solvers.central.auto.recipes import recipe_for
        >>> numbers, classes = recipe_for(Squared()), recipe_for(Logistic())
        >>> responses = [ClippedResponse.of(Squared(), numbers, BestConstant(0.0, 1.0), c, 0.0) for c in (0.8, 1.25, 9)]
        >>> [one.curvature.round(2).item() for one in responses]
        [0.48, 0.68, 1.0]
        >>> responses = [ClippedResponse.of(Logistic(), classes, BestConstant(0.0, 0.5), 0.5, b) for b in (0.0, 0.5, 1)]
        >>> [one.curvature.round(3).item() for one in responses]
        [0.001, 0.062, 0.113]
        """
        bound = math.inf
        if isinstance(loss, Squared):
            bound = loss.slope_bound  # half the range: binds for the few that lie far from all others, or for none
        else:
            clip = min(clip, loss.slope_bound / best.slope)
        if loss.task == "regression":
            return cls._numbers(recipe, best, clip, bound)
        passing = min(1.0, clip)
        usual = passing * min(recipe.curvature, best.curvature)
        scatter: FloatArray
        if type(loss) is Logistic:
            answered, square = _two_classes(best, clip * best.slope, blindness)
            at_constant = np.array([max(answered, 0.01 * usual)])
            return cls(np.minimum(usual, at_constant), at_constant, np.array([square]), _OF_CLASSES)
        if best.constant is None or loss.n_outputs == 1:
            flat = np.full(loss.n_outputs, usual)
            return cls(flat, flat, np.full(loss.n_outputs, (passing * best.slope) ** 2 / loss.n_outputs), _OF_CLASSES)
        shares = np.exp(best.constant - best.constant.max())
        scatter = shares / shares.sum() * (1.0 - shares / shares.sum())
        return cls(
            passing * np.minimum(recipe.curvature, scatter), passing * scatter, passing**2 * scatter, _OF_CLASSES
        )

    @classmethod
    def _numbers(cls, recipe: Recipe, best: BestConstant, clip: float, bound: float) -> ClippedResponse:
        """Residuals are taken as normal, but those on the crowded side of a skewed target are close by and answer."""
        below = math.erf(clip / math.sqrt(math.pi))
        # residuals may be longer than their noisy unit says, and fewer of them answer then
        surely = math.erf(clip / (1.0 + min(best.unsure, _UNSURE)) / math.sqrt(math.pi))
        few = 0.5 / best.skew  # share of targets on the other side, a typical slope away
        cautious, answers = (1.0 - 1.0 / best.skew + share / best.skew for share in (surely, below))
        if bound < best.slope:
            cautious, answers = min(cautious, 1.0 - few), min(answers, 1.0 - few)
        cut = clip * math.sqrt(2.0 / math.pi)  # in standard deviations
        passed = below - cut * math.sqrt(2.0 / math.pi) * math.exp(-0.5 * cut * cut) + cut * cut * (1.0 - below)
        # half of the deviation lies on either side: the mean square of two heaps is that half times long plus short
        heaps = 0.5 * (best.slope / best.skew) ** 2 * (best.skew + 1.0)
        heaps -= few * max(best.slope**2 - bound**2, 0.0)
        normal = 1.0 + (0.5 * math.pi - 1.0) / best.skew**2
        curvature = recipe.curvature
        return cls(
            np.array([curvature * cautious]), np.array([curvature * answers]), np.array([heaps * normal * passed]), 1.0
        )


def _two_classes(best: BestConstant, limit: float, blindness: float) -> tuple[float, float]:
    """Derivative of the mean clipped slope at the best constant, between two points next to it, and mean square."""
    start, apart = (0.0 if best.constant is None else float(best.constant)), 0.2

    def chance(score: float) -> float:
        return 1.0 / (1.0 + math.exp(-score))

    def clipped(score: float) -> tuple[float, float]:
        one = chance(score)
        sizes = [blindness * max(one, 1.0 - one) + (1.0 - blindness) * slope for slope in (one, 1.0 - one)]
        return one * min(1.0, limit / sizes[0]), (1.0 - one) * min(1.0, limit / sizes[1])

    share = chance(start)
    (low, more), (lower, less), (of_none, of_one) = (clipped(start + by) for by in (apart, -apart, 0.0))
    derivative = ((1.0 - share) * (low - lower) - share * (more - less)) / (2.0 * apart)
    return derivative, (1.0 - share) * of_none**2 + share * of_one**2


@dataclass(frozen=True)
class Descent:
    """What was done: step lengths, momentum, averaged iterates, and the penalty's second derivative by directions."""

    steps: FloatArray
    momentum: float
    n_averaged: int
    penalised: FloatArray

    def hands_on(self, curvature: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What it hands on of noise and of slopes in common, see :func:`handed_on`."""
        return handed_on(curvature, self.steps, self.momentum, self.n_averaged, self.penalised)


@dataclass(frozen=True)
class KnownNoise:
    """How a result would scatter if columns said nothing.

    Attributes
    ----------
    variances : array of shape (d, outputs)
        In each direction, by noise in every step and by as much of the chance in the data as counts against a result of
        which something was learnt. Chance looks like signal, predicts nothing, and is the same in all steps.
    alone : array of shape (d, outputs)
        The same with all of the chance, for the question whether anything was learnt; with less of it where columns are
        more than half as many as rows.
    weights : array of shape (outputs,)
        How much an output matters to the loss, against the one that matters most.
    learnt : float
        Share by which a descent that stopped early has shrunk the result already.
    """

    variances: FloatArray
    alone: FloatArray
    weights: FloatArray
    learnt: float

    @classmethod
    def of(
        cls, answer: ClippedResponse, metric: Metric, descent: Descent, noise: float, rows: int, counted: float
    ) -> KnownNoise:
        """Build it from the noise of a step, the number of rows, and the part of chance that counts."""
        noises, chances, gone = [], [], []
        for cautious, curvature, square in zip(answer.cautious, answer.curvature, answer.square, strict=True):
            anew, way = descent.hands_on(cautious * metric.seen)
            _, common = descent.hands_on(curvature * metric.seen)
            noises.append(anew * noise**2)
            chances.append(common**2 * metric.seen * (square / rows))
            gone.append(way * (cautious * metric.seen + descent.penalised))
        by_noise, by_chance = np.stack(noises, axis=1), np.stack(chances, axis=1)
        if len(noises) > 1:  # without what all classes have in common; slopes, and so their chance, have nothing
            common = by_noise.mean(axis=1, keepdims=True)
            by_noise += (common - 2.0 * by_noise) / len(noises)
        share = float(metric.seen @ np.mean(gone, axis=0)) / max(float(metric.seen.sum()), 1e-9)
        learnt = min(max(share, _LEAST_WAY), 1.0) ** answer.trusted
        weights = answer.curvature / answer.curvature.max()
        # with as many columns as rows chance explains every target, and to ask whether it does has no answer
        asked = max(counted, min(2.0 - 2.0 * len(metric.seen) / rows, 1.0))
        variances, alone = (np.maximum(by_noise + part * by_chance, _NEXT_TO_NONE) for part in (counted, asked))
        return cls(variances, alone, weights, learnt)

    def judged(self, doubted: float) -> FloatArray:
        """Variances by which a result is shrunk: the less clear it is, the more of the chance counts against it."""
        unclear = math.log(max(doubted, _CLEARLY) / _CLEARLY) / math.log(_UNLIKELY / _CLEARLY)
        out: FloatArray = self.variances + min(unclear, 1.0) * (self.alone - self.variances)
        return out


def shrinkage(
    v: FloatArray,
    metric: Metric,
    noise: KnownNoise | None,
    recipe: Recipe,
    facts: Facts,
    known: BestConstant | None,
    asks_for_mean: bool,
) -> tuple[FloatArray, float]:
    """Move of the weights that is left of a result without what only noise or the clip put there, and noise's verdict.

    Columns whose weights noise (its variance is known in each direction) alone explains go first, the constant never.
    What is left is shrunk as a whole, by what the columns show: a constant that drifts, as clipped slopes of unequal
    classes or of a skewed target make it, is no signal and must not speak for them, nor its noise against them. Where
    columns of no use would have shown as much, next to nothing is left, or nothing. A
    descent that stopped early is shrunk by that much less: it did part of it already. At last
    the constant is set by what is ``known`` of a regression's target; without it the constant is shrunk with all, and
    stays where a penalty took every column.
    Returned next to the move is the share that noise leaves of a descent with time for all.
    """
    matrix, outputs = metric.rows.matrix, v.reshape(len(v), -1)
    if outputs.shape[1] > 1:
        # what all classes have in common changes no prediction, so no step ever undoes its noise
        outputs = outputs - outputs.mean(axis=1, keepdims=True)
    parts: FloatArray = np.zeros(outputs.shape)
    left: FloatArray = outputs
    kept = 1.0
    if noise is not None and _any_weights(matrix[: facts.n_features], v):
        left = np.zeros(outputs.shape)
        held = np.eye(len(v))
        if facts.d > facts.n_features:  # with the constant of least energy, which leaves the mean prediction alone
            constant = np.linalg.inv(matrix)[:, -1]
            pull = metric.seen * constant
            held -= np.outer(constant, pull / max(float(constant @ pull), 1e-12 * float(constant @ constant)))
        energy = np.sqrt(np.maximum(metric.seen, 0.0))[:, None] * held
        doubted = null_p_value(outputs, noise.alone, noise.weights, energy, matrix[: facts.n_features])
        variances = noise.judged(doubted)
        for k in range(outputs.shape[1]):
            deviation = np.sqrt(variances[:, k])
            scaled = matrix[: facts.n_features] * deviation
            pulls = column_pulls(matrix[: facts.n_features] @ outputs[:, k], scaled @ scaled.T)
            stays = np.linalg.inv(np.eye(len(v)) + scaled.T @ (pulls[:, None] * scaled))
            parts[:, k] = metric.seen * np.square(held @ (deviation[:, None] * stays)).sum(axis=1)
            left[:, k] = deviation * (stays @ (outputs[:, k] / deviation))
        kept = recipe.kept(parts * noise.weights, float(metric.seen @ np.square(held @ left) @ noise.weights))
        if doubted > _UNLIKELY:
            kept = min(kept, recipe.least_kept * (1.0 - doubted))
    elif noise is not None and known is None:
        left = np.zeros(outputs.shape)  # without columns the best constant is where the descent started
    moved = matrix @ left
    # the less is left, the less sure it is that anything was learnt at all
    out = (1.0 if noise is None else min(1.0, kept / noise.learnt**kept)) * moved
    if known is not None:
        middle = metric.middle * facts.intercept_height
        spread = 0.0 if noise is None else float(np.square(middle @ matrix) @ noise.variances[:, 0])
        by_columns = float(middle[:-1] @ out[:-1, 0])
        shift = _mean_shift(float(middle @ moved[:, 0]), spread, by_columns, known, asks_for_mean)
        out[-1] = (shift - by_columns) / facts.intercept_height
    return out.reshape(v.shape), kept


def _any_weights(columns: FloatArray, v: FloatArray) -> bool:
    """Whether any column has one but for rounding: that a penalty took them all is no verdict of noise."""
    return bool(np.any(np.abs(columns @ v) > 1e-12 * (np.abs(columns) @ np.abs(v))))


def _mean_shift(found: float, variance: float, by_columns: float, known: BestConstant, asks_for_mean: bool) -> float:
    """Return how far the mean prediction moves from the released mean, given how far a descent took it.

    The true mean lies about as far from the released one as that one's noise, and the mean row, in which long rows
    count less, is known roughly; the descent has the noise of this variance, and goes astray by a share of the
    deviation where the target is skewed. Each counts by its precision, and the first bound what the others may do.
    A loss that does not ask for the mean is right to go there: what would be astray is then what is to be found.
    """
    rough = _ROUGHLY * abs(by_columns)
    likely = known.noise**2 + rough**2
    skewed = (_SKEWED * known.slope) ** 2
    if not asks_for_mean:
        return found * (likely + skewed) / (likely + skewed + variance)
    trusted = likely / (likely + variance + skewed)
    room = known.noise * (1.0 + trusted) + rough
    return min(max(trusted * found, -room), room)
