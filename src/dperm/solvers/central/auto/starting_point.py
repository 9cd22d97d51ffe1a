"""Starting point of the automatic rule: releases of the best constant and of the typical slope size at it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder, Query
from dperm.objective import Logistic, Loss
from dperm.privacy.accounting.calibration import CalibratedPlan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.statistics import TargetMoment
from dperm.queries.targets import ClassCounts, TargetDeviation
from dperm.solvers.central.auto.constants import RULE, TINY
from dperm.solvers.central.auto.scales import scale_of
from dperm.types import FloatArray

__all__ = ["BestConstant", "StartingPoint", "best_constant"]


#: standard deviation of a number that may lie anywhere between 0 and 1
_UNIFORM = 1.0 / math.sqrt(12.0)


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
            error = noise / (facts.target_high - facts.target_low)
            known = f"the mean of the target is known to about +-{100.0 * min(error, 0.5):.0f}% of its range only"
            wrong = "all predictions may be off by as much, and the model may be of little use"
        else:
            error = noise
            known = f"class frequencies are known to about +-{100.0 * min(error, 0.5):.0f} percentage points only"
            wrong = "too many predictions may name the same class"
        return () if error < RULE.noisy_constant else (f"{known}: {wrong}",)

    def release(self, loss: Loss, holder: DataHolder, calibrated: CalibratedPlan) -> BestConstant:
        """Make the releases and return the best constant."""
        facts = holder.facts
        best = BestConstant(None, scale_of(loss).slope or 1.0)
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
        smallest = min(max(1.0 / facts.n, noise), 0.5 * equal)
        # the best constant of the hinge jumps to the larger class however small the imbalance is
        min_factor = RULE.least_kept if several or isinstance(loss, Logistic) else 0.0
        shrunk = _shrink_towards(released, equal, noise, _UNIFORM, min_factor)
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
        if noise < 2.0 * half * RULE.noisy_constant and abs(mean - middle) > half - RULE.clear * noise:
            end = "upper" if mean > middle else "lower"
            notes.append(
                f"The mean of the target lies at the {end} end of its declared range: most of the target may lie "
                "outside the range, and no prediction falls there"
            )
        shrunk = float(_shrink_towards(mean, middle, noise, 2.0 * _UNIFORM * half))
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
        # most targets near one value have rare large ones: a tiny deviation would clip them all
        mean = min(max(mean, RULE.least_kept**2 * largest), largest)
        if best.constant is None:
            return replace(best, slope=mean, slope_error=noise / mean)
        # Half of the mean deviation lies on either side of the mean. Targets on the side of the nearer end cannot be
        # further away than that end, so they are at least this share of all targets (after allowing for noise). The
        # larger that share, the further away the others must be.
        room = min(best.constant - facts.target_low, facts.target_high - best.constant) + RULE.clear * best.noise
        one_side = max(0.5 * (mean - RULE.clear * noise) / max(room, TINY * largest), 0.0)
        # the others are not further away than the largest deviation
        one_side = min(one_side, 1.0 - 0.5 * mean / largest)
        skew = max(1.0, 0.5 / (1.0 - one_side))
        notes = best.notes
        warned = bool(notes) or best.noise >= RULE.noisy_constant * (facts.target_high - facts.target_low)
        if best.noise > RULE.much_noise * (mean - noise) and not warned:
            notes += (
                f"The noise of the target's mean (+-{best.noise / (facts.target_high - facts.target_low):.1%} of the "
                "declared range) is large relative to the target's deviation from it, and predictions may miss the "
                "mean: declare a narrower range of the target",
            )
        return replace(best, slope=min(mean * skew, largest), slope_error=noise / mean, skew=skew, notes=notes)


def _rare_class_notes(frequencies: FloatArray, noise: float) -> tuple[str, ...]:
    """Warn where a class is so rare that noise hides its frequency, or whether it occurs at all."""
    n_rare = int((frequencies < 2.0 * RULE.clear * noise).sum())
    if not n_rare or noise >= RULE.noisy_constant:  # the plan has warned already
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

    return float(minimize_scalar(cost, bounds=(-4.0, 4.0), method="bounded").x)
