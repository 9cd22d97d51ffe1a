"""Distributions over subsets of coordinates (or blocks of them), from which block methods draw what to update.

A sampling draws a random subset of {0..d-1}. ``proper`` means that every coordinate has a positive probability. The
draws are public and give no privacy amplification, because each step uses every person's record. Samplings of people
(Poisson batches) are in :mod:`dperm.queries.sampled`.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from typing import Any

import numpy as np

from dperm import validation
from dperm.errors import InvalidInput
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray

__all__ = [
    "ArbitrarySampling",
    "BlockSampling",
    "DistributedSampling",
    "ElementarySampling",
    "NiceSampling",
    "Sampling",
]

Subset = tuple[int, ...]

#: more subsets than this are not listed, to bound time and memory
_MOST_SUBSETS = 200_000


class Sampling(ABC):
    """Base of all samplings; subclass it to bring your own distribution."""

    d: int

    @abstractmethod
    def draw(self, source: RandomSource) -> Subset:
        """Return a random subset, sorted."""

    @abstractmethod
    def pairs(self) -> FloatArray:
        """Matrix of P(i in S and j in S); its diagonal is :attr:`probabilities`."""

    @property
    def probabilities(self) -> FloatArray:
        """P(j in S) for every j."""
        return np.diag(self.pairs()).copy()

    @property
    def smallest_probability(self) -> float:
        """Smallest probability p_min of a coordinate; it sets the universal step of block Frank-Wolfe."""
        return float(self.probabilities.min())

    @abstractmethod
    def subsets(self) -> list[tuple[Subset, float]]:
        """Every subset with its probability, where there are few enough to list."""


def _whole(name: str, value: Any, most: int | None = None) -> int:
    """A whole number of 1 or more, of which 4.0 is one; a truncated 1.5 would sample another distribution."""
    if validation.is_finite_number(value) and float(value).is_integer():
        value = int(value)
    return validation.whole(name, value, most=most)


def _indices(values: Any) -> Subset:
    """The given indices as a tuple, in their order."""
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        raise InvalidInput(f"a subset of coordinates must contain whole numbers, not {values!r}.") from None


def _choose(d: int, k: int, source: RandomSource) -> list[int]:
    """Draw k different numbers below d, uniformly (Floyd's algorithm)."""
    chosen: set[int] = set()
    for top in range(d - k, d):
        candidate = source.below(top + 1)
        chosen.add(top if candidate in chosen else candidate)
    return sorted(chosen)


@dataclass(frozen=True)
class ElementarySampling(Sampling):
    """Every draw is the set of all coordinates."""

    d: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", _whole("d", self.d))

    def draw(self, source: RandomSource) -> Subset:
        return tuple(range(self.d))

    def pairs(self) -> FloatArray:
        return np.ones((self.d, self.d))

    @property
    def probabilities(self) -> FloatArray:
        return np.ones(self.d)

    def subsets(self) -> list[tuple[Subset, float]]:
        return [(tuple(range(self.d)), 1.0)]


@dataclass(frozen=True)
class ArbitrarySampling(Sampling):
    """Any finite distribution over subsets, given as (subset, probability) pairs.

    >>> sampling = ArbitrarySampling(3, (((0, 1), 0.5), ((1, 2), 0.5)))
    >>> sampling.probabilities.tolist()
    [0.5, 1.0, 0.5]
    """

    d: int
    distribution: tuple[tuple[Subset, float], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", _whole("d", self.d))
        subsets = tuple((tuple(sorted(_indices(subset))), float(q)) for subset, q in self.distribution)
        object.__setattr__(self, "distribution", subsets)
        if any(not s or len(set(s)) < len(s) or s[0] < 0 or s[-1] >= self.d for s, _ in subsets):
            raise InvalidInput("every subset of a sampling must be non-empty, without repeats and within 0..d-1.")
        if any(not q > 0.0 for _, q in subsets) or not math.isclose(sum(q for _, q in subsets), 1.0, rel_tol=1e-9):
            raise InvalidInput("the probabilities of a sampling must be positive and sum to 1.")
        if {j for s, _ in subsets for j in s} != set(range(self.d)):
            raise InvalidInput("a sampling must be proper: every coordinate needs a positive probability.")
        object.__setattr__(self, "_cumulative", list(accumulate(q for _, q in subsets)))

    def draw(self, source: RandomSource) -> Subset:
        cumulative: list[float] = self._cumulative  # type: ignore[attr-defined]
        u = (source.word() + 0.5) * 2.0**-64 * cumulative[-1]
        return self.distribution[min(bisect_right(cumulative, u), len(cumulative) - 1)][0]

    def pairs(self) -> FloatArray:
        out = np.zeros((self.d, self.d))
        for subset, q in self.distribution:
            out[np.ix_(subset, subset)] += q
        return out

    @property
    def probabilities(self) -> FloatArray:
        out = np.zeros(self.d)
        for subset, q in self.distribution:
            out[list(subset)] += q
        return out

    def subsets(self) -> list[tuple[Subset, float]]:
        return list(self.distribution)


class BlockSampling(ArbitrarySampling):
    """One block of a partition per draw; ``uniform`` and ``importance`` make the two usual ones.

    >>> BlockSampling.uniform(4, 2).probabilities.tolist()
    [0.5, 0.5, 0.5, 0.5]
    >>> BlockSampling.importance([1.0, 1.0, 2.0], n_blocks=3).probabilities.tolist()
    [0.25, 0.25, 0.5]
    """

    def __init__(self, blocks: Sequence[Sequence[int]], probabilities: Sequence[float]) -> None:
        flat = sorted(j for block in blocks for j in _indices(block))
        if not flat or flat != list(range(len(flat))):
            raise InvalidInput("blocks must be a partition of 0..d-1.")
        if len(blocks) != len(probabilities):
            raise InvalidInput(f"{len(blocks)} blocks need as many probabilities, not {len(probabilities)}.")
        distribution = tuple((tuple(block), q) for block, q in zip(blocks, probabilities, strict=True))
        super().__init__(len(flat), distribution)

    @classmethod
    def uniform(cls, d: int, n_blocks: int) -> BlockSampling:
        """Blocks of adjacent coordinates, equal in size and probability; ``n_blocks=d`` is serial sampling."""
        blocks = _equal_blocks(d, n_blocks)
        return cls(blocks, [1.0 / len(blocks)] * len(blocks))

    @classmethod
    def importance(cls, smoothness: Sequence[float] | FloatArray, n_blocks: int) -> BlockSampling:
        """Equal blocks, with probabilities proportional to the largest smoothness in the block (DP-SkGD paper)."""
        blocks = _equal_blocks(len(smoothness), n_blocks)
        if not all(math.isfinite(m) and m > 0.0 for m in smoothness):
            raise InvalidInput("importance sampling needs a positive, finite smoothness for every coordinate.")
        largest = [max(float(smoothness[j]) for j in block) for block in blocks]
        return cls(blocks, [m / sum(largest) for m in largest])


def _equal_blocks(d: int, n_blocks: int) -> list[range]:
    d = _whole("d", d)
    n_blocks = _whole("n_blocks", n_blocks, d)
    smaller, n_larger = divmod(d, n_blocks)
    ends = list(accumulate([smaller + 1] * n_larger + [smaller] * (n_blocks - n_larger), initial=0))
    return [range(start, stop) for start, stop in pairwise(ends)]


@dataclass(frozen=True)
class NiceSampling(Sampling):
    """tau-nice sampling: all subsets of size ``tau`` with equal probability."""

    d: int
    tau: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", _whole("d", self.d))
        object.__setattr__(self, "tau", _whole("tau", self.tau, self.d))

    def draw(self, source: RandomSource) -> Subset:
        return tuple(_choose(self.d, self.tau, source))

    def pairs(self) -> FloatArray:
        alone = self.tau / self.d
        both = alone * (self.tau - 1) / (self.d - 1) if self.d > 1 else alone
        out = np.full((self.d, self.d), both)
        np.fill_diagonal(out, alone)
        return out

    @property
    def probabilities(self) -> FloatArray:
        return np.full(self.d, self.tau / self.d)

    def subsets(self) -> list[tuple[Subset, float]]:
        count = math.comb(self.d, self.tau)
        if count > _MOST_SUBSETS:
            raise InvalidInput(f"this sampling has {count} subsets, too many to list.")
        return [(s, 1.0 / count) for s in combinations(range(self.d), self.tau)]


@dataclass(frozen=True)
class DistributedSampling(Sampling):
    """(K, tau)-distributed sampling: each of K parties draws ``tau`` of its own coordinates, independently.

    ``parts`` lists the coordinates of every party; parties of unequal size are allowed.
    """

    parts: tuple[Subset, ...]
    tau: int

    def __post_init__(self) -> None:
        parts = tuple(_indices(part) for part in self.parts)
        object.__setattr__(self, "parts", parts)
        flat = sorted(j for part in parts for j in part)
        if not flat or flat != list(range(len(flat))):
            raise InvalidInput("the parties' coordinates must be a partition of 0..d-1.")
        smallest = min(len(part) for part in parts)
        if smallest < 1:
            raise InvalidInput("every party needs at least one coordinate.")
        object.__setattr__(self, "tau", _whole("tau", self.tau, smallest))

    @property
    def d(self) -> int:  # type: ignore[override]
        return sum(len(part) for part in self.parts)

    def draw(self, source: RandomSource) -> Subset:
        return tuple(sorted(part[k] for part in self.parts for k in _choose(len(part), self.tau, source)))

    def pairs(self) -> FloatArray:
        out = np.outer(self.probabilities, self.probabilities)
        for part in self.parts:
            inner = NiceSampling(len(part), self.tau).pairs()
            out[np.ix_(part, part)] = inner
        return out

    @property
    def probabilities(self) -> FloatArray:
        out = np.empty(self.d)
        for part in self.parts:
            out[list(part)] = self.tau / len(part)
        return out

    def subsets(self) -> list[tuple[Subset, float]]:
        total = math.prod(math.comb(len(part), self.tau) for part in self.parts)
        if total > _MOST_SUBSETS:
            raise InvalidInput(f"this sampling has {total} subsets, too many to list.")
        out: list[tuple[Subset, float]] = [((), 1.0)]
        for part in self.parts:
            inner = list(combinations(part, self.tau))
            out = [(subset + pick, q / len(inner)) for subset, q in out for pick in inner]
        return [(tuple(sorted(subset)), q) for subset, q in out]
