"""Gaussian noise on a sum over a secret Poisson sample of people.

Every person is in the sample with probability ``rate``, independently of the others and of earlier releases; the sample
itself is never released. Mechanism: Abadi et al. 2016 (arXiv 1607.00133). Cost:
``privacy/accounting/curves.proof.md``, proved for ``zero-out`` only. Proof of the sampling:
``queries/sampled.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import Event, Gaussian, PoissonGaussian
from dperm.privacy.mechanisms.lattice import Lattice
from dperm.privacy.mechanisms.standard import MECHANISMS, GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.types import BoolArray, FloatArray

__all__ = ["SampledGaussianNoise", "Summands", "poisson_sample"]


_SMALLEST_RATE = 2.0**-40  # far below one person in any table, far above the 2^-64 of a word


class Summands:
    """One private summand per person, to be summed over any subset; it never leaves its holder.

    Parameters
    ----------
    n_people : int
        Number of people who contribute.
    size : int
        Number of coordinates of the sum.
    total : callable
        Exact sum over the people where a boolean mask is True.
    """

    __slots__ = ("_total", "n_people", "size")

    def __init__(self, n_people: int, size: int, total: Callable[[BoolArray], FloatArray]) -> None:
        self.n_people = n_people
        self.size = size
        self._total = total

    @classmethod
    def of_rows(cls, rows: FloatArray) -> Summands:
        """Use every row of an array as one person's summand."""
        return cls(len(rows), math.prod(rows.shape[1:]), lambda mask: np.asarray(rows[mask].sum(axis=0)))

    def total(self, mask: BoolArray) -> FloatArray:
        """Return the sum over the people in the mask."""
        if mask.shape != (self.n_people,) or mask.dtype != np.bool_:
            raise InvalidInput("a sample must be True or False for every person.")
        return self._total(mask)

    def __array__(self, *args: Any, **kwargs: Any) -> FloatArray:
        raise TypeError("summands are private and not an array: only a sampling mechanism may sum them.")

    def __reduce__(self) -> str:
        raise TypeError("summands are private and cannot be pickled.")

    def __repr__(self) -> str:
        return f"Summands(size={self.size})"


def poisson_sample(n: int, rate: float, source: RandomSource) -> BoolArray:
    """Sample each of ``n`` people with probability floor(rate 2^64) / 2^64, never more than ``rate``."""
    if rate == 1.0:
        return np.ones(n, np.bool_)
    threshold = int(Fraction(rate) * 2**64)  # exact: a double is a fraction
    taken: BoolArray = source.words(n) < np.uint64(threshold)
    return taken


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

    def apply(self, value: Any, sensitivity: float, bound: float, source: RandomSource) -> FloatArray:
        if not isinstance(value, Summands):
            raise InvalidInput("a sampled release needs a query that returns each person's summand separately.")
        total = value.total(poisson_sample(value.n_people, self.rate, source))
        return self._lattice(sensitivity, bound, value.size).release(total, source, self.sampler)


# registered here: the registry's module cannot import this one, which imports its base class
MECHANISMS[SampledGaussianNoise.kind] = SampledGaussianNoise
