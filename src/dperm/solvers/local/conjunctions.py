"""Low-degree polynomials that approximate "all of k bits are 1" in the parity basis: less noise for a small bias."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dperm.errors import InvalidInput
from dperm.types import FloatArray

__all__ = ["Conjunction", "best_conjunction", "conjunction", "krawtchouk"]


def krawtchouk(r: int, t: int, k: int) -> int:
    """Sum of the parities of all r-subsets of k bits, t of which are set.

    >>> [krawtchouk(1, t, 3) for t in range(4)]
    [3, 1, -1, -3]
    """
    return sum((-1) ** j * math.comb(t, j) * math.comb(k - t, r - j) for j in range(r + 1))


@dataclass(frozen=True)
class Conjunction:
    """A polynomial g of the number t of zeros among k bits, with g(0) = 1 and \\|g(t)\\| <= ``bias`` for t = 1, ..., k.

    ``weights[r]`` is the coefficient of every parity of r of the bits. Thaler, Ullman and Vadhan (2012) use the
    polynomial in another basis. Proof: ``conjunctions.proof.md``.
    """

    k: int
    weights: tuple[float, ...]
    bias: float

    @property
    def degree(self) -> int:
        """Degree of the polynomial."""
        return len(self.weights) - 1

    def levels(self, n_bits: int) -> FloatArray:
        """Contribution of the parities of each size to the standard deviation; the best shares are in proportion."""
        sizes = range(1, self.degree + 1)
        counts = [math.comb(self.k, r) * math.comb(n_bits, r) for r in sizes]
        return np.abs(self.weights[1:]) * np.sqrt(np.array(counts, np.float64))

    def deviation(self, n_bits: int, n: int, gain: float) -> float:
        """Standard deviation of one marginal of ``n`` people with the best shares."""
        return gain * float(self.levels(n_bits).sum()) / math.sqrt(n)


@lru_cache(maxsize=256)
def conjunction(k: int, degree: int) -> Conjunction:
    """Return the polynomial of this degree; degree k is exact."""
    if not 1 <= degree <= k:
        raise InvalidInput(f"degree must be between 1 and k = {k}, not {degree!r}.")
    if degree == k:
        values = [1.0] + [0.0] * k
    else:
        top = math.cosh(degree * math.acosh((k + 1) / (k - 1)))
        inside = [math.cos(degree * math.acos((k + 1 - 2 * t) / (k - 1))) / top for t in range(1, k + 1)]
        values = [1.0, *inside]
    weights = []
    for r in range(degree + 1):
        total = sum(math.comb(k, t) * values[t] * krawtchouk(r, t, k) for t in range(k + 1))
        weights.append(total / 2.0**k / math.comb(k, r))
    return Conjunction(k, tuple(weights), max(abs(value) for value in values[1:]))


def best_conjunction(k: int, n_bits: int, n: int, gain: float) -> Conjunction:
    """Return the polynomial with the smallest bound on the mean squared error for ``n`` people."""
    candidates = [conjunction(k, degree) for degree in range(1, k + 1)]
    # leave out degrees with more statistics than a task can have
    possible = [c for c in candidates if sum(math.comb(n_bits, r) for r in range(1, c.degree + 1)) <= 1 << 24]
    return min(possible, key=lambda c: c.bias**2 + c.deviation(n_bits, n, gain) ** 2)
