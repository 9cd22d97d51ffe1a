"""The pilot of an audit: tries all pairs of tables with few runs each, then the best ones with more.

Attacks learn their statistics on pilot runs and choose the most promising pair. What they prove rests on fresh runs
alone, which this class makes and shares among the attacks that chose the same pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dperm.audit.claim import Claim
from dperm.audit.pool import Pool
from dperm.audit.statistics import (
    Statistic,
    bit_statistics,
    density_statistics,
    discounted_separation,
    evidence,
    linear_statistics,
)
from dperm.audit.tables import TablePair, different_first
from dperm.errors import SubjectFailed
from dperm.types import FloatArray

__all__ = ["FEWEST_RUNS", "Choice", "Family", "Pilot"]

Family = Callable[[FloatArray, FloatArray], list[Statistic]]

#: part of the pilot's runs for the first look at all pairs
_FIRST_ROUND = 0.4
#: pairs of each family of statistics that get a second look
_KEPT = 3
#: fewer pairs are tried if there are fewer runs than this for each of their tables: they say little
_FEWEST = 40
#: the same for a claim of little loss: runs on each table times the squared separation that is claimed at most. Half of
#: them rank the pairs, so that the separation is then sqrt(8 / 2 / 2) = 1.4 standard errors of a difference of means
_FEWEST_SEPARATED = 8.0
#: with fewer pairs than this there is no choice; fewest runs on each table that statistics can be learnt from
_FEWEST_PAIRS, _FEWEST_AT_ALL = 3, 12
#: fewest runs of the pilot, and of the fresh ones after it
FEWEST_RUNS = 2 * _FEWEST_AT_ALL
#: a record outside the declared range must tell this much more: it is a weaker accusation
_OUTSIDE_COUNTS = 0.8


@dataclass(frozen=True)
class Choice:
    """A pair of tables and the statistics that told them apart best, the best first."""

    pair: TablePair
    statistics: tuple[Statistic, ...]


class Pilot:
    """Pilot and fresh runs on pairs of tables.

    Parameters
    ----------
    n_runs : int
        Runs of the whole pilot.
    """

    def __init__(self, pool: Pool, pairs: Sequence[TablePair], claim: Claim, n_runs: int) -> None:
        self._pool, self._pairs = pool, different_first(pairs)
        self._score = evidence if claim.mu is None else discounted_separation
        self._seen: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._fresh: dict[TablePair, tuple[FloatArray, FloatArray]] = {}
        self._error = ""
        tried = min(len(pairs), int(_FIRST_ROUND * n_runs) // (2 * self._fewest(claim)))
        #: whether all attacks share one pair, and so all fresh runs: a choice between few runs would be chance
        self.one_pair = tried < _FEWEST_PAIRS
        if self.one_pair:
            self._first_that_runs(n_runs // 2)
            return
        self._look(range(tried), int(_FIRST_ROUND * n_runs) // (2 * tried))
        if not self._seen:
            self._first_that_runs(_FEWEST)
        families = (linear_statistics, density_statistics, bit_statistics)
        best = {k for family in families for _, k, _ in self._ranked(family)[:_KEPT]}
        self._look(sorted(best), int((1.0 - _FIRST_ROUND) * n_runs) // (2 * len(best)))

    @staticmethod
    def _fewest(claim: Claim) -> int:
        """Return the fewest runs on each table of a pair with which a comparison of pairs is more than chance."""
        largest = claim.epsilon if claim.mu is None else claim.mu
        return max(_FEWEST, math.ceil(_FEWEST_SEPARATED / largest**2)) if largest > 0.0 else _FEWEST

    def _first_that_runs(self, n_runs: int) -> None:
        for k in range(len(self._pairs)):
            self._look([k], n_runs)
            if self._seen:
                return
        raise SubjectFailed(f"it fails on a table of every pair: {self._error}", raised=True)

    def _look(self, which: Sequence[int] | range, n_runs: int) -> None:
        for k in which:
            pair = self._pairs[k]
            try:
                found = self._pool.outputs_of([pair.first, pair.second], max(n_runs, _FEWEST_AT_ALL))
            except SubjectFailed as error:
                if not error.raised:
                    raise
                self._error = str(error)  # the attack on side channels looks at errors
                self._seen.pop(k, None)
                continue
            old = self._seen.get(k)
            both = found if old is None else [np.concatenate(parts) for parts in zip(old, found, strict=True)]
            self._seen[k] = (both[0], both[1])

    def _ranked(self, family: Family) -> list[tuple[float, int, list[str]]]:
        """Return pairs with their best score on held-out runs, and the names of the statistics; the best first."""
        ranked = []
        for k, (first, second) in self._seen.items():
            learnt = family(first[::2], second[::2])
            scores = [self._score(one.of(first[1::2]), one.of(second[1::2])) for one in learnt]
            order = np.argsort(-np.array(scores), kind="stable")
            weight = _OUTSIDE_COUNTS if self._pairs[k].outside else 1.0
            ranked.append((weight * max(scores, default=0.0), k, [learnt[i].name for i in order]))
        return sorted(ranked, key=lambda one: (-one[0], one[1]))

    def choose(self, family: Family, n_statistics: int) -> Choice:
        """Return the pair and the statistics of a family to take into the test, learnt again on all pilot runs."""
        _, k, names = self._ranked(family)[0]
        learnt = {one.name: one for one in family(*self._seen[k])}
        ordered = [learnt[name] for name in names if name in learnt] or list(learnt.values())
        return Choice(self._pairs[k], tuple(ordered[:n_statistics]))

    def seen(self, pair: TablePair) -> tuple[FloatArray, FloatArray]:
        """Return the pilot runs on both tables of a pair."""
        return self._seen[next(k for k in self._seen if self._pairs[k] is pair)]

    def fresh(self, pair: TablePair, n_runs: int) -> tuple[FloatArray, FloatArray]:
        """Return about ``n_runs`` fresh runs, half on each table; runs that another attack made count."""
        known = self._fresh.get(pair)
        missing = max(n_runs // 2, _FEWEST_AT_ALL) - (0 if known is None else len(known[0]))
        if missing > 0:
            found = self._pool.outputs_of([pair.first, pair.second], missing)
            both = found if known is None else [np.concatenate(parts) for parts in zip(known, found, strict=True)]
            self._fresh[pair] = (both[0], both[1])
        return self._fresh[pair]
