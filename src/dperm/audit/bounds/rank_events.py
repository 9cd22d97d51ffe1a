"""Events {statistic beyond a rank}, and the exact test of a privacy claim by one of them.

The threshold is the a-th most extreme of the n results without the record. The probability U that a further such
result lies beyond it has a known distribution, Beta(a, n - a + 1), whatever the statistic. A claim bounds the
probability of the same event with the record by ``curve(U)``, and the number of hits among those results is binomial.
So the probability of as many hits is known too: no runs are spent on choosing a threshold, and no confidence has to be
divided between two error rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from dperm.audit.bounds.curves import Curve
from dperm.types import FloatArray, IntArray

__all__ = ["RankEvent", "event_ranks", "rank_events"]

#: standard normal quantiles at which the distribution of U is cut into cells. The tail grows with U, so its value at
#: the upper end of a cell times the cell's mass is an upper sum, and the p-value is never too small. Wide cells come
#: first; those in which the tail grows much are cut into ``_FINE`` narrow ones.
_REACH, _STEP, _FINE = 8.5, 0.05, 20
_NODES = np.linspace(-_REACH, _REACH, round(2.0 * _REACH / _STEP) * _FINE + 1)
#: mass between neighbouring nodes, from the smaller tail, so that nothing cancels
_MASSES = np.where(_NODES[1:] <= 0.0, np.diff(special.ndtr(_NODES)), -np.diff(special.ndtr(-_NODES)))
_WIDE_MASSES = _MASSES.reshape(-1, _FINE).sum(axis=1)
#: mass below the first node, which counts at its tail, and above the last, which counts in full
_OUTSIDE = float(special.ndtr(-_REACH))
#: a cell is cut if what it adds beyond its lower end is more than this share of the p-value, in all cells together
_COARSE = 1e-3
#: covers the rounding of sums and special functions
_ROUNDING_UP = 1.0 + 1e-9

#: thresholds stand at these normal quantiles of the results without the record, from the rarest to nearly all; closer
#: ones would say nearly the same (their counts correlate by .8 and more) and take their share of the confidence
_SPACING, _LAST = 0.5, -2.0


@dataclass(frozen=True)
class RankEvent:
    """The statistic lies beyond the ``rank``-th most extreme of ``n_absent`` results; ``hits`` of ``n_present`` do."""

    above: bool
    rank: int
    n_absent: int
    hits: int
    n_present: int

    def contradicts(self, curve: Curve, share: float) -> bool:
        """Whether the p-value is at most ``share``."""
        if self.hits == 0:
            return False
        # half of the time U is above its median, so half of the tail there is a lower bound that is quick to compute
        median = _without(self.rank, self.n_absent)[len(_NODES) // 2][None]
        return bool(0.5 * self._tails(curve(median))[0] <= share) and self.p_value(curve) <= share

    def p_value(self, curve: Curve) -> float:
        """Return an upper bound on the probability of as many hits under the claim."""
        if self.hits == 0:
            return 1.0
        ends, mean = self._sum(curve, upper=True)
        return min(1.0, _ROUNDING_UP * (mean + _OUTSIDE * float(ends[0])) + _OUTSIDE)

    def least_probability(self, curve: Curve) -> float:
        """Return a lower bound on the probability of as many hits if the curve is not only allowed but reached."""
        if self.hits == 0:
            return 1.0
        ends, mean = self._sum(curve, upper=False)
        return (mean + _OUTSIDE * float(ends[-1])) / _ROUNDING_UP

    def _sum(self, curve: Curve, upper: bool) -> tuple[FloatArray, float]:
        """Return the tails at the ends of the wide cells, and the sum of all cells with the tail at one end of each."""
        without = _without(self.rank, self.n_absent)
        ends = self._tails(curve(without[::_FINE]))
        highest = _WIDE_MASSES * ends[1:]
        cut = _WIDE_MASSES * np.diff(ends) > _COARSE * highest.sum() / highest.size
        wide = highest if upper else _WIDE_MASSES * ends[:-1]
        narrow_ends = without[1:] if upper else without[:-1]
        narrow = self._tails(curve(narrow_ends.reshape(-1, _FINE)[cut].ravel()))
        return ends, float(wide[~cut].sum() + _MASSES.reshape(-1, _FINE)[cut].ravel() @ narrow)

    def _tails(self, p: FloatArray) -> FloatArray:
        """Return the probabilities of as many hits if each has probability ``p``."""
        tails: FloatArray = special.betainc(self.hits, self.n_present - self.hits + 1, p)
        return tails

    def __str__(self) -> str:
        sides, passed = ("above", "below") if self.above else ("below", "above"), self.rank - 1
        missed, others = self.n_present - self.hits, self.n_absent - passed
        # told from the side where the two rates differ most: 1 in 1000 against 1 in 10, not 999 against 900
        ratio = (self.hits / self.n_present) / (max(passed, 0.5) / self.n_absent)
        other_ratio = (others / self.n_absent) / (max(missed, 0.5) / self.n_present)
        if other_ratio > ratio:
            return (
                f"{others} of {self.n_absent} results without the record lie {sides[1]} a threshold, "
                f"and {missed} of {self.n_present} results with it"
            )
        return (
            f"{self.hits} of {self.n_present} results with the record lie {sides[0]} a threshold, "
            f"and {passed} of {self.n_absent} results without it"
        )


def rank_events(present: IntArray, absent: IntArray) -> list[RankEvent]:
    """Return the events of both tails at a fixed list of ranks, which depends on the number of results only."""
    n = len(absent)
    ranks = event_ranks(n)
    found = []
    for above, sign in ((True, 1), (False, -1)):
        with_record, without = np.sort(sign * present), np.sort(sign * absent)
        hits = len(present) - np.searchsorted(with_record, without[n - ranks], side="right")
        found += [RankEvent(above, int(a), n, int(h), len(present)) for a, h in zip(ranks, hits, strict=True)]
    return found


@lru_cache(maxsize=64)
def event_ranks(n: int) -> IntArray:
    """Return ranks from 1 to most of n, evenly spaced in normal quantiles."""
    first = float(special.ndtri(n / (n + 1.0)))
    shares = special.ndtr(-np.arange(first, min(_LAST, first - _SPACING), -_SPACING))
    return np.unique(np.clip(np.rint(shares * (n + 1)), 1, n)).astype(np.int64)


@lru_cache(maxsize=256)
def _without(rank: int, n: int) -> FloatArray:
    """Return the quantiles of Beta(rank, n - rank + 1) at the nodes."""
    low, high = _NODES[: len(_NODES) // 2], _NODES[len(_NODES) // 2 :]
    b = n - rank + 1
    quantiles = [special.betaincinv(rank, b, special.ndtr(low)), special.betainccinv(rank, b, special.ndtr(-high))]
    return np.concatenate(quantiles)
