"""Local reports of one of a few levels: less noise than one bit once epsilon exceeds 1.

A discrete relative of the piecewise mechanism (Wang et al. 2019) on the lattice of
:mod:`dperm.privacy.local.one_bit`: all probabilities are whole multiples of 2^-32 and their ratios never exceed
exp(epsilon). Proof: ``few_levels.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dperm.errors import InvalidBudget, InvalidInput, Unsupported
from dperm.privacy.accounting.events import ApproximateDP
from dperm.privacy.boundary import observed_report
from dperm.privacy.local.one_bit import LATTICE, exp_lower_bound, public_range, uniform32
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray, IntArray
from dperm.validation import is_number, whole

__all__ = ["LEVELS_EPSILON_RANGE", "MOST_LEVELS", "FewLevels", "LevelTable"]

Rows = tuple[tuple[int, ...], ...]

#: smallest and largest epsilon of one report; below it the one-bit report is about as good
LEVELS_EPSILON_RANGE = (1.0, 16.0)
MOST_LEVELS = 16

_CHUNK = 1 << 18  # people at a time, to bound memory
#: shapes tried: how much likelier the outermost levels' least probability is than the middle's, in quarters
_TILTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
#: exp(epsilon) times the sum of all least probabilities, in thousandths, grows by this factor from shape to shape
_MASS_STEP = 1.04


@dataclass(frozen=True)
class LevelTable:
    """Probabilities of the levels for the values at a few knots; in between they are mixed linearly.

    Attributes
    ----------
    rows : tuple of tuples of int
        For the value of each knot, how many of the 2^32 words give each level; a row sums to 2^32.
    """

    rows: Rows

    def __post_init__(self) -> None:
        if len(self.rows) < 2 or len({len(row) for row in self.rows}) != 1:
            raise InvalidInput("a table of levels needs two rows or more of one length.")
        if any(sum(row) != LATTICE or min(row) < 1 for row in self.rows):
            raise InvalidInput("every row of a table of levels must hold positive whole numbers that sum to 2^32.")
        if any(second <= first for first, second in zip(self.moments, self.moments[1:], strict=False)):
            raise InvalidInput("the rows of a table of levels must be in the order of their means.")
        if self.moments[0] != -self.moments[-1]:
            raise InvalidInput("the means of a table's first and last row must be opposite.")

    @property
    def n_levels(self) -> int:
        """Number of levels."""
        return len(self.rows[0])

    @cached_property
    def moments(self) -> tuple[int, ...]:
        """Mean of every row, times 2^32, if the levels are spaced by 2 around 0."""
        shift = self.n_levels - 1
        return tuple(sum(count * (2 * level - shift) for level, count in enumerate(row)) for row in self.rows)

    @cached_property
    def knots(self) -> FloatArray:
        """The values of the rows, from -1 to 1."""
        return np.array([moment / self.moments[-1] for moment in self.moments])

    @cached_property
    def levels(self) -> FloatArray:
        """Decoded value of every level, so that the mean of a row is its knot."""
        shift = self.n_levels - 1
        return np.array([(2 * level - shift) * LATTICE / self.moments[-1] for level in range(self.n_levels)])

    @cached_property
    def second_moments(self) -> FloatArray:
        """Mean square of a report at every knot."""
        return np.array(self.rows, np.float64) / LATTICE @ self.levels**2

    @cached_property
    def worst_variance(self) -> float:
        """Largest variance of a report over all values."""
        return _worst_variance(np.array(self.rows, np.int64))

    @cached_property
    def least(self) -> tuple[int, ...]:
        """Number of words, of 2^32, that give each level for every value."""
        return tuple(min(column) for column in zip(*self.rows, strict=True))

    def satisfies(self, epsilon: float) -> bool:
        """Whether the probabilities of every level differ by at most exp(epsilon) between values, in whole numbers."""
        above, below = exp_lower_bound(epsilon)
        most = (max(column) for column in zip(*self.rows, strict=True))
        return all(high * below <= low * above for high, low in zip(most, self.least, strict=True))

    @cached_property
    def ratio(self) -> tuple[int, int]:
        """The largest ratio of two values' probabilities of a level, as two whole numbers."""
        most = [max(column) for column in zip(*self.rows, strict=True)]
        return max(zip(most, self.least, strict=True), key=lambda pair: pair[0] / pair[1])


def _sliding_run(least: list[int], above: int, below: int) -> IntArray | None:
    """Return rows that give every level its least share and the rest to a run of neighbouring levels.

    Each level of the run is filled up to its largest share; the run slides from left to right. There is a row wherever
    an end of the run meets an end of a level: in between, shares change linearly.
    """
    room = [count * above // below - count for count in least]
    ends = np.concatenate([[0], np.cumsum(np.array(room, np.int64))])
    rest = LATTICE - sum(least)
    last = int(ends[-1]) - rest
    if rest <= 0 or last <= 0:
        return None
    starts = np.unique(np.clip(np.concatenate([ends, ends - rest]), 0, last))[:, None]
    filled = np.minimum(ends[1:], starts + rest) - np.maximum(ends[:-1], starts)
    rows = np.array(least, np.int64) + np.maximum(filled, 0)
    _, first = np.unique(rows @ _spaced(len(least)), return_index=True)
    return rows[first] if first.size > 1 else None


def _spaced(n_levels: int) -> IntArray:
    return 2 * np.arange(n_levels, dtype=np.int64) - (n_levels - 1)


def _worst_variance(rows: IntArray) -> float:
    """Return the largest variance over all values, from -1 to 1, of reports that mix neighbouring rows."""
    level = _spaced(rows.shape[1])
    moments = rows @ level
    x = moments / moments[-1]
    square = (rows @ level**2) / LATTICE * (LATTICE / moments[-1]) ** 2
    slope = np.diff(square) / np.diff(x)
    # linear minus x^2 on every piece: largest where 2 x is the slope, or at an end
    at = np.clip(slope / 2.0, x[:-1], x[1:])
    return float(np.max(square[:-1] + slope * (at - x[:-1]) - at**2))


@lru_cache(maxsize=64)
def _best_table(epsilon: float, n_levels: int) -> LevelTable:
    """Return the table with the smallest worst-case variance among a grid of shapes, in whole numbers throughout."""
    above, below = exp_lower_bound(epsilon)
    shift = n_levels - 1
    shapes = [[4 * shift**6 + tilt * (2 * level - shift) ** 6 for level in range(n_levels)] for tilt in _TILTS]
    best: tuple[float, IntArray] | None = None
    # from the share of a bit that does not depend on the value, 2 e^eps / (e^eps + 1), up to one level for each value
    mass, most = 2000 * above // (above + below) + 1, 1000 * n_levels
    while mass <= most:
        total = LATTICE * mass * below // (1000 * above)
        here = math.inf
        for weights in shapes:
            rows = _sliding_run([max(1, total * weight // sum(weights)) for weight in weights], above, below)
            if rows is None:
                continue
            variance = _worst_variance(rows)
            here = min(here, variance)
            if best is None or variance < best[0]:
                best = variance, rows
        if best is not None and here > 1.5 * best[0]:
            break  # far beyond the best mass
        mass = math.ceil(mass * _MASS_STEP)
    if best is None:
        raise Unsupported(f"no table of {n_levels} levels was found at epsilon {epsilon:g}; send one bit instead.")
    table = LevelTable(tuple(tuple(int(count) for count in row) for row in best[1]))
    if not table.satisfies(epsilon):  # checked in every run, also where Python omits assertions
        raise Unsupported(f"the table of {n_levels} levels does not satisfy epsilon {epsilon:g}; send one bit instead.")
    return table


@dataclass(frozen=True)
class FewLevels:
    """Turns a person's value into one of a few levels.

    A value v, clipped to [low, high], is rounded at random to one of the two nearest knots; the level is drawn from
    that knot's row of a public :class:`LevelTable`. NaN counts as ``low``: every value is safe to report.

    Guarantee
    ---------
    The level is released to everyone. For any two values of the person the probability of any level differs by a factor
    of at most exp(epsilon), exactly. Assumes that the person reports once.

    Parameters
    ----------
    epsilon : float
        Between 1 and 16.
    n_levels : int
        Number of levels, 3 to 16; more of them have less variance and need more counters.

    Examples
    --------
    >>> from dperm.privacy.local.one_bit import OneBit
    >>> report = FewLevels(3.0)
    >>> report.table.satisfies(3.0), round(OneBit(3.0).gain**2 / report.gain**2, 1)
    (True, 3.9)
    """

    epsilon: float
    n_levels: int = MOST_LEVELS

    kind: ClassVar[str] = "few-levels"

    def __post_init__(self) -> None:
        low, high = LEVELS_EPSILON_RANGE
        if not is_number(self.epsilon):
            raise InvalidBudget(f"epsilon of a few-level report must be a number, not {type(self.epsilon).__name__}.")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        if not low <= self.epsilon <= high:
            raise InvalidBudget(
                f"epsilon of a few-level report must be between {low:g} and {high:g}, not {self.epsilon!r}; below "
                f"{low:g} send one bit."
            )
        object.__setattr__(self, "n_levels", whole("n_levels", self.n_levels, least=3, most=MOST_LEVELS))

    @cached_property
    def table(self) -> LevelTable:
        """The public table of probabilities."""
        return _best_table(self.epsilon, self.n_levels)

    @property
    def epsilon_realised(self) -> float:
        """Epsilon of the largest ratio in the table; at most ``epsilon``, up to the rounding of this number."""
        high, low = self.table.ratio
        return math.log(high / low)

    @property
    def event(self) -> ApproximateDP:
        """The privacy cost of one report for the person who sends it."""
        return ApproximateDP(self.epsilon)

    @property
    def gain(self) -> float:
        """Largest standard deviation of a decoded level, in halves of the range."""
        return math.sqrt(self.table.worst_variance)

    @property
    def ratio(self) -> tuple[int, int]:
        """The largest ratio of two values' probabilities of a level, as two whole numbers."""
        return self.table.ratio

    @property
    def least(self) -> tuple[int, ...]:
        """Number of words, of 2^32, that give each level for every value."""
        return self.table.least

    @property
    def extremes(self) -> tuple[int, int]:
        """Number of words, of 2^32, that give one of the upper levels for the highest and for the lowest value."""
        upper = self.n_levels // 2
        return sum(self.table.rows[-1][upper:]), sum(self.table.rows[0][upper:])

    @property
    def decoded(self) -> FloatArray:
        """Decoded value of every level, for a range of -1 to 1."""
        return self.table.levels

    @property
    def mean_square(self) -> float:
        """Largest mean square of a decoded level, for a range of -1 to 1."""
        return float(self.table.second_moments.max())

    @cached_property
    def _ends(self) -> IntArray:
        """Upper ends of the words that give each level but the last, per row."""
        return np.cumsum(np.array(self.table.rows, np.int64), axis=1)[:, :-1]

    def knots_of(
        self, values: ArrayLike, low: ArrayLike = -1.0, high: ArrayLike = 1.0
    ) -> tuple[IntArray, NDArray[np.uint64]]:
        """Return every person's lower knot and how many of the 2^32 words move it to the next one; private."""
        low, high = public_range(low, high)
        knots = self.table.knots
        with np.errstate(all="ignore"):  # an error raised for some values only would reveal them
            # fmax and fmin take the other argument of a NaN
            inside = np.fmin(np.fmax(np.asarray(values, np.float64), low), high)
            x = np.clip(2.0 * ((inside - low) / (high - low)) - 1.0, -1.0, 1.0)
            knot = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, knots.size - 2)
            part = np.clip((x - knots[knot]) / (knots[knot + 1] - knots[knot]), 0.0, 1.0)
            return knot.astype(np.int64), np.floor(part * LATTICE).astype(np.uint64)

    def law(self, value: float) -> tuple[int, ...]:
        """Return how many words give every level for this value; private."""
        knot, up = (int(part) for part in self.knots_of(value))
        rows = zip(self.table.rows[knot], self.table.rows[knot + 1], strict=True)
        return tuple((LATTICE - up) * here + up * there for here, there in rows)

    @observed_report
    def report(
        self, values: ArrayLike, source: RandomSource, low: ArrayLike = -1.0, high: ArrayLike = 1.0
    ) -> NDArray[np.uint8]:
        """Return every person's level, numbered from 0.

        Parameters
        ----------
        values : array_like of shape (n,)
            One private value per person.
        source : RandomSource
            Where the randomness comes from.
        low, high : float or array_like of shape (n,)
            Public range of the value.
        """
        values = np.asarray(values, np.float64)
        if values.ndim != 1:
            raise InvalidInput(f"one value per person is needed, not an array of {values.ndim} dimensions.")
        lows, highs = (np.broadcast_to(np.asarray(end, np.float64), values.shape) for end in (low, high))
        levels = np.empty(values.size, np.uint8)
        for start in range(0, values.size, _CHUNK):  # every person uses two words: the number of draws reveals nothing
            part = slice(start, start + _CHUNK)
            knot, up = self.knots_of(values[part], lows[part], highs[part])
            row = knot + (uniform32(knot.size, source) < up)
            word = uniform32(knot.size, source).astype(np.int64)
            found = np.zeros(knot.size, np.uint8)
            for ends in self._ends.T:
                found += word >= ends[row]
            levels[part] = found
        return levels

    def decode(self, levels: ArrayLike, low: ArrayLike = -1.0, high: ArrayLike = 1.0) -> FloatArray:
        """Return an unbiased estimate of every person's value; means of levels are decoded in the same way."""
        low, high = public_range(low, high)
        lowest, highest = self.decoded[0], self.decoded[-1]
        unit = lowest + (highest - lowest) * np.asarray(levels, np.float64) / (self.n_levels - 1)
        return np.asarray(low + (high - low) * (unit + 1.0) / 2.0)

    def variance(self, value: ArrayLike, low: ArrayLike = -1.0, high: ArrayLike = 1.0) -> FloatArray:
        """Variance of one decoded level of a person with this value."""
        low, high = public_range(low, high)
        x = 2.0 * (np.asarray(value, np.float64) - low) / (high - low) - 1.0
        square = np.interp(x, self.table.knots, self.table.second_moments)
        return np.asarray(((high - low) / 2.0) ** 2 * (square - x**2))

    def to_dict(self) -> dict[str, Any]:
        """Return what a client needs as plain data for JSON, so that no client recomputes the table."""
        return {"rows": [list(row) for row in self.table.rows], "knots": self.table.knots.tolist()}
