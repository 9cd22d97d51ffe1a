"""Tasks whose moments carry the squared or the logistic loss of a linear model, and what they can achieve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from dperm.errors import InvalidInput
from dperm.solvers.local.moments import Moments
from dperm.solvers.local.quadratic import Estimate, NoisyQuadratic
from dperm.solvers.local.sketch import FloatArray
from dperm.solvers.local.task import Counts, Task

__all__ = ["LinearTask", "LocalForecast", "logistic_curvature"]

LOSSES = ("logistic", "squared")

#: length of the weights, relative to the radius, for which a fit is forecast
_TYPICAL = 0.75


def logistic_curvature(margin: float) -> float:
    """Second derivative of the quadratic that fits ln(2 cosh(s / 2)) at the Chebyshev nodes of [-margin, margin].

    The logistic loss ln(1 + exp(-s)) is this even function minus s / 2.

    >>> round(logistic_curvature(2.0), 3), round(logistic_curvature(1e-3), 3)
    (0.216, 0.25)
    """
    nodes = margin * np.cos(np.pi * (np.arange(200) + 0.5) / 200.0)
    even = np.logaddexp(nodes / 2.0, -nodes / 2.0)
    square = nodes**2 - np.mean(nodes**2)
    return float(2.0 * square @ even / (square @ square))


@dataclass(frozen=True)
class LocalForecast:
    """What a collection is expected to achieve, before anybody is asked.

    Attributes
    ----------
    excess : float
        Expected excess of the quadratic surrogate over its minimum.
    null_excess : float
        The same for weights 0.
    people_needed : int
        Number of people from which a fit is expected to beat weights 0.
    assumes : tuple of str
        What was taken for granted.
    """

    n: int
    excess: float
    null_excess: float
    people_needed: int
    assumes: tuple[str, ...]

    @property
    def hopeless(self) -> bool:
        """True if weights 0 are expected to do as well."""
        return self.n < self.people_needed

    def people_for(self, target: float) -> int:
        """Number of people for this expected excess."""
        if not (isinstance(target, int | float) and target > 0.0):
            raise InvalidInput(f"the excess aimed at must be a number above 0, not {target!r}.")
        return math.ceil(self.excess * self.n / target)


@dataclass(frozen=True)
class LinearTask:
    """A collection for a linear model with weights in a ball.

    A record is the features x in the unit ball and, last, the target y in [-1, 1] (squared loss), or y x with y = -1 or
    1 alone (logistic loss). The objective is the mean of (y - w.x)^2 / 2, or of c (w.x)^2 / 2 - y w.x / 2, a quadratic
    surrogate of ln(1 + exp(-y w.x)) on margins up to ``margin``.

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
        Largest margin that the surrogate of the logistic loss is made for.
    intercept : bool
        Whether the last feature is the public constant ``reach[-1]``.
    name : str
        Name of the task.
    """

    loss: str
    epsilon: float
    reach: tuple[float, ...]
    radius: float
    margin: float
    intercept: bool = False
    name: str = "linear model"

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InvalidInput(f"loss must be one of {', '.join(LOSSES)}, not {self.loss!r}.")
        for what in ("radius", "margin"):
            if not 0.0 < getattr(self, what) < math.inf:
                raise InvalidInput(f"{what} must be a positive finite number, not {getattr(self, what)!r}.")

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return len(self.reach)

    @cached_property
    def curvature(self) -> float:
        """Second derivative of the objective in the margin."""
        return 1.0 if self.loss == "squared" else logistic_curvature(self.margin)

    @property
    def _slope_factor(self) -> float:
        return 1.0 if self.loss == "squared" else 0.5

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        """Entries of H that are asked for: the square of the intercept is public."""
        pairs = combinations_with_replacement(range(self.dimension), 2)
        last = self.dimension - 1
        return [pair for pair in pairs if not (self.intercept and pair == (last, last))]

    @cached_property
    def sketch(self) -> Moments:
        """The statistics: first d products with the target, then entries of H."""
        d = self.dimension
        n_columns = d + (self.loss == "squared")
        unit = np.eye(n_columns, dtype=int)
        first = [unit[i] + unit[d] if self.loss == "squared" else unit[i] for i in range(d)]
        exponents = [*first, *(unit[i] + unit[j] for i, j in self._pairs)]
        plain = Moments(
            tuple(tuple(int(e) for e in m) for m in exponents),
            (1.0,) * len(exponents),
            d,
            self.reach + (1.0,) * (n_columns - d),
        )
        # what a person's noise does to the gradient at typical weights, the best shares for its mean square
        effects = np.sqrt(self._effects(plain.high - plain.low, self._typical))
        return Moments(plain.exponents, tuple((effects / effects.sum()).tolist()), d, plain.reach)

    @property
    def _typical(self) -> float:
        """Square of one of the weights, if they are spread evenly."""
        return (_TYPICAL * self.radius) ** 2 / self.dimension

    def _effects(self, width: FloatArray, square: float) -> FloatArray:
        """Expected square of the gradient's error from an error of one width in each statistic."""
        touched = [1.0 if i == j else 2.0 for i, j in self._pairs]
        factor = np.concatenate(
            [np.full(self.dimension, self._slope_factor**2), self.curvature**2 * square * np.array(touched)]
        )
        return factor * width**2

    @cached_property
    def task(self) -> Task:
        """What people are asked."""
        return Task(self.name, self.epsilon, self.sketch)

    def quadratic(self, counts: Counts) -> NoisyQuadratic:
        """Return the objective as far as the counts tell."""
        means, variances = self.task.means(counts)
        # nobody answered: all that is known is the range
        variances = np.minimum(variances, ((self.sketch.high - self.sketch.low) * self.task.bit.gain) ** 2)
        d = self.dimension
        hessian, noise = np.zeros((d, d)), np.zeros((d, d))
        if self.intercept:
            hessian[-1, -1] = self.reach[-1] ** 2
        for (i, j), mean, variance in zip(self._pairs, means[d:], variances[d:], strict=True):
            hessian[i, j] = hessian[j, i] = mean
            noise[i, j] = noise[j, i] = variance
        half, c = self._slope_factor, self.curvature
        return NoisyQuadratic(c * hessian, half * means[:d], c**2 * noise, half**2 * variances[:d])

    def estimate(self, counts: Counts) -> Estimate:
        """Estimate the weights from counts."""
        return self.quadratic(counts).minimise(self.radius)

    def forecast(self, n: int, row_energy: float) -> LocalForecast:
        """Say what ``n`` people can achieve if a row's squares sum to ``row_energy`` on average, spread evenly."""
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InvalidInput(f"the number of people must be a whole number of 1 or more, not {n!r}.")
        sketch = self.sketch
        width = (sketch.high - sketch.low) * self.task.bit.gain / 2.0
        one_person = float((self._effects(width, self._typical) / np.asarray(sketch.shares)).sum())
        h = self.curvature * row_energy / self.dimension
        excess, null_excess = one_person / (2.0 * h * n), h * (_TYPICAL * self.radius) ** 2 / 2.0
        assumes = (
            f"a scaled row's squares sum to {row_energy:.3g} on average, evenly over {self.dimension} features",
            f"the best weights have length {_TYPICAL * self.radius:.3g}",
        )
        return LocalForecast(int(n), excess, null_excess, math.ceil(excess * n / null_excess), assumes)
