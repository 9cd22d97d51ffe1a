"""LocalForecast: what a collection is expected to achieve, before anybody is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from dperm.errors import InvalidInput, Unsupported
from dperm.solvers.local.quadratic import shrinkage_factors
from dperm.solvers.local.sketch import FloatArray

__all__ = ["LocalForecast"]

#: points along the weights and across them over which noise is averaged
_POINTS = 64
#: no plan looks beyond so many people
_MOST = 10**18


@dataclass(frozen=True)
class LocalForecast:
    """What a collection is expected to achieve, before anybody is asked.

    Weights that do not stand out of their noise are 0 and others are shrunk, so that a fit with few people has about
    the excess of weights 0: :attr:`excess` says what is expected of the weights that a fit returns.

    Attributes
    ----------
    noise : float
        Expected excess risk from the noise of ``n`` people's bits if nothing were shrunk; falls as 1 / n.
    bias : float
        Excess risk that stays: the polynomial is not the loss.
    null_excess : float
        Excess risk of weights 0.
    degree : int or None
        Degree of the polynomial that stands for the loss; None if none does.
    assumptions : tuple of str
        What was taken for granted.
    threshold_factor : float
        How many times its noise a fit must stand out before any of it is kept.
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
        parts = "after shrinkage by the noise"
        if self.degree is not None:
            parts += f", with {self.bias:.3g} from a polynomial of degree {self.degree} in place of the loss"
        lines = [
            f"{self.n} people: expected excess risk {self.excess:.3g} ({parts}); weights 0 have {self.null_excess:.3g}",
            self._needed(),
            *(f"  assuming {text}" for text in self.assumptions),
        ]
        return "\n".join(lines)

    def _needed(self) -> str:
        if self.null_excess <= self.bias:
            return "no number of people is enough to beat weights 0"
        return (
            f"about {self.people_needed} people are needed to gain half of what can be gained over weights 0; fits of "
            f"fewer than {self.min_people} are refused"
        )

    @property
    def excess(self) -> float:
        """Expected excess risk of a fit, whose weights are shrunk by their noise."""
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
        """Number of people from which a fit is expected to gain half of what can be gained over weights 0."""
        return self.people_for((self.null_excess + self.bias) / 2.0)

    @property
    def min_people(self) -> int:
        """Number of people below which fits are refused: typical weights would not stand out of their noise."""
        self._check_reachable(self.null_excess)
        return math.ceil(self.noise * self.n * max(1.0, self.threshold_factor) / (self.null_excess - self.bias))

    @property
    def hopeless(self) -> bool:
        """True if a fit would be refused: weights 0 are expected to do about as well."""
        return self.n < self.min_people

    def people_for(self, target: float) -> int:
        """Number of people for this expected excess risk."""
        if isinstance(target, bool) or not isinstance(target, int | float) or not target > 0.0:
            raise InvalidInput(f"the excess aimed at must be a number above 0, not {target!r}.")
        self._check_reachable(target)
        one_person = self.noise * self.n
        # the excess falls with the number of people; it is at most that of the unshrunk fit plus that of weights 0
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
                f"no number of people brings the excess down to {target:.3g}: a polynomial of degree {self.degree} in "
                f"place of the loss costs {self.bias:.3g} already."
            )


@lru_cache(maxsize=64)
def _normal(dimension: int) -> tuple[FloatArray, FloatArray]:
    """Evenly likely pairs of a standard normal entry and of the sum of squares of all others, over its mean."""
    ranks = (np.arange(_POINTS) + 0.5) / _POINTS
    along = stats.norm.ppf(ranks)
    along *= 1.0 / math.sqrt(float((along**2).mean()))  # the middles of the ranks miss some of the tails
    rest = stats.chi2.ppf(ranks, dimension - 1) if dimension > 1 else np.zeros(1)
    rest /= max(float(rest.mean()), 1e-300)
    return np.repeat(along, len(rest)), np.tile(rest, len(along))
