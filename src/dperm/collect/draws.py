"""How often each question was drawn: a test that recognises made-up reports, and counts without their surplus.

Devices draw questions with public probabilities, without looking at a record. Reports that somebody makes up on one
question stand out, and testing for them costs no privacy. Proof: ``draws.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from dperm.solvers.local import Counts, Task
from dperm.types import FloatArray, IntArray

__all__ = ["LEVEL", "DrawTest", "forged_weight", "trimmed_counts", "unmarked_weight"]

#: An estimate is marked below this probability. A collection of a million reports publishes about 700 estimates: an
#: honest collection is ever marked with probability below one in a thousand.
LEVEL = 1e-6

#: Once an estimate is marked, all bounds on honest reports hold together with probability 1 minus this. Tighter bounds
#: leave fewer made-up reports, and cost nothing as long as nobody makes any up.
_TRIM_LEVEL = 0.05
#: a smaller probability is stated as this one, which is still a number in every JSON reader
_LEAST = 1e-300
#: over-represented questions that a test names
_MOST_NAMED = 10
#: Each round uses the bounds of the one before. All rounds hold together, so any number is valid; few are needed.
_ROUNDS = 10


def forged_weight(share: float, probability: FloatArray | float) -> Any:
    """Return the weight of made-up reports in the mean of one question.

    Parameters
    ----------
    share : float
        Share of all reports that is made up, all of it on this question.
    probability : float or array
        Probability with which devices draw the question.
    """
    return share / (share + (1.0 - share) * np.asarray(probability))


def unmarked_weight(n_people: int, probabilities: FloatArray) -> FloatArray:
    """Return the weight that made-up reports may have in each question's mean and usually go unmarked.

    A surplus of z standard deviations is marked where the normal tail at z, bounded by exp(-z^2/2), times the factors
    of the test is below :data:`LEVEL`; half of the time chance adds nothing to it.
    """
    factors = 2.0 * 2.0 * len(probabilities)  # two bounds; two directions of every question
    expected = n_people * probabilities
    surplus = np.sqrt(2.0 * math.log(factors / LEVEL) * expected * (1.0 - probabilities))
    weight: FloatArray = surplus / np.maximum(expected + surplus, 1e-300)
    return weight


@dataclass(frozen=True)
class DrawTest:
    """A test of the hypothesis that every report's question was drawn with its public probability.

    Parameters
    ----------
    task : Task
        The questions.
    counts : Counts
        How often each was answered.
    """

    task: Task
    counts: Counts

    @cached_property
    def p(self) -> float:
        """Bound on the probability that honest devices draw questions as unevenly as this, valid for any counts.

        Twice the smaller one of two bounds: a binomial tail for the most unusual question, times the number of
        questions and directions; and a bound on the relative entropy of all frequencies together.
        """
        log = math.log(2.0) + min(self._single(), self._together())
        return max(_LEAST, math.exp(max(min(log, 0.0), math.log(_LEAST))))

    @property
    def suspicious(self) -> bool:
        """Whether the probability is below :data:`LEVEL`."""
        return self.p < LEVEL

    @property
    def most_drawn(self) -> list[dict[str, Any]]:
        """The questions with the largest surplus over what was expected, in standard deviations; largest first."""
        expected = self.counts.n_people * self.task.probabilities
        surplus = (self.counts.n - expected) / np.sqrt(np.maximum(expected * (1.0 - self.task.probabilities), 1e-300))
        first = np.argsort(-surplus, kind="stable")[:_MOST_NAMED]
        threshold = math.sqrt(2.0 * math.log(self.task.sketch.size / LEVEL))
        return [
            {"statistic": int(j), "reports": int(self.counts.n[j]), "expected": round(float(expected[j]), 1)}
            for j in first
            if surplus[j] > threshold
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        suspicious = self.suspicious
        return {
            "p": self.p,
            "level": LEVEL,
            "suspicious": suspicious,
            "most_drawn": self.most_drawn if suspicious else [],
            "statement": (
                "some questions were answered more often than devices draw them, so reports were made up: do not rely "
                "on this estimate. The trimmed estimate leaves the surplus out."
                if suspicious
                else "the questions were answered as often as devices draw them. Made-up reports that are spread over "
                "the questions like honest ones would not show."
            ),
        }

    def _single(self) -> float:
        """Logarithm of the smallest binomial tail of a question, times twice the number of questions."""
        n, people, size = self.counts.n, self.counts.n_people, self.task.sketch.size
        if people == 0 or size == 1:
            return 0.0
        # questions of a group have one probability, so the most unusual one of a group has most or fewest reports
        sizes = self.task.sketch.sizes
        starts = np.cumsum(sizes) - sizes
        p = self.task.probabilities[starts]
        most, fewest = np.maximum.reduceat(n, starts), np.minimum.reduceat(n, starts)
        above = _log_tail(stats.binom.sf(most - 1, people, p), most, people, p, most > people * p)
        below = _log_tail(stats.binom.cdf(fewest, people, p), fewest, people, p, fewest < people * p)
        return min(0.0, float(min(above.min(), below.min())) + math.log(2.0 * size))

    def _together(self) -> float:
        """Logarithm of the bound for the relative entropy of all frequencies (Agrawal 2020)."""
        free = self.task.sketch.size - 1
        seen = self.counts.n > 0
        n = self.counts.n[seen].astype(np.float64)
        entropy = float((n * np.log(n / (n.sum() * self.task.probabilities[seen]))).sum())
        if free == 0 or entropy <= free:
            return 0.0
        return -entropy + free * (1.0 + math.log(entropy / free))


def _log_tail(tail: FloatArray, n: IntArray, people: int, p: FloatArray, in_tail: Any) -> FloatArray:
    """Logarithm of a binomial tail; where it is too small for a double, of Chernoff's bound on it."""
    share = n / people
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(share < 1.0, (1.0 - share) * np.log((1.0 - share) / (1.0 - p)), 0.0)
        chernoff = -people * (np.where(share > 0.0, share * np.log(share / p), 0.0) + rest)
        return np.where(tail > _LEAST, np.log(tail), np.where(in_tail, chernoff, 0.0))


# ---------------------------------------------------------------------------------- counts without a surplus
def trimmed_counts(task: Task, counts: Counts) -> Counts:
    """Return counts in which no question has more reports than its public probability explains.

    Counts that are not suspicious are returned unchanged. Otherwise a question with more reports than honest devices
    can have sent keeps as many as are expected of them. Those that pull its mean away from the middle of its range most
    are left out, until the mean is in the middle, then any evenly.
    """
    if not DrawTest(task, counts).suspicious:
        return counts
    surplus = counts.n - _expected_honest(task, counts)
    answers, decoded = counts.by_answer.copy(), task.bit.decoded
    for j in np.flatnonzero(surplus > 0):
        answers[j] = _towards_middle(answers[j], int(surplus[j]), decoded)
    above = answers[:, 1] if task.n_levels == 2 else answers[:, 1:]
    return Counts(counts.task, answers.sum(axis=1), np.ascontiguousarray(above), counts.secure)


def _expected_honest(task: Task, counts: Counts) -> IntArray:
    """Expected number of honest reports on a question that has more than it can have; of any other, all its reports.

    The number of people is estimated from the other questions. The bound itself would keep made-up reports for all of
    its allowance for chance, several standard errors of the question's mean.
    """
    most = _most_honest(task, counts)
    over = counts.n > most
    # never empty: the question with the fewest reports for its probability is always within its bound
    people = counts.n[~over].sum() / task.probabilities[~over].sum()
    expected = np.rint(people * task.probabilities).astype(np.int64)
    kept: IntArray = np.where(over, np.minimum(expected, most), counts.n)
    return kept


def _most_honest(task: Task, counts: Counts) -> IntArray:
    """Bound on the number of honest reports on every question, whatever was added to them."""
    p, kept = task.probabilities, counts.n.astype(np.float64)
    log = math.log(3.0 * len(p) / _TRIM_LEVEL)
    people = math.inf
    for _ in range(_ROUNDS):
        total = float(kept.sum())
        fewer = min(
            total,
            float(_most_people(kept, p, log).min()),
            float(_most_people(total - kept, 1.0 - p, log).min()),
        )
        if fewer >= people:
            break
        people = fewer
        expected = people * p
        reach = log / 3.0 + np.sqrt(log**2 / 9.0 + 2.0 * log * expected * (1.0 - p))
        kept = np.minimum(kept, np.floor(expected + reach))
    return kept.astype(np.int64)


def _most_people(n: FloatArray, q: FloatArray, log: float) -> FloatArray:
    """Bound on the number of people if at most ``n`` drew questions of total probability ``q``; by Bernstein's bound.

    People times q exceeds n by at most log/3 + sqrt(log^2/9 + 2 log people q (1 - q)), solved for people.
    """
    a, b = n + log / 3.0, log * (1.0 - q)
    bound: FloatArray = (a + b + np.sqrt(b * (2.0 * a + b) + log**2 / 9.0)) / q
    return bound


def _towards_middle(answers: IntArray, surplus: int, decoded: FloatArray) -> IntArray:
    """Leave out ``surplus`` answers, so that the mean is as close to the middle of its range as possible."""
    left, most = answers.copy(), float(np.abs(decoded).max())
    while surplus > 0:
        total = float(left @ decoded)
        if abs(total) < most:  # in the middle: thin all answers evenly
            share = (left.sum() - surplus) / left.sum()
            thinned: IntArray = np.floor(left * share).astype(np.int64)
            missing = int(left.sum()) - surplus - int(thinned.sum())
            thinned[np.argsort(thinned - left * share, kind="stable")[:missing]] += 1
            return thinned
        side = decoded * np.sign(total)
        level = int(np.argmax(np.where(left > 0, side, -np.inf)))
        take = min(surplus, int(left[level]), math.ceil(abs(total) / float(side[level])))
        left[level] -= take
        surplus -= take
    return left
