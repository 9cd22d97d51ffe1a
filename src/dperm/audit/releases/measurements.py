"""What is measured of a release, and what it proves: exact tests of the noise that its charged event claims.

Every measurement has an exact distribution if the noise is as claimed, and an ordering: less noise makes it more
extreme. So its p-value is exact, noise that is larger than claimed raises no alarm, and the power follows in closed
form. Proofs: ``releases.proof.md``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy import special, stats

from dperm.testing.noise_tests import lag_p_value, nearness_p_value, share_below, too_small_p_value
from dperm.types import FloatArray, IntArray

__all__ = ["CLASSES", "Choices", "Measurement", "NoiseScale", "Samples", "Shares", "classes_of"]

#: noise factors are searched down to this one
_LEAST_FACTOR = 1e-3
#: classes of values under the noise, each of which must have all of it
CLASSES = ("on values that are exactly 0", "on values at their bound", "on other values")


def classes_of(given: FloatArray, bound: float) -> IntArray:
    """Return the place in ``CLASSES`` of each value that a mechanism gets."""
    return np.where(given == 0.0, 0, np.where(np.abs(given) >= bound, 1, 2)).ravel()


class Measurement(ABC):
    """Collected measurements of one kind, of one group of releases."""

    #: whether it measures a noise factor at all
    has_factor: ClassVar[bool] = True
    #: what a p-value at most the share of this measurement means, for readers
    finding: ClassVar[str]

    @abstractmethod
    def p_value(self) -> float:
        """Return the probability, if the noise is as claimed or larger, of a measurement as extreme as this one."""

    @abstractmethod
    def largest_factor(self, share: float) -> float:
        """Return an upper bound on noise / claimed noise that is wrong with probability ``share`` at most."""

    @abstractmethod
    def detectable(self, share: float, power: float = 0.95) -> float:
        """Return the largest noise factor that a p-value of ``share`` finds with probability ``power``; 0 if none."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of measured values."""


@dataclass
class NoiseScale(Measurement):
    """Noise in units of the claimed scale: the sum of squares (Gaussian) or of absolute values (Laplace)."""

    law: str = "gaussian"
    #: step of the lattice in the same units, at most
    step: float = 0.0
    parts: list[FloatArray] = field(default_factory=list)
    #: for each value of a part, the place in ``CLASSES`` of what lies under the noise
    classes: list[IntArray] = field(default_factory=list)

    finding: ClassVar[str] = "the noise is smaller than charged"

    def add(self, noise: FloatArray, classes: IntArray | None = None) -> None:
        """Add the noise of one release."""
        self.parts.append(np.asarray(noise, np.float64).ravel())
        self.classes.append(np.full(self.parts[-1].size, len(CLASSES) - 1) if classes is None else classes)

    @property
    def values(self) -> FloatArray:
        """All values."""
        return np.concatenate(self.parts) if self.parts else np.empty(0)

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def p_value(self) -> float:
        return float(self._cdf(self._total())) if self.size else 1.0

    def largest_factor(self, share: float) -> float:
        if not self.size:
            return math.inf
        return self._root(self._total() / self._quantile(share))

    def detectable(self, share: float, power: float = 0.95) -> float:
        return self._root(self._quantile(share) / self._quantile(power)) if self.size else 0.0

    def shape_p_value(self) -> float:
        """Return the p-value of a Kolmogorov-Smirnov test of the law, scale included; both too little and too much."""
        law = stats.laplace if self.law == "laplace" else stats.norm
        return float(stats.kstest(self.values, law.cdf).pvalue) if self.size else 1.0

    def repeats_p_value(self) -> float:
        """Return the p-value of a test that the noise of releases is independent: near ones, and any two."""
        near = lag_p_value(self.parts, self.law)
        return min(1.0, 2.0 * min(near, nearness_p_value(self.parts, self.law, self.step)))

    def missing_p_value(self) -> tuple[float, str]:
        """Return the p-value of a test that no release, no value and no class of values has less noise; and which."""
        values = self.values
        kinds = np.concatenate(self.classes) if self.classes else np.empty(0, np.int64)
        shares = share_below(values, self.law, self.step)
        found = []
        for kind, name in enumerate(CLASSES):
            of_kind = kinds == kind
            found.append((too_small_p_value(shares[of_kind]), name))
            found.append((self._cdf(self._total(np.abs(values[of_kind]) + self.step), int(of_kind.sum())), name))
        found += [(too_small_p_value(self._release_shares()), "in some releases")]
        found += [(too_small_p_value(shares), "in some values")]
        p, where = min(found, key=lambda one: one[0])  # the first of equal ones: it says most
        return min(1.0, len(found) * p), where

    def _release_shares(self) -> FloatArray:
        """Return the probability of noise as small as that of each release."""
        near = [np.abs(part) + self.step for part in self.parts]
        return np.array([self._cdf(self._total(one), one.size) for one in near])

    def _total(self, values: FloatArray | None = None) -> float:
        values = self.values if values is None else values
        return float(np.abs(values).sum() if self.law == "laplace" else (values**2).sum())

    def _cdf(self, total: float, n: int | None = None) -> float:
        n = self.size if n is None else n
        if n == 0:
            return 1.0
        return float(special.gammainc(n, total) if self.law == "laplace" else special.gammainc(n / 2.0, total / 2.0))

    def _quantile(self, p: float) -> float:
        n = self.size
        if self.law == "laplace":
            return float(special.gammaincinv(n, p))
        return 2.0 * float(special.gammaincinv(n / 2.0, p))

    def _root(self, ratio: float) -> float:
        return ratio if self.law == "laplace" else math.sqrt(ratio)


@dataclass
class Choices(Measurement):
    """Choices between two equal sides of which one was pushed: how often that one was taken.

    ``logit`` is the log odds of taking the pushed side under the claim; noise f times as large divides it by f. Choices
    of neither side are not counted.
    """

    logit: float = 0.0
    taken: int = 0
    asked: int = 0

    finding: ClassVar[str] = "the choice follows its scores more closely than charged"

    def add(self, right: int, asked: int = 1) -> None:
        """Count choices of the pushed side."""
        self.taken += right
        self.asked += asked

    @property
    def size(self) -> int:
        return self.asked

    def _chance(self, factor: float) -> float:
        return float(special.expit(min(self.logit / factor, 700.0)))

    def p_value(self) -> float:
        return float(stats.binom.sf(self.taken - 1, self.asked, self._chance(1.0))) if self.asked else 1.0

    def largest_factor(self, share: float) -> float:
        if not self.taken:
            return math.inf
        low = float(special.betaincinv(self.taken, self.asked - self.taken + 1, share))
        logit = float(special.logit(low))
        return self.logit / logit if logit > 0.0 else math.inf

    def detectable(self, share: float, power: float = 0.95) -> float:
        if not self.asked:
            return 0.0
        # the smallest number of hits that raises an alarm
        critical = int(stats.binom.isf(share, self.asked, self._chance(1.0))) + 1
        return _largest_found(lambda f: float(stats.binom.sf(critical - 1, self.asked, self._chance(f))), power)


@dataclass
class Shares(Measurement):
    """How many of the people were sampled, against the claimed rate; sampling has no noise factor."""

    rate: float = 1.0
    taken: int = 0
    asked: int = 0

    has_factor: ClassVar[bool] = False
    finding: ClassVar[str] = "more people are sampled than charged"

    def add(self, taken: int, asked: int) -> None:
        """Count sampled people."""
        self.taken += taken
        self.asked += asked

    @property
    def size(self) -> int:
        return self.asked

    def p_value(self) -> float:
        return float(stats.binom.sf(self.taken - 1, self.asked, self.rate)) if self.asked else 1.0

    def largest_factor(self, share: float) -> float:
        return math.inf

    def detectable(self, share: float, power: float = 0.95) -> float:
        return 0.0


@dataclass
class Samples:
    """An attack's statistic with and without the moved value."""

    present: list[float] = field(default_factory=list)
    absent: list[float] = field(default_factory=list)

    def add(self, statistic: float, present: bool) -> None:
        """Add one."""
        (self.present if present else self.absent).append(statistic)


def _largest_found(found: Callable[[float], float], power: float) -> float:
    """Return the largest factor in (0, 1) at which the chance ``found`` reaches ``power``; it falls with the factor."""
    if found(_LEAST_FACTOR) < power:
        return 0.0
    low, high = _LEAST_FACTOR, 1.0
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if found(middle) >= power else (low, middle)
    return low
