"""Gaussian noise on a sum over a secret Poisson sample of people.

Every person is in the sample with probability ``rate``, independently of the others and of earlier releases; the sample
itself is never released. Mechanism: Abadi et al. 2016 (arXiv 1607.00133). Cost:
``privacy/accounting/curves.proof.md``, proved for ``zero-out`` only. Proof of the sampling:
``queries/sampled.proof.md``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import Event, Gaussian, PoissonGaussian
from dperm.privacy.mechanisms.lattice import Lattice
from dperm.privacy.mechanisms.standard import MECHANISMS, GaussianNoise
from dperm.privacy.randomness import KeyedWords, RandomSource
from dperm.types import BoolArray, FloatArray

__all__ = ["ChosenPeople", "PoissonSample", "Sample", "SampledGaussianNoise", "Summands"]


_SMALLEST_RATE = 2.0**-40  # far below one person in any table, far above the 2^-64 of a word


class Sample(ABC):
    """Which people are summed; asked piece by piece, where their rows are."""

    @abstractmethod
    def people(self, start: int, stop: int) -> BoolArray:
        """Return True for the people who are in the sample, of those numbered from ``start`` up to ``stop``."""


@dataclass(frozen=True, repr=False)
class ChosenPeople(Sample):
    """The people where a mask is True."""

    mask: BoolArray

    def people(self, start: int, stop: int) -> BoolArray:
        return self.mask[start:stop]


@dataclass(frozen=True, repr=False)
class PoissonSample(Sample):
    """Each person with probability floor(rate 2^64) / 2^64, never more than ``rate``; the same in every split.

    One word of ``words`` decides about one person, so machines that hold different people need not be told who is in.
    """

    rate: float
    words: KeyedWords

    def people(self, start: int, stop: int) -> BoolArray:
        if self.rate == 1.0:
            return np.ones(stop - start, np.bool_)
        threshold = int(Fraction(self.rate) * 2**64)  # exact: a double is a fraction
        taken: BoolArray = self.words.words(start, stop) < np.uint64(threshold)
        return taken


class Summands:
    """One private summand per person, to be summed over any subset; it never leaves its holder.

    Parameters
    ----------
    n_people : int
        Number of people who contribute.
    size : int
        Number of coordinates of the sum.
    total : callable
        Exact sum over the people of a :class:`Sample`.
    """

    __slots__ = ("_total", "n_people", "size")

    def __init__(self, n_people: int, size: int, total: Callable[[Sample], FloatArray]) -> None:
        self.n_people = n_people
        self.size = size
        self._total = total

    @classmethod
    def of_rows(cls, rows: FloatArray) -> Summands:
        """Use every row of an array as one person's summand."""
        n_people = len(rows)

        def total(sample: Sample) -> FloatArray:
            return np.asarray(rows[sample.people(0, n_people)].sum(axis=0))

        return cls(n_people, math.prod(rows.shape[1:]), total)

    def total(self, sample: Sample | BoolArray) -> FloatArray:
        """Return the sum over the people of a sample, which may be a mask with True or False for every person."""
        if isinstance(sample, Sample):
            return self._total(sample)
        if sample.shape != (self.n_people,) or sample.dtype != np.bool_:
            raise InvalidInput("a sample must be True or False for every person.")
        return self._total(ChosenPeople(sample))

    def __array__(self, *args: Any, **kwargs: Any) -> FloatArray:
        raise TypeError("summands are private and not an array: only a sampling mechanism may sum them.")

    def __reduce__(self) -> str:
        raise TypeError("summands are private and cannot be pickled.")

    def __repr__(self) -> str:
        return f"Summands(size={self.size})"


@dataclass(frozen=True)
class SampledGaussianNoise(GaussianNoise):
    """Sums over a Poisson sample, then adds Gaussian noise on a lattice; sensitivity is one person's bound in L2.

    With ``rate=1`` everyone is taken and the event is that of plain Gaussian noise.
    """

    rate: float = 1.0

    kind: ClassVar[str] = "poisson-gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _SMALLEST_RATE <= self.rate <= 1.0:
            raise InvalidInput(f"rate must be in [2^-40, 1], not {self.rate!r}.")

    def event(self, replacement_ratio: float) -> Event:
        if self.rate == 1.0:
            return Gaussian(self.noise_multiplier, replacement_ratio)
        return PoissonGaussian(self.noise_multiplier, self.rate)

    def _lattice(self, sensitivity: float, bound: float, size: int) -> Lattice:
        return Lattice.design(sensitivity, self.noise_multiplier, size, bound, GaussianNoise.kind)

    def draw(self, value: Any, sensitivity: float, bound: float, source: RandomSource) -> FloatArray:
        if not isinstance(value, Summands):
            raise InvalidInput("a sampled release needs a query that returns each person's summand separately.")
        total = value.total(PoissonSample(self.rate, source.keyed_words()))
        return self._lattice(sensitivity, bound, value.size).release(total, source, self.sampler)


# registered here: the registry's module cannot import this one, which imports its base class
MECHANISMS[SampledGaussianNoise.kind] = SampledGaussianNoise
