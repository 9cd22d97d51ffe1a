"""Forecasts of the excess loss of a local collection, and of the number of people it needs, before anybody is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from dperm.errors import Unsupported
from dperm.solvers.local.quadratic import shrinkage_factors
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = ["LocalForecast"]

#: quantiles of the noise along the weights, and of the noise across them, over which the excess is averaged
_POINTS = 64
#: the search for a number of people stops here
_MOST = 10**18


@dataclass(frozen=True)
class LocalForecast:
    """Expected accuracy of a collection, computed from public numbers before anybody is asked.

    A fit sets weights that are not significant against their noise to 0 and shrinks the others. So with few people it
    has about the excess loss of the null model, whose weights are all 0. :attr:`excess` is the expected excess loss of
    the weights that a fit returns.

    Attributes
    ----------
    noise : float
        Expected excess loss from the noise of ``n`` people's bits without shrinkage; falls as 1 / n.
    bias : float
        Excess loss that remains with any number of people, because a polynomial replaces the loss.
    null_excess : float
        Excess loss of the null model.
    degree : int or None
        Degree of the polynomial that replaces the loss; None if there is none.
    assumptions : tuple of str
        What the forecast assumes.
    threshold_factor : float
        Significance threshold as a multiple of the noise: a fit below it is set to 0.
    share_along_weights : float
        Share of the noise that lies along the best weights.
    dimension : int
        Number of weights.
    """

    n: int
    noise: float
    bias: float
    null_excess: float
    degree: int | None
    assumptions: tuple[str, ...]
    threshold_factor: float
    share_along_weights: float
    dimension: int

    def __str__(self) -> str:
        parts = "after shrinkage"
        if self.degree is not None:
            parts += f"; {self.bias:.3g} of it because a polynomial of degree {self.degree} replaces the loss"
        lines = [
            f"{self.n} people: expected excess loss over the best model of this kind {self.excess:.3g} ({parts})",
            f"the null model (all weights 0) has an excess loss of {self.null_excess:.3g}",
            self._needed(),
            *(f"  assuming {text}" for text in self.assumptions),
        ]
        return "\n".join(lines)

    def _needed(self) -> str:
        if self.null_excess <= self.bias:
            return "no number of people is enough to beat the null model"
        return (
            f"about {self.people_needed} people are needed for half of the possible improvement over the null model; "
            f"fits of fewer than {self.min_people} are refused"
        )

    @property
    def excess(self) -> float:
        """Expected excess loss of a fit, shrinkage included."""
        return self._excess(self.noise)

    def _excess(self, noise: float) -> float:
        signal = math.sqrt(2.0 * self.null_excess)
        along, rest = _normal(self.dimension)
        found = signal + math.sqrt(2.0 * noise * self.share_along_weights) * along
        rest = 2.0 * noise * (1.0 - self.share_along_weights) * rest
        kept = shrinkage_factors(found**2 + rest, 2.0 * noise, 2.0 * noise * self.threshold_factor)
        return float(((kept * found - signal) ** 2 + kept**2 * rest).mean()) / 2.0 + self.bias

    @property
    def people_needed(self) -> int:
        """Number of people for half of the possible improvement over the null model."""
        return self.people_for((self.null_excess + self.bias) / 2.0)

    @property
    def min_people(self) -> int:
        """Number of people below which fits are refused, because typical weights would not be significant."""
        self._check_reachable(self.null_excess)
        return math.ceil(self.noise * self.n * max(1.0, self.threshold_factor) / (self.null_excess - self.bias))

    @property
    def hopeless(self) -> bool:
        """True if a fit would be refused, because the null model is expected to be about as good."""
        return self.n < self.min_people

    def people_for(self, target: float) -> int:
        """Return the number of people for this expected excess loss."""
        target = positive("target", target)
        self._check_reachable(target)
        one_person = self.noise * self.n
        # the excess falls with the number of people, so bisection finds the number
        low, high = 0, 1
        while high < _MOST and self._excess(one_person / high) > target:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._excess(one_person / middle) > target else (low, middle)
        return high

    def _check_reachable(self, target: float) -> None:
        if target <= self.bias:
            raise Unsupported(
                f"no number of people reaches an excess loss of {target:.3g}: the polynomial of degree {self.degree} "
                f"that replaces the loss alone adds {self.bias:.3g}."
            )


@lru_cache(maxsize=64)
def _normal(dimension: int) -> tuple[FloatArray, FloatArray]:
    """Equally likely pairs of a standard normal entry and the sum of squares of all others, divided by its mean."""
    ranks = (np.arange(_POINTS) + 0.5) / _POINTS
    along = stats.norm.ppf(ranks)
    along *= 1.0 / math.sqrt(float((along**2).mean()))  # the quantiles miss part of the tails: restore the variance
    rest = stats.chi2.ppf(ranks, dimension - 1) if dimension > 1 else np.zeros(1)
    rest /= max(float(rest.mean()), 1e-300)
    return np.repeat(along, len(rest)), np.tile(rest, len(along))
