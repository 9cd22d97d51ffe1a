"""Constants of the automatic rule for each kind of loss, and the public numbers that follow from them.

All lengths are in units of the rows' mapped length, all slopes in units of their typical size, so one set of constants
serves every data set. They were set on simulated families and a few public data sets; ``docs/automatic.md`` derives
the formulas and says how each constant was found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dperm.data.design.facts import Facts
from dperm.objective import Loss, SmoothedHinge
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.types import FloatArray

__all__ = ["Recipe", "expected_noise", "noise_dominance", "recipe_for"]


@dataclass(frozen=True)
class Recipe:
    """What the rule takes for granted about a loss.

    Attributes
    ----------
    curvature, bend : float
        Typical second derivative of the loss, and the one that steps in single columns or by a second-order model
        assume: the largest, or the largest mean over people where the loss bends in few places.
    slope : float or None
        Typical size of a slope; None where it is released (the deviation of a regression's target).
    clip_much, clip_little : float
        A person's gradient is clipped at this many typical ones, with much and with little noise.
    grows_below, most_growth : float
        Dominance of noise below which the clip grows, and how many times longer gradients may be in the end.
    passed : float
        Share of the mean gradient that passes a clip of one typical gradient; a penalty counts by the same share.
    signal : float
        Squared size of what is to be learnt, in units that make the time of descent come out (see the guide).
    explained : float
        Typical part of a constant's loss that weights can explain, in units of the typical slope squared.
    forgiven : float
        Excess objective from noise at which the dominance of noise is one half.
    longest_step : float
        Longest stable step in the mapped space.
    caution, least_kept : float
        The result is multiplied by 1 - (noise + caution * its standard deviation) / energy, but not below
        ``least_kept``.
    blindness : pair of float
        How far clipping ignores the label with much and with little noise; see
        :class:`~dperm.queries.whitened.MappedGradient`.
    heights : pair of float
        Height of the constant column in row lengths, with much and with little noise. The descent starts at the best
        constant, and clipping that looks at labels would push it towards the larger class.
    rows_for_target : float
        Number of rows times mu at which the target's mean takes all the budget it may.
    target_shares, moment_shares : pair of float
        Smallest and largest share of the budget for the target's mean (more in regression with hardly any rows); for
        the second moments with much and with little noise.
    """

    curvature: float
    bend: float
    slope: float | None
    clip_much: float
    clip_little: float
    grows_below: float
    most_growth: float
    passed: float
    signal: float
    explained: float
    forgiven: float
    longest_step: float
    caution: float
    least_kept: float
    blindness: tuple[float, float]
    heights: tuple[float, float]
    rows_for_target: float
    target_shares: tuple[float, float]
    moment_shares: tuple[float, float]

    def clip(self, dominance: float) -> float:
        """Clip in typical gradients."""
        base = self.clip_little + (self.clip_much - self.clip_little) * dominance
        # where noise is far below what is forgiven, bias from clipping is the larger part: noise is traded for it
        quiet = (1.0 / max(dominance, 1e-12) - 1.0) / (1.0 / self.grows_below - 1.0)
        return base * min(self.most_growth, max(1.0, quiet**0.25))

    def raised(self, dominance: float, skew: float) -> float:
        """Dominance of noise where a typical slope is ``skew`` times the mean one, and noise with it."""
        odds = skew * skew * dominance / max(1.0 - dominance, 1e-12)
        return odds / (1.0 + odds)

    def share_passed(self, clip: float) -> float:
        """Share of the mean gradient that a clip, in typical gradients, lets pass."""
        return min(1.0, self.passed * clip)

    def mixed(self, pair: tuple[float, float], dominance: float) -> float:
        """Between the first (much noise) and the second number."""
        return pair[1] + (pair[0] - pair[1]) * dominance

    def total_time(self, dominance: float, roundness: float, resolution: float) -> float:
        """Sum of all step lengths.

        ``roundness`` is the squared mapped length over the number of coordinates, ``resolution`` n mu / (records apart
        times coordinates): with little resolution one stops early, before noise has filled the model.
        """
        lasting = math.log1p(10.0 * self.signal * self.curvature * resolution**2)
        curvature = self.curvature * roundness * min(1.0, self.clip(dominance))
        return (1.0 - 0.6 * dominance) * lasting * (1.0 + lasting / 4.0) / (2.0 * curvature)

    def decay(self, dominance: float, n_steps: int) -> FloatArray:
        """Relative step lengths."""
        out: FloatArray = 1.0 / (1.0 + 9.0 * (1.0 - dominance) * (np.arange(n_steps) + 0.5) / n_steps)
        return out

    def first_step(self, dominance: float, total_time: float, n_steps: int, momentum: float) -> float:
        """Length of the first step, such that all together make ``total_time`` if that is stable."""
        wanted = total_time / float(self.decay(dominance, n_steps).sum()) * (1.0 - momentum)
        return min(self.longest_step / min(1.0, self.clip(dominance)), wanted)

    def kept(self, parts: FloatArray, energy: float) -> float:
        """Factor that shrinks a result of this energy, given the noise energy in each direction and output.

        Noise alone would have its expected energy, give or take a standard deviation: only what exceeds both counts.
        Without energy, as where the second moments drown in noise, nothing speaks for the result.
        """
        if energy <= 0.0:
            return self.least_kept
        expected = float(parts.sum())
        spread = math.sqrt(2.0 * float((parts * parts).sum()))
        return min(1.0, max(self.least_kept, 1.0 - (expected + self.caution * spread) / energy))


_CLASSES = Recipe(
    curvature=0.15,
    bend=0.25,
    slope=0.5,
    clip_much=0.5,
    clip_little=1.0,
    grows_below=0.05,
    most_growth=8.0,
    passed=0.77,
    signal=0.72,
    explained=0.8,
    forgiven=0.01,
    longest_step=7.0,
    caution=0.5,
    least_kept=0.1,
    blindness=(0.2, 1.0),
    heights=(0.08, 0.25),
    rows_for_target=15.0,
    target_shares=(0.02, 0.3),
    moment_shares=(0.03, 0.15),
)

# The hinge has slope 1 wherever the margin is missed and bends only near it. Its curvature, the same for every width of
# the bend, makes the expected noise that of the logistic loss.
_MARGINS = replace(_CLASSES, curvature=0.6, bend=0.6, slope=1.0, longest_step=2.5, passed=1.0)

_NUMBERS = Recipe(
    curvature=1.0,
    bend=1.0,
    slope=None,
    clip_much=0.8,
    clip_little=1.25,
    grows_below=0.5,
    most_growth=32.0,
    passed=1.0,
    signal=0.45,
    explained=0.5,
    forgiven=0.01,
    longest_step=0.8,
    caution=0.5,
    least_kept=0.0,
    blindness=(0.0, 0.0),
    heights=(0.25, 0.25),
    rows_for_target=30.0,
    target_shares=(0.05, 0.3),
    moment_shares=(0.03, 0.2),
)


def recipe_for(loss: Loss) -> Recipe:
    """Return the constants for a loss."""
    if loss.task == "regression":
        return _NUMBERS
    return _MARGINS if isinstance(loss, SmoothedHinge) else _CLASSES


def expected_noise(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Expected excess of the objective that noise alone causes if the whole budget goes into gradients.

    In a metric in which the data are round, d coordinates of curvature k each carry the variance
    (records apart * typical slope * sqrt(d) / (n mu k))^2, which costs k / 2 per unit: regression in units of the
    target's mean squared deviation.
    """
    recipe = recipe_for(loss)
    slope = 1.0 if recipe.slope is None else recipe.slope
    coordinates = facts.d * facts.d * loss.n_outputs
    return coordinates * (neighbours.records_apart * slope / (facts.n * mu)) ** 2 / (2.0 * recipe.curvature)


def noise_dominance(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """How much noise will rule the result, from 0 (not at all) to 1; every cautious choice follows it."""
    excess = expected_noise(loss, facts, mu, neighbours)
    return excess / (excess + recipe_for(loss).forgiven)
