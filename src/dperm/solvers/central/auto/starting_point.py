"""Starting point of the automatic rule: releases of the best constant and of the typical slope size at it.

Also here: how clipped slopes respond to the weights at that point, which follows from the released values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder, Query
from dperm.objective import Logistic, Loss, Squared
from dperm.privacy.accounting.calibration import CalibratedPlan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.statistics import TargetMoment
from dperm.queries.targets import ClassCounts, TargetDeviation
from dperm.solvers.central.auto.recipes import Recipe, recipe_for
from dperm.types import FloatArray

__all__ = ["BestConstant", "ClippedResponse", "StartingPoint", "best_constant"]


#: prior standard deviation of a target's mean around the middle of its range, in half ranges: that of a uniform mean
_PRIOR_MEAN_DEVIATION = 0.58
#: prior standard deviation of a class frequency around that of equal classes
_PRIOR_FREQUENCY_DEVIATION = 0.15
#: factor left of an imbalance that is below its noise: it still shows which class is more likely the larger one
_MIN_IMBALANCE_FACTOR = 0.1
#: smallest class frequency, in standard deviations of its noise
_MIN_FREQUENCY = 1.0
#: largest share of the targets that is assumed to lie on one side of the mean
_MAX_ONE_SIDE = 0.98
#: noise of a class frequency, and of a mean in ranges, from which a plan warns that the best constant is uncertain
_NOISY_FREQUENCY, _NOISY_MEAN = 0.04, 0.025
#: noise of a released mean, in mean deviations, from which a fit warns that predictions may miss the mean
_NOISY_MEAN_IN_DEVIATIONS = 0.5
#: class frequency, in standard deviations of its noise, below which a fit warns that it is uncertain
_RARE_CLASS = 4.0
#: noise of a mean, in ranges, up to which a mean close to the end of the range is meaningful
_PRECISE_MEAN = 0.02
#: largest relative error of the released slope size that is taken into account
_MAX_SLOPE_ERROR = 0.5
#: exponent of the learnt share (`ClippedResponse.trust`) in classification, where the curvature away from the start is
#: less certain
_CLASSIFICATION_TRUST = 0.5


@dataclass(frozen=True)
class BestConstant:
    """The best constant prediction and what is known about the loss there.

    Attributes
    ----------
    constant : float, array or None
        The prediction; None without an intercept.
    slope : float
        Typical size of a slope.
    skew : float
        Typical slope over mean slope: above 1 where few targets must lie far from all others.
    curvature : float
        Second derivative of the loss as implied by the released class frequencies; infinite where it does not depend
        on them.
    noise : float
        Standard deviation of the noise of the released mean.
    slope_error : float
        Relative standard deviation of the noise of the released slope size.
    notes : tuple of str
        Utility warnings that follow from the released values.
    """

    constant: Any
    slope: float
    skew: float = 1.0
    curvature: float = math.inf
    noise: float = 0.0
    slope_error: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StartingPoint:
    """Releases of the target's mean (with an intercept) and, for regression, of its mean deviation."""

    target_share: float
    deviation_share: float

    def releases(self, loss: Loss, facts: Facts) -> list[PlannedRelease]:
        """List what :meth:`release` will release."""
        out = []
        if facts.d > facts.n_features:
            query = TargetMoment if loss.n_outputs == 1 else ClassCounts
            ratio = query.replacement_ratio
            out.append(PlannedRelease(query.name, "gaussian", 1, self.target_share, replacement_ratio=ratio))
        if loss.task == "regression":
            out.append(PlannedRelease(TargetDeviation.name, "gaussian", 1, self.deviation_share))
        return out

    def utility_warnings(
        self, loss: Loss, facts: Facts, calibrated: CalibratedPlan, neighbours: Neighbours
    ) -> tuple[str, ...]:
        """Warn, from public numbers, where noise hides the best constant itself.

        Classes may still be told apart: that takes less precision than the frequency of each.
        """
        if facts.d == facts.n_features:
            return ()
        query: Query = TargetMoment() if loss.n_outputs == 1 else ClassCounts(loss.n_outputs)
        noise = calibrated.noise_multiplier(query.name) * query.sensitivity(facts, neighbours) / facts.n
        if loss.task == "regression":
            error, threshold = noise / (facts.target_high - facts.target_low), _NOISY_MEAN
            known = f"the mean of the target is known to about +-{100.0 * min(error, 0.5):.0f}% of its range only"
            wrong = "all predictions may be off by as much, and the model may be of little use"
        else:
            error, threshold = noise, _NOISY_FREQUENCY
            known = f"class frequencies are known to about +-{100.0 * min(error, 0.5):.0f} percentage points only"
            wrong = "too many predictions may name the same class"
        return () if error < threshold else (f"{known}: {wrong}",)

    def release(self, loss: Loss, holder: DataHolder, calibrated: CalibratedPlan) -> BestConstant:
        """Make the releases and return the best constant."""
        facts = holder.facts
        best = BestConstant(None, recipe_for(loss).slope or 1.0)
        if facts.d > facts.n_features:
            release = self._release_mean if loss.task == "regression" else self._release_frequencies
            best = release(loss, holder, calibrated, best)
        if loss.task == "regression":
            return self._release_deviation(holder, calibrated, best)
        return replace(best, slope=best.slope * math.sqrt(2.0)) if loss.n_outputs > 1 else best

    @staticmethod
    def _release_frequencies(
        loss: Loss, holder: DataHolder, calibrated: CalibratedPlan, best: BestConstant
    ) -> BestConstant:
        """Class frequencies; with two classes, that of the second class."""
        facts, several = holder.facts, loss.n_outputs > 1
        query: Query = ClassCounts(loss.n_outputs) if several else TargetMoment()
        mechanism = GaussianNoise(calibrated.noise_multiplier(query.name))
        noise = mechanism.noise_multiplier * query.sensitivity(facts, holder.neighbours) / facts.n
        equal = 1.0 / loss.n_outputs if several else 0.5
        released = holder.release(query, mechanism) / facts.n + (0.0 if several else 0.5)
        # noise alone may make a class look empty; a frequency below its noise is unknown, and zero would cost the most
        smallest = min(max(3.0 / facts.n, _MIN_FREQUENCY * noise), 0.5 * equal)
        # the best constant of the hinge jumps to the larger class however small the imbalance is
        min_factor = _MIN_IMBALANCE_FACTOR if several or isinstance(loss, Logistic) else 0.0
        shrunk = _shrink_towards(released, equal, noise, _PRIOR_FREQUENCY_DEVIATION, min_factor)
        frequencies = np.maximum(shrunk, smallest)
        if several:
            logs = np.log(frequencies)
            frequencies /= frequencies.sum()
            curvature = float(np.mean(frequencies * (1.0 - frequencies)))
            notes = _rare_class_notes(frequencies, noise)
            return replace(best, constant=logs - logs.mean(), curvature=curvature, notes=notes)
        frequency = min(float(frequencies[0]), 1.0 - smallest)
        curvature = frequency * (1.0 - frequency) if isinstance(loss, Logistic) else math.inf
        notes = _rare_class_notes(np.array([frequency, 1.0 - frequency]), noise)
        return replace(best, constant=best_constant(loss, frequency), curvature=curvature, notes=notes)

    @staticmethod
    def _release_mean(loss: Loss, holder: DataHolder, calibrated: CalibratedPlan, best: BestConstant) -> BestConstant:
        """Mean of a regression target; a note warns where the target may lie outside its range."""
        facts, query = holder.facts, TargetMoment()
        mechanism = GaussianNoise(calibrated.noise_multiplier(TargetMoment.name))
        noise = mechanism.noise_multiplier * query.sensitivity(facts, holder.neighbours) / facts.n
        middle = 0.5 * (facts.target_low + facts.target_high)
        half = 0.5 * (facts.target_high - facts.target_low)
        mean = float(holder.release(query, mechanism)[0]) / facts.n + middle
        notes = []
        if noise < 2.0 * half * _PRECISE_MEAN and abs(mean - middle) > half - 2.5 * noise:
            end = "upper" if mean > middle else "lower"
            notes.append(
                f"The mean of the target lies at the {end} end of its declared range: most of the target may lie "
                "outside the range, and no prediction falls there"
            )
        shrunk = float(_shrink_towards(mean, middle, noise, _PRIOR_MEAN_DEVIATION * half))
        constant = min(max(shrunk, facts.target_low), facts.target_high)
        return replace(best, constant=constant, noise=noise, notes=tuple(notes))

    @staticmethod
    def _release_deviation(holder: DataHolder, calibrated: CalibratedPlan, best: BestConstant) -> BestConstant:
        """Mean absolute deviation of a regression target from the best constant, and the skew that follows."""
        facts = holder.facts
        query = TargetDeviation(0.0 if best.constant is None else float(best.constant))
        mechanism = GaussianNoise(calibrated.noise_multiplier(TargetDeviation.name))
        largest = query.largest(facts)
        noise = mechanism.noise_multiplier * query.sensitivity(facts, holder.neighbours) / facts.n
        mean = float(holder.release(query, mechanism)[0]) / facts.n + 0.5 * largest
        mean = min(max(mean, 0.01 * largest), largest)
        if best.constant is None:
            return replace(best, slope=mean, slope_error=noise / mean)
        # Half of the mean deviation lies on either side of the mean. Targets on the side of the nearer end cannot be
        # further away than that end, so they are at least this share of all targets (after allowing for noise). The
        # larger that share, the further away the others must be.
        room = min(best.constant - facts.target_low, facts.target_high - best.constant) + 3.0 * best.noise
        one_side = min(max(0.5 * (mean - 3.0 * noise) / max(room, 1e-9 * largest), 0.0), _MAX_ONE_SIDE)
        skew = max(1.0, 0.5 / (1.0 - one_side))
        notes = best.notes
        warned = bool(notes) or best.noise >= _NOISY_MEAN * (facts.target_high - facts.target_low)
        if best.noise > _NOISY_MEAN_IN_DEVIATIONS * (mean - noise) and not warned:
            notes += (
                f"The noise of the target's mean (+-{best.noise / (facts.target_high - facts.target_low):.1%} of the "
                "declared range) is large relative to the target's deviation from it, and predictions may miss the "
                "mean: declare a narrower range of the target",
            )
        return replace(best, slope=min(mean * skew, largest), slope_error=noise / mean, skew=skew, notes=notes)


def _rare_class_notes(frequencies: FloatArray, noise: float) -> tuple[str, ...]:
    """Warn where a class is so rare that noise hides its frequency, or whether it occurs at all."""
    n_rare = int((frequencies < _RARE_CLASS * noise).sum())
    if not n_rare or noise >= _NOISY_FREQUENCY:  # the plan has warned already
        return ()
    which = "A class is" if n_rare == 1 else f"{n_rare} classes are"
    return (
        f"{which} so rare that noise hides the class frequency (known to about +-{100.0 * min(noise, 0.5):.2f} "
        "percentage points): predicted probabilities may be several times too large or too small",
    )


def _shrink_towards(mean: Any, centre: float, noise: float, prior_deviation: float, min_factor: float = 0.0) -> Any:
    """Shrink a noisy mean (or class frequencies) towards its prior expectation ``centre``.

    Two factors are multiplied. The first is that of a normal prior with standard deviation ``prior_deviation``; it
    limits the effect of extreme noise. The second is the positive-part James-Stein factor, which is zero unless the
    distance from the centre exceeds the noise; it is at least ``min_factor``.
    """
    distance = np.asarray(mean) - centre
    square = float((distance * distance).sum())
    james_stein = max(min_factor, 1.0 - max(1, distance.size - 1) * noise**2 / square) if square > 0.0 else 0.0
    return centre + distance * (james_stein * prior_deviation**2 / (prior_deviation**2 + noise**2))


def best_constant(loss: Loss, mean: float) -> float:
    """Prediction that minimises the loss where a share ``mean`` of the labels is 1.

    >>> round(best_constant(Logistic(), 0.75), 3)
    1.099
    """
    if isinstance(loss, Logistic):
        return math.log(mean / (1.0 - mean))

    def cost(z: float) -> float:
        values = loss.value(np.array([z, z]), np.array([0.0, 1.0]))
        return float((1.0 - mean) * values[0] + mean * values[1])

    return float(minimize_scalar(cost, bounds=(-10.0, 10.0), method="bounded").x)


@dataclass(frozen=True)
class ClippedResponse:
    """Curvature and sampling variation of clipped slopes at the best constant, under the null hypothesis.

    The null hypothesis is that no column is informative. A slope at its clipping threshold does not respond to the
    weights, so clipping reduces the curvature.

    Attributes
    ----------
    cautious, curvature : array of shape (outputs,)
        Derivative of the mean clipped slope. ``curvature`` is its value at the best constant; ``cautious`` is limited
        to what is typical where columns are informative.
    square : array of shape (outputs,)
        Mean square of a clipped slope at the best constant.
    trust : float
        Exponent applied to the learnt share that ``cautious`` implies; below 1 where the curvature away from the best
        constant is less certain.
    """

    cautious: FloatArray
    curvature: FloatArray
    square: FloatArray
    trust: float

    @classmethod
    def of(
        cls, loss: Loss, recipe: Recipe, best: BestConstant, clip: float, label_independence: float
    ) -> ClippedResponse:
        """Build it for a clipping threshold in typical slopes.

        >>> regression, logistic = recipe_for(Squared()), recipe_for(Logistic())
        >>> best = BestConstant(0.0, 1.0)
        >>> responses = [ClippedResponse.of(Squared(), regression, best, clip, 0.0) for clip in (0.8, 1.25, 9)]
        >>> [response.curvature.round(2).item() for response in responses]
        [0.48, 0.68, 1.0]
        >>> best = BestConstant(0.0, 0.5)
        >>> responses = [ClippedResponse.of(Logistic(), logistic, best, 0.5, share) for share in (0.0, 0.5, 1)]
        >>> [response.curvature.round(3).item() for response in responses]
        [0.001, 0.062, 0.113]
        """
        residual_bound = math.inf
        if isinstance(loss, Squared):
            residual_bound = loss.slope_bound  # half the range: affects the few targets far from all others, or none
        else:
            clip = min(clip, loss.slope_bound / best.slope)
        if loss.task == "regression":
            return cls._of_regression(recipe, best, clip, residual_bound)
        passed = min(1.0, clip)
        typical = passed * min(recipe.curvature, best.curvature)
        variance: FloatArray
        if type(loss) is Logistic:
            derivative, square = _two_class_response(best, clip * best.slope, label_independence)
            at_constant = np.array([max(derivative, 0.01 * typical)])
            return cls(np.minimum(typical, at_constant), at_constant, np.array([square]), _CLASSIFICATION_TRUST)
        if best.constant is None or loss.n_outputs == 1:
            flat = np.full(loss.n_outputs, typical)
            square_of_each = np.full(loss.n_outputs, (passed * best.slope) ** 2 / loss.n_outputs)
            return cls(flat, flat, square_of_each, _CLASSIFICATION_TRUST)
        odds = np.exp(best.constant - best.constant.max())
        variance = odds / odds.sum() * (1.0 - odds / odds.sum())
        cautious = passed * np.minimum(recipe.curvature, variance)
        return cls(cautious, passed * variance, passed**2 * variance, _CLASSIFICATION_TRUST)

    @classmethod
    def _of_regression(cls, recipe: Recipe, best: BestConstant, clip: float, residual_bound: float) -> ClippedResponse:
        """Residuals are assumed normal, except that those on the crowded side of a skewed target are small."""
        unclipped = math.erf(clip / math.sqrt(math.pi))
        # residuals may be larger than the noisy slope size says, and then fewer of them are below the threshold
        surely_unclipped = math.erf(clip / (1.0 + min(best.slope_error, _MAX_SLOPE_ERROR)) / math.sqrt(math.pi))
        far_share = 0.5 / best.skew  # share of targets on the other side, a typical slope away
        cautious, responding = (1.0 - 1.0 / best.skew + share / best.skew for share in (surely_unclipped, unclipped))
        if residual_bound < best.slope:
            cautious, responding = min(cautious, 1.0 - far_share), min(responding, 1.0 - far_share)
        cut = clip * math.sqrt(2.0 / math.pi)  # in standard deviations
        passed = unclipped - cut * math.sqrt(2.0 / math.pi) * math.exp(-0.5 * cut * cut) + cut * cut * (1.0 - unclipped)
        # half of the deviation lies on either side: the mean square of two groups is that half times far plus near
        square = 0.5 * (best.slope / best.skew) ** 2 * (best.skew + 1.0)
        square -= far_share * max(best.slope**2 - residual_bound**2, 0.0)
        normal = 1.0 + (0.5 * math.pi - 1.0) / best.skew**2
        curvature = recipe.curvature
        return cls(
            np.array([curvature * cautious]),
            np.array([curvature * responding]),
            np.array([square * normal * passed]),
            1.0,
        )


def _two_class_response(best: BestConstant, limit: float, label_independence: float) -> tuple[float, float]:
    """Derivative of the mean clipped logistic slope at the best constant (central difference), and its mean square."""
    start, distance = (0.0 if best.constant is None else float(best.constant)), 0.2

    def probability(score: float) -> float:
        return 1.0 / (1.0 + math.exp(-score))

    def clipped_slopes(score: float) -> tuple[float, float]:
        """Sizes of the clipped slope for label 0 and for label 1."""
        one = probability(score)
        sizes = [
            label_independence * max(one, 1.0 - one) + (1.0 - label_independence) * slope for slope in (one, 1.0 - one)
        ]
        return one * min(1.0, limit / sizes[0]), (1.0 - one) * min(1.0, limit / sizes[1])

    share = probability(start)
    (zero_above, one_above), (zero_below, one_below), (zero_at, one_at) = (
        clipped_slopes(start + by) for by in (distance, -distance, 0.0)
    )
    derivative = ((1.0 - share) * (zero_above - zero_below) - share * (one_above - one_below)) / (2.0 * distance)
    return derivative, (1.0 - share) * zero_at**2 + share * one_at**2
