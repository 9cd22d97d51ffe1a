"""Gradient descent in rounds: disjoint groups of people are asked one after another, each person for one bit.

A person reports on one entry of the gradient at the current weights. There are as many statistics as weights, whereas
the moments of a one-shot collection grow with the square of the number of features, and no polynomial replaces the
loss. Proof: ``descent.proof.md``.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.local.few_levels import FewLevels
from dperm.privacy.local.one_bit import OneBit, uniform32
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local.forecasts import LocalForecast
from dperm.solvers.local.linear_models import LinearTask
from dperm.solvers.local.quadratic import kept_fraction, significance_threshold
from dperm.solvers.local.sketch import Sketch
from dperm.solvers.local.surrogates import logistic_curvature, margins, typical_length
from dperm.solvers.local.task import Counts, Task
from dperm.types import FloatArray, IntArray
from dperm.validation import non_negative, positive, whole

__all__ = ["DescentState", "GradientCoordinates", "LocalDescent", "mean_weight_variances"]

LOSSES = ("logistic", "squared")
MOST_ROUNDS = 10_000

#: factor of the step length; above 1 to allow for curvatures below their public guess
_STEP = 1.5
#: the significance threshold holds for curvatures down to this share of their public guess
_FLATTEST = 0.8
#: residuals are clipped here; only predictions outside the target's range exceed it
_RESIDUAL = 2.0
#: grid of feature magnitudes, relative to the reach; the largest gradient is bounded on each interval of the grid
_SIZES = np.linspace(0.0, 1.0, 513)


@dataclass(frozen=True)
class GradientCoordinates(Sketch):
    """One entry of the gradient of a person's loss at public weights.

    A record is y x with y = -1 or 1 (logistic loss), or the features x and, last, the target y in [-1, 1] (squared
    loss); x is scaled down to the unit ball and clipped to its reach.

    Parameters
    ----------
    at : tuple of float
        The public weights.
    reach : tuple of float
        Bound on every feature's magnitude, at most 1.
    loss : {"logistic", "squared"}
        The loss: ln(1 + exp(-y w.x)) or (y - w.x)^2 / 2, the latter with its slope clipped to [-2, 2], which no
        prediction inside the target's range reaches.
    """

    at: tuple[float, ...]
    reach: tuple[float, ...]
    loss: str = "logistic"

    kind: ClassVar[str] = "gradient"

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InvalidInput(f"loss must be one of {', '.join(LOSSES)}, not {self.loss!r}.")
        if self._w.ndim != 1 or not self._w.size or self._w.shape != self._reach.shape:
            raise InvalidInput("a gradient needs one weight and one reach per feature.")
        if not (np.isfinite(self._w).all() and ((self._reach > 0.0) & (self._reach <= 1.0)).all()):
            raise InvalidInput("weights must be finite and reaches above 0 and at most 1.")

    @cached_property
    def _w(self) -> FloatArray:
        return np.asarray(self.at, np.float64)

    @cached_property
    def _reach(self) -> FloatArray:
        return np.asarray(self.reach, np.float64)

    @property
    def n_columns(self) -> int:
        return self._w.size + (self.loss == "squared")

    @property
    def sizes(self) -> IntArray:
        return np.ones(self._w.size, np.int64)

    @property
    def weights(self) -> FloatArray:
        # the noise of an entry is proportional to its range: these shares minimise the mean squared error
        return self.high - self.low

    @cached_property
    def _ends(self) -> tuple[FloatArray, FloatArray]:
        """Bounds on every entry over all records in the ball: the largest over feature magnitudes r up to the reach."""
        r = _SIZES * self._reach[:, None]
        # the other features have the rest of the unit length; the worst case is that they point along their weights
        rest = np.sqrt(np.maximum(self._w @ self._w - self._w**2, 0.0))[:, None] * np.sqrt(1.0 - r[:, :-1] ** 2)
        along, most = self._w[:, None] * r, r[:, 1:]
        up, down = (np.maximum(sign * along[:, :-1], sign * along[:, 1:]) for sign in (1.0, -1.0))
        # a feature of magnitude r moves the score by w r, up or down depending on its sign
        low, high = (self._largest_slope(rest + own) for own in (down, up))
        return -(most * low).max(axis=1), (most * high).max(axis=1)

    def _largest_slope(self, score: FloatArray) -> FloatArray:
        """Largest slope of the loss at scores up to this one."""
        return expit(score) if self.loss == "logistic" else np.clip(1.0 + score, 0.0, _RESIDUAL)

    @property
    def low(self) -> FloatArray:
        return self._ends[0]

    @property
    def high(self) -> FloatArray:
        return self._ends[1]

    def evaluate(self, records: FloatArray, index: IntArray) -> FloatArray:
        x = records[:, : self._w.size]
        longest = np.maximum(np.abs(x).max(axis=1, keepdims=True), 1.0)
        length = longest * np.sqrt(((x / longest) ** 2).sum(axis=1, keepdims=True))
        inside = np.clip(x / np.maximum(length, 1.0), -self._reach, self._reach)
        own = inside[np.arange(len(inside)), index]
        score = (inside * self._w).sum(axis=1)
        values: FloatArray
        if self.loss == "squared":
            values = own * np.clip(score - np.clip(records[:, -1], -1.0, 1.0), -_RESIDUAL, _RESIDUAL)
        else:
            values = -own * expit(-score)
        return values


@dataclass(frozen=True)
class DescentState:
    """State of a descent between rounds; public, a function of the reports of earlier groups.

    ``variances`` holds the variances of every round's gradient, entry by entry; ``descent`` is the digest; ``secure``
    is False if a seeded source made some of the reports.
    """

    round: int
    weights: tuple[float, ...]
    total: tuple[float, ...]
    delay: float = 1.0
    n_people: int = 0
    descent: str = ""
    secure: bool = True
    variances: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class LocalDescent:
    """Gradient descent on a linear model with weights in a ball, one group of people per step.

    Guarantee
    ---------
    Released, to everyone: the weights after every round, and one index and one bit (or level) per person. A person
    takes part in one round only, chosen without looking at the record. The report is epsilon-DP for the person
    (``privacy/local/one_bit.proof.md``), whatever earlier groups answered. Proof: ``descent.proof.md``.

    Parameters
    ----------
    loss : {"logistic", "squared"}
        The loss.
    epsilon : float
        Epsilon of a report.
    reach : tuple of float
        Bound on every feature's magnitude.
    radius : float
        Bound on the length of the weights.
    curvatures : tuple of float
        A public guess of the curvature of the objective along every weight; steps are proportional to its inverse.
    n_rounds : int
        Number of groups.
    penalty : float
        Adds penalty / 2 times the squared weights to the objective; it is public and needs no reports.
    intercept : bool
        Whether the last weight is an intercept, which is not penalised.
    name : str
        Name of the tasks; the number of the round is added.
    n_levels : int
        2 for one bit per person, or 3 to 16 levels.
    inputs : dict, optional
        How a record is computed from a person's data; part of every task.
    version, window :
        As in every task.
    """

    loss: str
    epsilon: float
    reach: tuple[float, ...]
    radius: float
    curvatures: tuple[float, ...]
    n_rounds: int = 40
    penalty: float = 0.0
    intercept: bool = False
    name: str = "descent"
    n_levels: int = 2
    inputs: dict[str, Any] | None = None
    version: int = 1
    window: str | None = None

    def __post_init__(self) -> None:
        positive("radius", self.radius)
        if len(self.curvatures) != len(self.reach) or not all(0.0 < h < math.inf for h in self.curvatures):
            raise InvalidInput("curvatures must be positive finite numbers, one per weight.")
        non_negative("penalty", self.penalty)
        object.__setattr__(self, "n_rounds", whole("n_rounds", self.n_rounds, most=MOST_ROUNDS))
        zero = (0.0,) * len(self.reach)
        first = self.task(DescentState(0, zero, zero))  # refuses a bad task before anybody is asked
        # plain numbers, so that epsilon 1 and 1.0 have the same digest
        object.__setattr__(self, "epsilon", first.epsilon)
        object.__setattr__(self, "version", first.version)

    @classmethod
    def from_linear_task(
        cls, linear: LinearTask, mean_squares: FloatArray, n_rounds: int, penalty: float = 0.0
    ) -> LocalDescent:
        """Return a descent on the loss of a one-shot task; ``mean_squares`` are public guesses, one per feature."""
        if linear.n_outputs > 1:
            raise Unsupported(
                "solver='sgd' takes two classes or a regression: use solver='moments' for more than two classes."
            )
        curvature = 1.0
        if linear.loss == "logistic":
            length = linear.typical_length * math.sqrt(float(mean_squares.sum()))
            curvature = logistic_curvature(margins(linear.dimension, length))
        penalties = np.full(linear.dimension, penalty)
        if linear.intercept:
            penalties[-1] = 0.0
        return cls(
            linear.loss,
            linear.epsilon,
            linear.reach,
            linear.radius,
            tuple((curvature * mean_squares + penalties).tolist()),
            n_rounds,
            penalty,
            linear.intercept,
            linear.name,
            linear.n_levels,
            linear.inputs,
            linear.version,
            linear.window,
        )

    def start(self) -> DescentState:
        """Return the state before anybody was asked."""
        zero = (0.0,) * len(self.reach)
        return DescentState(0, zero, zero, descent=self.digest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all public settings of the rounds; it identifies the descent in states and in a ledger."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def bit(self) -> OneBit | FewLevels:
        """The mechanism of every report."""
        return self.task(self.start()).bit

    def task(self, state: DescentState) -> Task:
        """Return the task of the next group."""
        sketch = GradientCoordinates(state.weights, self.reach, self.loss)
        name = f"{self.name}, round {state.round + 1} of {self.n_rounds}"
        return Task(name, self.epsilon, sketch, self.version, self.inputs, self.n_levels, self.window)

    def next_state(self, state: DescentState, counts: Counts) -> DescentState:
        """Return the state after the reports of a group were counted."""
        if state.round >= self.n_rounds:
            raise InvalidInput(f"all {self.n_rounds} rounds of this descent are over.")
        task = self.task(state)
        gradient, variance = task.means(counts)
        answered, height = counts.n > 0, np.asarray(self.curvatures)
        weights = np.asarray(state.weights)
        penalised = self.penalty * weights
        if self.intercept:
            penalised[-1] = 0.0
        direction = (np.where(answered, gradient, 0.0) + penalised) / height
        delay = state.delay
        if state.round == 0 and answered.any():
            # a smaller first step, so that noise alone does not move the weights out of the ball
            noise = math.sqrt(float((variance / height**2)[answered].sum()))
            delay = max(1.0, 2.0 * noise / self.radius)
        weights = weights - _STEP / (state.round + delay) * direction
        weights *= min(1.0, self.radius / max(float(np.linalg.norm(weights)), 1e-300))
        # the average weights each round by its number
        total = np.asarray(state.total) + (state.round + 1) * weights
        return DescentState(
            state.round + 1,
            tuple(weights.tolist()),
            tuple(total.tolist()),
            delay,
            state.n_people + counts.n_people,
            state.descent,
            state.secure and counts.secure,
            (*state.variances, tuple(np.where(answered, variance, 0.0).tolist())),
        )

    def estimate(self, state: DescentState) -> FloatArray:
        """Return the mean of all weights so far, each weighted by the number of its round."""
        return np.asarray(state.total) / max(1, state.round * (state.round + 1) // 2)

    def shrunk(self, state: DescentState) -> tuple[FloatArray, float]:
        """Return the mean weights, shrunk by the known noise of all rounds, and the fraction that was kept (0 to 1)."""
        weights, height = self.estimate(state), np.asarray(self.curvatures)
        noise, null = (
            mean_weight_variances(state.variances, state.delay, share) / height for share in (1.0, _FLATTEST)
        )
        kept = kept_fraction(float(height @ weights**2), float(noise.sum()), null)
        return kept * weights, kept

    def run(self, records: ArrayLike, source: RandomSource) -> DescentState:
        """Simulate the whole descent with one person per record, each in one group drawn at random."""
        state = self.start()
        checked = self.task(state).sketch.records(records)
        group = uniform32(len(checked), source).astype(np.uint64) * np.uint64(self.n_rounds) >> np.uint64(32)
        order = np.argsort(group, kind="stable")
        ends = np.searchsorted(group[order], np.arange(self.n_rounds + 1, dtype=np.uint64))
        for first, last in pairwise(ends):
            state = self.next_state(state, self.task(state).collect(checked[order[first:last]], source))
        return state

    def forecast(self, n: int) -> LocalForecast:
        """Forecast the excess loss of a fit with ``n`` people, before anybody is asked."""
        n = whole("n", n)
        length = typical_length(self.loss, self.radius, self.reach, self.intercept)
        typical = GradientCoordinates((length / math.sqrt(len(self.reach)),) * len(self.reach), self.reach, self.loss)
        gain = self.bit.gain
        width, height = typical.high - typical.low, np.asarray(self.curvatures)
        # an entry is drawn in proportion to its width
        noise = width * width.sum() * (gain / 2.0) ** 2 / height
        # variance of the mean weights relative to one gradient over all people, for rounds of equal noise
        equal = ((1.0,),) * self.n_rounds
        rounds, flat = (
            float(mean_weight_variances(equal, 1.0, share)[0]) * self.n_rounds for share in (1.0, _FLATTEST)
        )
        columns = len(self.reach) - self.intercept
        curvature = float(height[:columns].mean())
        assumptions = (
            f"the objective has a curvature of {curvature:.3g} along the weight of a column",
            f"the best weights have length {length:.3g}, spread evenly over {columns} columns",
        )
        return LocalForecast(
            n=n,
            noise=rounds * float(noise.sum()) / (2.0 * n),
            bias=0.0,
            null_excess=curvature * length**2 / 2.0,
            degree=None,
            assumptions=assumptions,
            threshold_factor=flat / rounds * significance_threshold(noise) / float(noise.sum()),
            share_along_weights=float(noise[:columns].mean() / noise.sum()),
            dimension=len(self.reach),
        )


def mean_weight_variances(variances: tuple[tuple[float, ...], ...], delay: float, share: float) -> FloatArray:
    """Variances of the mean weights times the squared guessed curvatures, from those of every round's gradient.

    ``share`` is the true curvature relative to its guess: the smaller it is, the less a step reduces earlier noise.
    """
    own = both = total = np.zeros(len(variances[0]) if variances else 1)
    for number, noise in enumerate(variances):
        step, weight = _STEP / (number + delay), number + 1.0
        left = 1.0 - step * share
        own = left**2 * own + step**2 * np.asarray(noise)
        total = total + 2.0 * weight * left * both + weight**2 * own
        both = left * both + weight * own
    return np.asarray(total / max(1.0, len(variances) * (len(variances) + 1) / 2.0) ** 2)
