"""The one-bit report of Wang, Gaboardi and Xu (2018), Algorithm 3, repaired in two ways.

Kept for comparison with the published method: :class:`~dperm.privacy.local.one_bit.OneBit` has far less variance.
Proof: ``public_noise_bit.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import ApproximateDP
from dperm.privacy.boundary import observed_report
from dperm.privacy.local.one_bit import LATTICE, OneBit, printed_bit_refusal, uniform32
from dperm.privacy.randomness import RandomSource
from dperm.types import BoolArray, FloatArray, IntArray

__all__ = ["REPAIRS", "PublicNoiseBit"]


#: which of the two parameters of the published bit is changed
REPAIRS = ("inner", "constant")


@dataclass(frozen=True)
class PublicNoiseBit:
    """A bit that is 1 with probability c f(y - v) / f(y), y public noise with the Laplace density f of scale 1/inner.

    If the bit is 1, the collector can use y as if it were v plus noise.

    Guarantee
    ---------
    The bit is released to everyone together with y, which does not depend on the person. For any two values in [0, 1]
    and any y the probability of either bit differs by a factor of at most exp(epsilon).

    Parameters
    ----------
    epsilon : float
        Between 0.001 and 16.
    repair : {"inner", "constant"}
        ``"inner"`` keeps c = 1/2 and uses inner = ln(2 - exp(-epsilon)); ``"constant"`` uses c = 1/(1 + exp(epsilon))
        and inner = epsilon. ``"printed"``, c = 1/2 with inner = epsilon, is refused; the error states its true cost.
    """

    epsilon: float
    repair: str = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", OneBit(self.epsilon).epsilon)
        if self.repair == "printed":
            raise printed_bit_refusal(self.epsilon)
        if self.repair not in REPAIRS:
            raise InvalidInput(f"repair must be one of {', '.join(REPAIRS)}, not {self.repair!r}.")

    @property
    def inner(self) -> float:
        """Inverse scale of the public noise."""
        return math.log(2.0 - math.exp(-self.epsilon)) if self.repair == "inner" else self.epsilon

    @property
    def constant(self) -> float:
        """Probability of a 1, averaged over the public noise."""
        return 0.5 if self.repair == "inner" else 1.0 / (1.0 + math.exp(self.epsilon))

    @property
    def event(self) -> ApproximateDP:
        """The privacy cost of one report for the person who sends it."""
        return ApproximateDP(self.epsilon)

    def public_noise(self, n: int, source: RandomSource) -> FloatArray:
        """Draw the public y of ``n`` people; the guarantee holds for any other numbers too."""
        words = source.words(n)
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return np.where(words & np.uint64(1), 1.0, -1.0) * -np.log(uniform) / self.inner

    def thresholds(self, values: ArrayLike, y: ArrayLike) -> IntArray:
        """Return how many of the 2^32 words make every person's bit a 1; private."""
        with np.errstate(all="ignore"):  # an error raised for some values only would reveal them
            v = np.fmin(np.fmax(np.asarray(values, np.float64), 0.0), 1.0)
            # y beyond 0 or 1 acts like the nearer end
            near = np.clip(np.asarray(y, np.float64), 0.0, 1.0)
            low, high, wanted = (
                LATTICE * self.constant * np.exp(self.inner * exponent)
                for exponent in (np.minimum(0.0, 2.0 * near - 1.0), near, near - np.abs(near - v))
            )
            # two points inwards: more than the rounding of these doubles
            inside = np.clip(np.rint(wanted), np.floor(low) + 2.0, np.ceil(high) - 2.0)
            return inside.astype(np.int64)

    @observed_report
    def report(self, values: ArrayLike, y: ArrayLike, source: RandomSource) -> BoolArray:
        """Return every person's bit, for values in [0, 1] and public noise y."""
        thresholds = self.thresholds(values, y)
        return uniform32(thresholds.size, source) < thresholds

    def decode(self, bits: ArrayLike, y: ArrayLike) -> FloatArray:
        """Return an unbiased estimate of every person's value."""
        return np.asarray(bits, np.float64) * np.asarray(y, np.float64) / self.constant

    def variance(self, value: float) -> float:
        """Variance of one decoded bit of a person with this value."""
        return (value**2 + 2.0 / self.inner**2) / self.constant - value**2
