"""Collections of moments that estimate the squared or logistic loss of a linear model, and their forecasts.

Proofs: ``task.proof.md`` for a report, ``quadratic.proof.md`` for estimates, intervals and forecasts.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.special import gammaln

from dperm.errors import InvalidInput
from dperm.solvers.local.forecasts import LocalForecast
from dperm.solvers.local.moments import Moments
from dperm.solvers.local.quadratic import Estimate, NoisyQuadratic, significance_threshold
from dperm.solvers.local.quartic import NoisyQuartic
from dperm.solvers.local.surrogates import (
    TYPICAL,
    logistic_curvature,
    logistic_surrogate,
    margins,
    surrogate_bias,
    typical_length,
)
from dperm.solvers.local.task import Counts, Task
from dperm.types import FloatArray
from dperm.validation import positive, whole

__all__ = ["LinearTask"]

LOSSES = ("logistic", "squared")

#: lengths of the weights, relative to the radius, over which the bias is averaged
_LENGTHS = (0.125, 0.375, 0.625, 0.875)
#: answers that every statistic needs before its mean is treated as normal and its variance as known
_FOR_INTERVALS = 100


@dataclass(frozen=True)
class LinearTask:
    """A collection for one linear model, or for one model per class (one-versus-rest), with weights in a ball.

    A record is the features x in the unit ball, then the targets in [-1, 1]: y (squared loss), or for every class 1
    for its members and -1 for others (logistic loss, three classes or more). For two classes a record is y x alone.
    The objective is the mean of (y - w.x)^2 / 2, or of c_2 (w.x)^2 + c_4 (w.x)^4 - y w.x / 2, a polynomial that
    replaces ln(1 + exp(-y w.x)) on margins up to ``margin``. All classes share the even moments.

    Guarantee
    ---------
    That of its :class:`~dperm.solvers.local.Task`: one index and one bit per person, epsilon-DP, released to everyone.
    Everything else is computed from counts (``task.proof.md``).

    Parameters
    ----------
    loss : {"squared", "logistic"}
        The loss.
    epsilon : float
        Epsilon of a report.
    reach : tuple of float
        Bound on every feature's magnitude.
    radius : float
        Bound on the length of the weights.
    margin : float
        Largest margin for which the surrogate of the logistic loss is fitted.
    intercept : bool
        Whether the last feature is the public constant ``reach[-1]``.
    name : str
        Name of the task.
    degree : {2, 4}
        Degree of the surrogate of the logistic loss.
    n_outputs : int
        Number of weight vectors: 1, or the number of classes.
    inputs : dict, optional
        How a record is computed from a person's data; part of the task.
    n_levels : int
        2 for one-bit reports, up to 16 for reports of one of that many levels.
    version, window :
        As in the task.
    """

    loss: str
    epsilon: float
    reach: tuple[float, ...]
    radius: float
    margin: float
    intercept: bool = False
    name: str = "linear model"
    degree: int = 2
    n_outputs: int = 1
    inputs: dict[str, Any] | None = None
    n_levels: int = 2
    version: int = 1
    window: str | None = None

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InvalidInput(f"loss must be one of {', '.join(LOSSES)}, not {self.loss!r}.")
        for what in ("radius", "margin"):
            positive(what, getattr(self, what))
        if self.loss == "squared" and (self.degree, self.n_outputs) != (2, 1):
            raise InvalidInput("the squared loss has degree 2 and one target: leave degree and n_outputs out.")

    @property
    def dimension(self) -> int:
        """Number of weights of one output."""
        return len(self.reach)

    @property
    def n_targets(self) -> int:
        """Number of targets at the end of a record."""
        return self.n_outputs if self.loss == "squared" or self.n_outputs > 1 else 0

    @property
    def typical_length(self) -> float:
        """Assumed length of the best weights."""
        return typical_length(self.loss, self.radius, self.reach, self.intercept)

    @cached_property
    def coefficients(self) -> tuple[float, ...]:
        """Coefficients of the even powers of the margin."""
        return (0.5,) if self.loss == "squared" else logistic_surrogate(self.degree, self.margin)

    @property
    def _slope_factor(self) -> float:
        return 1.0 if self.loss == "squared" else 0.5

    @cached_property
    def _products(self) -> list[tuple[int, ...]]:
        """Products of features that are estimated; powers of the intercept are public and left out."""
        last = self.dimension - 1
        return [
            product
            for degree in range(2, self.degree + 1, 2)
            for product in combinations_with_replacement(range(self.dimension), degree)
            if not (self.intercept and product[0] == last)
        ]

    @property
    def _n_first(self) -> int:
        return self.n_outputs * self.dimension

    @cached_property
    def sketch(self) -> Moments:
        """The statistics: first the products with the targets, then even products of features."""
        d = self.dimension
        unit = np.eye(d + self.n_targets, dtype=int)
        first = [unit[i] + (unit[d + k] if self.n_targets else 0) for k in range(self.n_outputs) for i in range(d)]
        exponents = [*first, *(sum(unit[i] for i in product) for product in self._products)]
        plain = Moments(
            tuple(tuple(int(e) for e in m) for m in exponents),
            (1.0,) * len(exponents),
            d,
            self.reach + (1.0,) * self.n_targets,
        )
        # shares that minimise the mean squared error of the gradient at long weights, so that the curvature, which
        # intervals need, gets enough reports
        effects = np.sqrt(self._effects(plain.high - plain.low, TYPICAL * self.radius))
        return Moments(plain.exponents, tuple((effects / effects.sum()).tolist()), d, plain.reach)

    def _effects(self, width: FloatArray, length: float) -> FloatArray:
        """Expected squared error of all gradients at weights of this length, if each statistic is off by its width."""
        even = [
            self.n_outputs * (self.coefficients[len(product) // 2 - 1]) ** 2 * _moved(product, self.dimension, length)
            for product in self._products
        ]
        return np.concatenate([np.full(self._n_first, self._slope_factor**2), even]) * width**2

    @cached_property
    def task(self) -> Task:
        """The task that people answer."""
        return Task(
            self.name, self.epsilon, self.sketch, self.version, self.inputs, n_levels=self.n_levels, window=self.window
        )

    # ---------------------------------------------------------------------------------- from counts
    def objectives(self, counts: Counts, penalty: float = 0.0) -> tuple[NoisyQuadratic | NoisyQuartic, ...]:
        """Return the estimated objective of every output, plus ``penalty`` / 2 times the squared weights."""
        means, variances = self.task.means(counts)
        # where nobody answered, the range bounds the variance
        variances = np.minimum(variances, ((self.sketch.high - self.sketch.low) * self.task.bit.gain) ** 2)
        d, first = self.dimension, self._n_first
        n_pairs = sum(len(product) == 2 for product in self._products)
        hessian, noise = np.zeros((d, d)), np.zeros((d, d))
        if self.intercept:
            hessian[-1, -1] = self.reach[-1] ** 2
        for (i, j), mean, variance in zip(self._products[:n_pairs], means[first:], variances[first:], strict=False):
            hessian[i, j] = hessian[j, i] = mean
            noise[i, j] = noise[j, i] = variance
        half, c = self._slope_factor, 2.0 * self.coefficients[0]
        hessian *= c
        free = np.arange(d - self.intercept)
        hessian[free, free] += penalty
        slopes, slope_noise = means[:first].reshape(-1, d), variances[:first].reshape(-1, d)
        flat = [
            NoisyQuadratic(hessian, half * slope, c**2 * noise, half**2 * spread)
            for slope, spread in zip(slopes, slope_noise, strict=True)
        ]
        if self.degree == 2:
            return tuple(flat)
        index, values, spread = self._fourth(means[first + n_pairs :], variances[first + n_pairs :])
        lowest = 4.0 * self.coefficients[1] * self.margin**2 / c
        return tuple(NoisyQuartic(one, index, values, spread, lowest) for one in flat)

    def _fourth(self, means: FloatArray, variances: FloatArray) -> tuple[Any, FloatArray, FloatArray]:
        index = np.array([product for product in self._products if len(product) == 4])
        if self.intercept:
            index = np.vstack([index, np.full(4, self.dimension - 1)])
            means, variances = np.append(means, self.reach[-1] ** 4), np.append(variances, 0.0)
        return index, self.coefficients[1] * means, self.coefficients[1] ** 2 * variances

    def estimates(self, counts: Counts, penalty: float = 0.0) -> tuple[Estimate, ...]:
        """Estimate the weights of every output from counts."""
        found = tuple(one.minimise(self.radius) for one in self.objectives(counts, penalty))
        if counts.n.min() >= _FOR_INTERVALS:
            return found
        reason = f"some statistics have fewer than {_FOR_INTERVALS} answers, too few for intervals: ask more people"
        return tuple(replace(one, covariance=None, reason=one.reason or reason) for one in found)

    # ---------------------------------------------------------------------------------- before anybody is asked
    def forecast(self, n: int, mean_squares: FloatArray) -> LocalForecast:
        """Forecast the excess loss of a fit with ``n`` people; ``mean_squares`` are public guesses, one per feature.

        The best weights are assumed to be spread evenly over all features but the intercept.
        """
        n = whole("n", n)
        sketch, columns = self.sketch, mean_squares[: self.dimension - self.intercept]
        width = (sketch.high - sketch.low) * self.task.bit.gain / 2.0
        length = self.typical_length
        effects = self._effects(width, length) / np.asarray(sketch.shares)
        true = 1.0 if self.loss == "squared" else logistic_curvature(_margins(columns, length))
        # noise moves the minimiser of a parabola less if it is more curved than the loss
        own = 2.0 * self.coefficients[0] if self.degree == 2 else true
        # without a signal only the noise of the slopes matters: it determines the significance threshold
        null = effects[: self.dimension] / mean_squares
        noise = (
            effects[: self._n_first].reshape(-1, self.dimension).sum(axis=0) + self._by_entry(effects)
        ) / mean_squares
        noise /= self.n_outputs
        assumptions = (
            f"the squares of a scaled row sum to {mean_squares.sum():.3g} on average",
            f"the best weights have length {length:.3g}, spread evenly over {len(columns)} columns",
        )
        return LocalForecast(
            n=n,
            noise=float(noise.sum()) * true / (2.0 * own**2 * n),
            bias=self._bias(columns),
            null_excess=true * float(columns.mean()) * length**2 / 2.0,
            degree=self.degree,
            assumptions=assumptions,
            threshold_factor=significance_threshold(null) / float(noise.sum()),
            share_along_weights=float(noise[: len(columns)].mean() / noise.sum()),
            dimension=self.dimension,
        )

    def _by_entry(self, effects: FloatArray) -> FloatArray:
        """Squared error of every gradient entry from the noise of products, split evenly over their features."""
        out = np.zeros(self.dimension)
        for product, effect in zip(self._products, effects[self._n_first :], strict=True):
            np.add.at(out, list(product), effect / len(product))
        return out

    def _bias(self, columns: FloatArray) -> float:
        if self.loss == "squared":
            return 0.0
        reached = [_margins(columns, share * self.radius) for share in _LENGTHS]
        return float(np.mean([surrogate_bias(self.coefficients, s) for s in reached]))


def _margins(columns: FloatArray, length: float) -> FloatArray:
    return margins(len(columns), length * math.sqrt(float(columns.sum())))


@lru_cache(maxsize=4096)
def _pattern(powers: tuple[int, ...], dimension: int) -> float:
    times = math.factorial(sum(powers)) / math.prod(math.factorial(e) for e in powers)
    total = 0.0
    for i, e in enumerate(powers):
        left = [other - (i == j) for j, other in enumerate(powers)]
        k = sum(left)
        # E prod u_j^(2 k_j) on the unit sphere
        log = math.lgamma(dimension / 2.0) - math.lgamma(dimension / 2.0 + k)
        log += float((gammaln(np.array(left) + 0.5) - 0.5 * math.log(math.pi)).sum())
        total += e**2 * math.exp(log)
    return times**2 * total


def _moved(product: tuple[int, ...], dimension: int, length: float) -> float:
    """Mean square of the gradient of all terms w_i w_j ... with these indices, over directions of w."""
    powers = tuple(sorted(Counter(product).values()))
    return _pattern(powers, dimension) * length ** (2 * len(product) - 2)
