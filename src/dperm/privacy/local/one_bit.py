"""Local reports of one bit: each person randomises a value before sending it, so nobody else is trusted.

The bit of Duchi, Jordan and Wainwright (2018) with probabilities on the lattice k / 2^32, so that the likelihood ratio
of two people is a ratio of whole numbers and never exceeds exp(epsilon). Proof: ``one_bit.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dperm.errors import InvalidBudget, InvalidInput, Unsupported
from dperm.privacy.accounting.events import RandomizedResponse
from dperm.privacy.boundary import observed_report
from dperm.privacy.randomness import RandomSource
from dperm.types import BoolArray, FloatArray
from dperm.validation import is_number

__all__ = [
    "EPSILON_RANGE",
    "LATTICE",
    "OneBit",
    "exp_lower_bound",
    "lattice_floor",
    "printed_bit_epsilon",
    "printed_bit_refusal",
    "public_range",
    "uniform32",
]


#: number of points of the lattice of probabilities
LATTICE = 1 << 32
#: smallest and largest epsilon of one report
EPSILON_RANGE = (1e-3, 16.0)

_FRACTION_BITS = 160  # more than 100 bits stay correct after all terms are rounded down
_CHUNK = 1 << 20  # people at a time, to bound memory


def exp_lower_bound(epsilon: float) -> tuple[int, int]:
    """Return whole numbers whose ratio is at most exp(epsilon) and less than 2^-100 below it, for epsilon up to 16."""
    numerator, denominator = float(epsilon).as_integer_ratio()
    # a partial sum of the series of exp, every term rounded down
    term = total = 1 << _FRACTION_BITS
    k = 0
    while term:
        k += 1
        term = term * numerator // (denominator * k)
        total += term
    return total, 1 << _FRACTION_BITS


def lattice_floor(epsilon: float, n_values: int = 2) -> int:
    """Return the smallest t with (2^32 - (n_values - 1) t) / t <= exp(epsilon), in whole numbers, on the safe side.

    >>> lattice_floor(1.0) / 2**32  # doctest: +ELLIPSIS
    0.26894142...
    """
    above, below = exp_lower_bound(epsilon)  # a lower bound of exp, so the result errs upwards
    return -(-LATTICE * below // ((n_values - 1) * below + above))


def uniform32(n: int, source: RandomSource) -> NDArray[np.uint32]:
    """Return ``n`` independent uniform 32-bit words."""
    return source.words((n + 1) // 2).view(np.uint32)[:n]


@dataclass(frozen=True)
class OneBit:
    """Turns a person's value into one random bit.

    A value v in [low, high] becomes 1 with probability (t + floor(u (2^32 - 2 t))) / 2^32, u = (v - low)/(high - low),
    where t is the smallest whole number with (2^32 - t) / t <= exp(epsilon). Values outside are clipped, NaN counts as
    ``low``: every value is safe to report.

    Guarantee
    ---------
    The bit is released to everyone. For any two values of the person the probability of either bit differs by a
    factor of at most exp(epsilon), exactly. Assumes that the person reports once.

    Parameters
    ----------
    epsilon : float
        Between 0.001 and 16.

    Examples
    --------
    >>> bit = OneBit(1.0)
    >>> bit.floor, bit.epsilon_realised <= 1.0
    (1155094610, True)
    """

    epsilon: float

    kind: ClassVar[str] = "one-bit"
    n_levels: ClassVar[int] = 2

    def __post_init__(self) -> None:
        low, high = EPSILON_RANGE
        if not is_number(self.epsilon):
            raise InvalidBudget(f"epsilon of a one-bit report must be a number, not {type(self.epsilon).__name__}.")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        if not low <= self.epsilon <= high:
            raise InvalidBudget(
                f"epsilon of a one-bit report must be between {low:g} and {high:g}, not {self.epsilon!r}."
            )

    @cached_property
    def floor(self) -> int:
        """Number of lattice points, of 2^32, at which the bit is 1 for every value; as many give 0."""
        return lattice_floor(self.epsilon)

    @property
    def steps(self) -> int:
        """Number of lattice points at which the bit depends on the value."""
        return LATTICE - 2 * self.floor

    @property
    def epsilon_realised(self) -> float:
        """Epsilon of the ratio on the lattice; at most ``epsilon``, up to the rounding of this number."""
        return math.log((LATTICE - self.floor) / self.floor)

    @property
    def event(self) -> RandomizedResponse:
        """The privacy cost of one report for the person who sends it."""
        return RandomizedResponse(self.epsilon, 2)

    @property
    def ratio(self) -> tuple[int, int]:
        """The largest ratio of two values' probabilities of a bit, as two whole numbers."""
        return LATTICE - self.floor, self.floor

    @property
    def least(self) -> tuple[int, int]:
        """Number of words, of 2^32, that give 0 and 1 for every value."""
        return self.floor, self.floor

    @property
    def extremes(self) -> tuple[int, int]:
        """Number of words, of 2^32, that give 1 for the highest and for the lowest value."""
        return LATTICE - self.floor, self.floor

    @property
    def decoded(self) -> FloatArray:
        """Decoded values of a 0 and a 1, for a range of -1 to 1."""
        return np.array([-self.gain, self.gain])

    @property
    def gain(self) -> float:
        """Factor by which decoding widens a range: (e^epsilon + 1) / (e^epsilon - 1)."""
        return LATTICE / self.steps

    @property
    def mean_square(self) -> float:
        """Largest mean square of a decoded bit, for a range of -1 to 1."""
        return self.gain**2

    def thresholds(self, values: ArrayLike, low: ArrayLike = -1.0, high: ArrayLike = 1.0) -> NDArray[np.uint64]:
        """Return how many of the 2^32 words make every person's bit a 1; private."""
        low, high = public_range(low, high)
        with np.errstate(all="ignore"):  # an error raised for some values only would reveal them
            # fmax and fmin take the other argument of a NaN
            inside = np.fmin(np.fmax(np.asarray(values, np.float64), low), high)
            unit = (inside - low) / (high - low)
            return np.uint64(self.floor) + np.floor(unit * self.steps).astype(np.uint64)

    def law(self, value: float) -> tuple[int, ...]:
        """Return how many words give 0 and 1 for this value; private."""
        ones = int(self.thresholds(value))
        return LATTICE - ones, ones

    @observed_report
    def report(
        self, values: ArrayLike, source: RandomSource, low: ArrayLike = -1.0, high: ArrayLike = 1.0
    ) -> BoolArray:
        """Return every person's bit.

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
        bits = np.empty(values.size, np.bool_)
        for start in range(0, values.size, _CHUNK):  # every person uses one word: the number of draws reveals nothing
            part = slice(start, start + _CHUNK)
            thresholds = self.thresholds(values[part], lows[part], highs[part])
            bits[part] = uniform32(thresholds.size, source) < thresholds
        return bits

    def decode(self, bits: ArrayLike, low: ArrayLike = -1.0, high: ArrayLike = 1.0) -> FloatArray:
        """Return an unbiased estimate of every person's value; means of bits are decoded in the same way."""
        low, high = public_range(low, high)
        fraction = (LATTICE * np.asarray(bits, np.float64) - self.floor) / self.steps
        return np.asarray(low + (high - low) * fraction)

    def variance(self, value: ArrayLike, low: ArrayLike = -1.0, high: ArrayLike = 1.0) -> FloatArray:
        """Variance of one decoded bit of a person with this value."""
        low, high = public_range(low, high)
        middle = (np.asarray(value, np.float64) - (low + high) / 2.0) ** 2
        return np.asarray(((high - low) * self.gain / 2.0) ** 2 - middle)


def public_range(low: ArrayLike, high: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the ends of public ranges as arrays, after checking them."""
    lows, highs = np.asarray(low, np.float64), np.asarray(high, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        width = highs - lows
    if not (np.all(np.isfinite(width)) and np.all(width > 0.0)):
        raise InvalidInput("the range of a value needs finite ends with low below high.")
    return lows, highs


def printed_bit_epsilon(epsilon: float) -> float:
    """Return the true epsilon of the one-bit report printed by Wang, Gaboardi and Xu (2018), Algorithm 3.

    Its bit is 1 with probability f(y - v) / (2 f(y)), f the density of Laplace(1/epsilon) and y public, v in [0, 1].

    >>> round(printed_bit_epsilon(0.5), 3), printed_bit_epsilon(1.0)
    (1.046, inf)
    """
    spare = 2.0 - math.exp(epsilon)
    return -math.log(spare) if spare > 0.0 else math.inf


def printed_bit_refusal(epsilon: float) -> Unsupported:
    """Return the error that refuses the printed bit and states its true cost."""
    true = printed_bit_epsilon(epsilon)
    cost = "no finite epsilon" if math.isinf(true) else f"epsilon {true:.4g}"
    return Unsupported(
        f"the printed one-bit report at epsilon {epsilon:.4g} is not private as stated: the bit 0 costs {cost}; "
        "use a one-bit report on the lattice instead."
    )
