"""Constants of the automatic rule for each kind of loss, and the public numbers that follow from them.

Lengths are in units of the mapped row length and slopes in units of their typical size, so one set of constants serves
every data set. They were tuned on simulated families and a few public data sets; ``docs/automatic.md`` derives the
formulas, and ``docs/automatic-evidence.md`` says how each constant was found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dperm.data.design.facts import Facts
from dperm.objective import Loss, SmoothedHinge
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.types import FloatArray

__all__ = ["Recipe", "expected_noise", "noise_fraction", "recipe_for"]


@dataclass(frozen=True)
class Recipe:
    """Assumptions of the rule about one kind of loss.

    "High noise" and "low noise" are the two ends of the noise fraction, 1 and 0 (see :func:`noise_fraction`). Where a
    pair of numbers is given, the first is for high noise, the second for low noise, unless stated otherwise.

    Attributes
    ----------
    curvature, step_curvature : float
        Typical second derivative of the loss, and the one assumed by coordinate steps and second-order models: the
        largest value, or the largest population mean where the loss is curved in few places only.
    slope : float or None
        Typical size of a slope; None where it is released (the mean deviation of a regression target).
    clip_high_noise, clip_low_noise : float
        Clipping threshold for one person's gradient, in typical gradients.
    clip_grows_below, max_clip_growth : float
        Noise fraction below which the clipping threshold grows, and the largest factor by which it grows.
    passed : float
        Share of the mean gradient that remains after clipping at one typical gradient; penalties are scaled by the
        same share.
    signal : float
        Assumed squared size of the signal; it enters the total step length (see ``docs/automatic.md``).
    explainable : float
        Typical part of the null model's loss that the columns can explain, in units of the squared typical slope.
    tolerated_excess : float
        Excess objective from noise at which the noise fraction is one half.
    max_step : float
        Longest stable step in the mapped space.
    caution, min_shrinkage : float
        The result is multiplied by 1 - (noise energy + caution * its standard deviation) / energy, but by at least
        ``min_shrinkage``.
    label_independence : pair of float
        Degree to which clipping ignores the label; see :class:`~dperm.queries.whitened.MappedGradient`.
    intercept_heights : pair of float
        Height of the intercept column in row lengths. The descent starts at the best constant, and clipping that
        depends on labels would push the intercept towards the larger class.
    rows_for_target : float
        Value of rows times mu at which the target mean takes its largest budget share.
    target_shares : pair of float
        Smallest and largest budget share of the target mean (more in regression with very few rows).
    moment_shares : pair of float
        Budget share of the second moments.
    """

    curvature: float
    step_curvature: float
    slope: float | None
    clip_high_noise: float
    clip_low_noise: float
    clip_grows_below: float
    max_clip_growth: float
    passed: float
    signal: float
    explainable: float
    tolerated_excess: float
    max_step: float
    caution: float
    min_shrinkage: float
    label_independence: tuple[float, float]
    intercept_heights: tuple[float, float]
    rows_for_target: float
    target_shares: tuple[float, float]
    moment_shares: tuple[float, float]

    def clip(self, noise_fraction: float) -> float:
        """Clipping threshold in typical gradients."""
        base = self.clip_low_noise + (self.clip_high_noise - self.clip_low_noise) * noise_fraction
        # where noise is far below the tolerated excess, clipping bias is the larger error: accept noise for less bias
        growth = (1.0 / max(noise_fraction, 1e-12) - 1.0) / (1.0 / self.clip_grows_below - 1.0)
        return base * min(self.max_clip_growth, max(1.0, float(growth**0.25)))

    def adjust_for_skew(self, noise_fraction: float, skew: float) -> float:
        """Noise fraction when a typical slope, and hence the noise, is ``skew`` times the mean slope."""
        odds = skew * skew * noise_fraction / max(1.0 - noise_fraction, 1e-12)
        return odds / (1.0 + odds)

    def share_passed(self, clip: float) -> float:
        """Share of the mean gradient that remains after clipping at ``clip`` typical gradients."""
        return min(1.0, self.passed * clip)

    def interpolate(self, pair: tuple[float, float], noise_fraction: float) -> float:
        """Interpolate between the values for high noise (first) and low noise (second)."""
        return pair[1] + (pair[0] - pair[1]) * noise_fraction

    def total_time(self, noise_fraction: float, roundness: float, resolution: float) -> float:
        """Sum of all step lengths.

        ``roundness`` is the squared mapped length over the number of coordinates. ``resolution`` is n mu / (records
        apart * coordinates). With low resolution the descent stops early, before noise dominates the weights.
        """
        log_ratio = math.log1p(10.0 * self.signal * self.curvature * resolution**2)
        curvature = self.curvature * roundness * min(1.0, self.clip(noise_fraction))
        return (1.0 - 0.6 * noise_fraction) * log_ratio * (1.0 + log_ratio / 4.0) / (2.0 * curvature)

    def step_decay(self, noise_fraction: float, n_steps: int) -> FloatArray:
        """Relative step lengths."""
        out: FloatArray = 1.0 / (1.0 + 9.0 * (1.0 - noise_fraction) * (np.arange(n_steps) + 0.5) / n_steps)
        return out

    def first_step(self, noise_fraction: float, total_time: float, n_steps: int, momentum: float) -> float:
        """Length of the first step such that all steps sum to ``total_time``, limited by stability."""
        wanted = total_time / float(self.step_decay(noise_fraction, n_steps).sum()) * (1.0 - momentum)
        return min(self.max_step / min(1.0, self.clip(noise_fraction)), wanted)

    def shrinkage_factor(self, noise_energies: FloatArray, energy: float) -> float:
        """Factor that shrinks a result of this energy, given the noise energy in each direction and output.

        Only energy above the expected noise energy plus ``caution`` standard deviations counts as signal. A result
        without energy, as when the second moments are all noise, gets the smallest factor.
        """
        if energy <= 0.0:
            return self.min_shrinkage
        expected = float(noise_energies.sum())
        deviation = math.sqrt(2.0 * float((noise_energies * noise_energies).sum()))
        return min(1.0, max(self.min_shrinkage, 1.0 - (expected + self.caution * deviation) / energy))


_LOGISTIC = Recipe(
    curvature=0.15,
    step_curvature=0.25,
    slope=0.5,
    clip_high_noise=0.5,
    clip_low_noise=1.0,
    clip_grows_below=0.05,
    max_clip_growth=8.0,
    passed=0.77,
    signal=0.72,
    explainable=0.8,
    tolerated_excess=0.01,
    max_step=7.0,
    caution=0.5,
    min_shrinkage=0.1,
    label_independence=(0.2, 1.0),
    intercept_heights=(0.08, 0.25),
    rows_for_target=15.0,
    target_shares=(0.02, 0.3),
    moment_shares=(0.03, 0.15),
)

# The hinge has slope 1 wherever the margin is missed and is curved only near the margin. The curvature 0.6, used for
# every smoothing width, makes the expected noise equal to that of the logistic loss.
_HINGE = replace(_LOGISTIC, curvature=0.6, step_curvature=0.6, slope=1.0, max_step=2.5, passed=1.0)

_REGRESSION = Recipe(
    curvature=1.0,
    step_curvature=1.0,
    slope=None,
    clip_high_noise=0.8,
    clip_low_noise=1.25,
    clip_grows_below=0.5,
    max_clip_growth=32.0,
    passed=1.0,
    signal=0.45,
    explainable=0.5,
    tolerated_excess=0.01,
    max_step=0.8,
    caution=0.5,
    min_shrinkage=0.0,
    label_independence=(0.0, 0.0),
    intercept_heights=(0.25, 0.25),
    rows_for_target=30.0,
    target_shares=(0.05, 0.3),
    moment_shares=(0.03, 0.2),
)


def recipe_for(loss: Loss) -> Recipe:
    """Return the constants for a loss."""
    if loss.task == "regression":
        return _REGRESSION
    return _HINGE if isinstance(loss, SmoothedHinge) else _LOGISTIC


def expected_noise(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Expected excess objective caused by noise alone if the whole budget is spent on gradients.

    In a metric in which the data are isotropic, each of d coordinates of curvature k has the noise variance
    (records apart * typical slope * sqrt(d) / (n mu k))^2 and costs k / 2 per unit of variance. In regression the unit
    is the target's squared mean deviation.
    """
    recipe = recipe_for(loss)
    slope = 1.0 if recipe.slope is None else recipe.slope
    coordinates = facts.d * facts.d * loss.n_outputs
    return coordinates * (neighbours.records_apart * slope / (facts.n * mu)) ** 2 / (2.0 * recipe.curvature)


def noise_fraction(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Expected noise over expected noise plus the tolerated excess: 0 without noise, near 1 where noise dominates.

    All cautious choices of the rule interpolate with this one public number.
    """
    excess = expected_noise(loss, facts, mu, neighbours)
    return excess / (excess + recipe_for(loss).tolerated_excess)
