"""Local reports of one category per person: three randomized responses and their frequency estimates.

Generalised randomized response, optimised unary encoding and optimised local hashing (Wang, Blocki, Li and Jha 2017),
with probabilities on the lattice of 2^-32. Proof: ``categories.proof.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.accounting.events import ApproximateDP, Event, RandomizedResponse
from dperm.privacy.boundary import observed_report
from dperm.privacy.local.one_bit import LATTICE, OneBit, lattice_floor, uniform32
from dperm.privacy.randomness import RandomSource
from dperm.types import BoolArray, FloatArray, IntArray
from dperm.validation import whole

__all__ = ["CategoryReport", "LocalHashing", "RandomizedCategory", "UnaryEncoding"]


_PRIME = (1 << 31) - 1


@dataclass(frozen=True)
class CategoryReport(ABC):
    """Reports one of ``n_categories`` categories, numbered from 0; any other number counts as category 0.

    Guarantee
    ---------
    The report is released to everyone and is epsilon-DP for the person, against any other category. Assumes one report
    per person.
    """

    epsilon: float
    n_categories: int

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", OneBit(self.epsilon).epsilon)
        object.__setattr__(self, "n_categories", whole("n_categories", self.n_categories, least=2, most=1 << 20))

    @property
    @abstractmethod
    def event(self) -> Event:
        """The privacy cost of one report for the person who sends it."""

    @property
    @abstractmethod
    def rates(self) -> tuple[float, float]:
        """Probability that a report supports a category, for the person's own category and for any other one."""

    @abstractmethod
    def report(self, categories: ArrayLike, source: RandomSource) -> Any:
        """Return the report of every person."""

    @abstractmethod
    def supports(self, reports: Any, category: int) -> BoolArray:
        """Return for every report whether it supports a category."""

    @abstractmethod
    def support(self, reports: Any) -> IntArray:
        """Count the reports that support every category."""

    def frequencies(self, support: ArrayLike, n: int) -> FloatArray:
        """Return unbiased estimates of the categories' shares among ``n`` people."""
        own, other = self.rates
        return (np.asarray(support, np.float64) / max(n, 1) - other) / (own - other)

    def variance(self, frequency: float, n: int) -> float:
        """Variance of the estimate of a category with this share among ``n`` people."""
        own, other = self.rates
        noise = frequency * own * (1.0 - own) + (1.0 - frequency) * other * (1.0 - other)
        return noise / (n * (own - other) ** 2)

    def _inside(self, categories: ArrayLike) -> IntArray:
        given = np.asarray(categories)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise InvalidInput("one whole number per person is needed.")
        return np.where((given >= 0) & (given < self.n_categories), given, 0).astype(np.int64)


@dataclass(frozen=True)
class RandomizedCategory(CategoryReport):
    """Generalised randomized response: the true category, or any other one; best for few categories.

    Refused where the 2^32 words of the lattice cannot give the own category more words than every other one. That takes
    thousands of categories at a small epsilon: use :class:`LocalHashing` there.

    >>> RandomizedCategory(1.0, 4).rates[0] > 0.47
    True
    """

    kind: ClassVar[str] = "randomized-category"

    def __post_init__(self) -> None:
        super().__post_init__()
        own, other = self.ratio
        # the others' share is rounded up, at the expense of the own one
        if own <= other:
            raise Unsupported(
                f"{self.n_categories} are too many categories for randomized response at epsilon {self.epsilon:g}; use "
                "LocalHashing."
            )

    @cached_property
    def floor(self) -> int:
        """Number of lattice points of each category that is not the person's."""
        return lattice_floor(self.epsilon, self.n_categories)

    @property
    def event(self) -> Event:
        return RandomizedResponse(self.epsilon, self.n_categories)

    def law(self, category: int) -> tuple[int, ...]:
        """Return how many words give every category to a person with this one; private."""
        own = int(self._inside([category])[0])
        return tuple(self.ratio[0] if c == own else self.floor for c in range(self.n_categories))

    @property
    def ratio(self) -> tuple[int, int]:
        """The largest ratio of two people's probabilities of an answer, as two whole numbers."""
        return LATTICE - (self.n_categories - 1) * self.floor, self.floor

    @property
    def least(self) -> tuple[int, ...]:
        """Number of words, of 2^32, that give each category, whichever the person has."""
        return (self.floor,) * self.n_categories

    @property
    def extremes(self) -> tuple[int, int]:
        """Number of words, of 2^32, that give a category to a person who has it and to one who has another."""
        return self.ratio

    @property
    def rates(self) -> tuple[float, float]:
        return 1.0 - (self.n_categories - 1) * self.floor / LATTICE, self.floor / LATTICE

    @observed_report
    def report(self, categories: ArrayLike, source: RandomSource) -> IntArray:
        own = self._inside(categories)
        # the words below (n_categories - 1) floor are the others', floor for each in turn
        step = uniform32(own.size, source).astype(np.int64) // self.floor + 1
        return np.where(step < self.n_categories, (own + step) % self.n_categories, own)

    def supports(self, reports: Any, category: int) -> BoolArray:
        return np.asarray(self._inside(reports) == category)

    def support(self, reports: Any) -> IntArray:
        return np.bincount(self._inside(reports), minlength=self.n_categories)


@dataclass(frozen=True)
class UnaryEncoding(CategoryReport):
    """Optimised unary encoding: one bit per category, 1 with probability 1/2 for the own one; for more categories."""

    kind: ClassVar[str] = "unary-encoding"

    @cached_property
    def floor(self) -> int:
        """Number of lattice points at which the bit of another category is 1."""
        return lattice_floor(self.epsilon)

    @property
    def event(self) -> Event:
        return ApproximateDP(self.epsilon)

    @property
    def rates(self) -> tuple[float, float]:
        return 0.5, self.floor / LATTICE

    @observed_report
    def report(self, categories: ArrayLike, source: RandomSource) -> BoolArray:
        own = self._inside(categories)
        words = uniform32(own.size * self.n_categories, source).reshape(own.size, self.n_categories)
        thresholds = np.full(words.shape, self.floor, np.int64)
        thresholds[np.arange(own.size), own] = LATTICE // 2
        return words < thresholds

    def supports(self, reports: Any, category: int) -> BoolArray:
        return np.asarray(reports, np.bool_)[:, category]

    def support(self, reports: Any) -> IntArray:
        return np.asarray(np.count_nonzero(np.asarray(reports, np.bool_), axis=0), np.int64)


@dataclass(frozen=True)
class LocalHashing(CategoryReport):
    """Optimised local hashing: randomized response on a public random hash; a short report for many categories."""

    kind: ClassVar[str] = "local-hashing"

    @cached_property
    def _buckets(self) -> RandomizedCategory:
        # e^epsilon + 1 buckets give the smallest variance; beyond a few hundred nothing is gained
        return RandomizedCategory(self.epsilon, min(256, max(2, round(float(np.exp(self.epsilon))) + 1)))

    @property
    def event(self) -> Event:
        return self._buckets.event

    @property
    def ratio(self) -> tuple[int, int]:
        """The largest ratio of two people's probabilities of an answer, given the public key."""
        return self._buckets.ratio

    @property
    def least(self) -> tuple[int, ...]:
        """Number of words, of 2^32, that give each bucket, whichever the category."""
        return self._buckets.least

    @property
    def extremes(self) -> tuple[int, int]:
        """Number of words that give a bucket to a person whose category falls into it and to another person."""
        return self._buckets.extremes

    @property
    def rates(self) -> tuple[float, float]:
        return self._buckets.rates[0], 1.0 / self._buckets.n_categories

    def _hashed(self, keys: IntArray, categories: Any) -> IntArray:
        """Hash (a c + b) mod (2^31 - 1) to the buckets; ``keys`` holds a and b of every person."""
        return np.asarray((keys[:, 0] * categories + keys[:, 1]) % _PRIME % self._buckets.n_categories, np.int64)

    @observed_report
    def report(self, categories: ArrayLike, source: RandomSource) -> IntArray:
        """Return a, b and the bucket of every person; a and b do not depend on the category."""
        own = self._inside(categories)
        keys = (source.words(2 * own.size).reshape(-1, 2) >> np.uint64(2)).astype(np.int64) % _PRIME
        keys[:, 0] = np.maximum(keys[:, 0], 1)
        return np.column_stack([keys, self._buckets.report(self._hashed(keys, own), source)])

    def supports(self, reports: Any, category: int) -> BoolArray:
        given = np.asarray(reports, np.int64)
        return np.asarray(self._hashed(given, category) == given[:, 2])

    def support(self, reports: Any) -> IntArray:
        return np.array([int(self.supports(reports, c).sum()) for c in range(self.n_categories)], np.int64)
