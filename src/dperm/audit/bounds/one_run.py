"""Bounds from one run with many canaries, one number per canary. Proofs: ``bounds.proof.md``.

Each canary was put into the data or left out by a fair coin of its own, before the run. The attacker sees the result
of the run, gives every canary a score without knowing its coin, and guesses: the canaries with the highest scores were
in, those with the lowest were out, and for the others it abstains.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from scipy import special
from scipy.optimize import brentq

from dperm.audit.bounds import joint
from dperm.audit.bounds.results import LowerBound
from dperm.audit.bounds.samples import check_confidence, check_delta, pooled_ranks, share_of
from dperm.errors import InvalidInput
from dperm.privacy.accounting import gdp
from dperm.validation import whole

__all__ = ["decisive_counts", "decisive_counts_fdp", "one_run_bound", "one_run_fdp_bound"]

#: number of guesses, or the numbers of guesses "in" and "out", or None for the default
Guesses: TypeAlias = int | tuple[int, int] | None

_NAMES = ("scores_in", "scores_out")
_MOST_EPSILON = 40.0
#: where the p-value at delta above 0 is searched for its last crossing: it may first fall and then rise
_SCAN = 32
#: shares of the canaries that are guessed: rare sure guesses show a large epsilon, guesses of all a small one
_SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
#: where one test covers all numbers of guesses, more of them cost little
_FINE_SHARES = tuple(2.0 ** (-k / 2.0) for k in range(11))
#: part of the error that the term for delta may take from that test; else every number is tested for itself
_PART_FOR_DELTA = 1.0 / 3.0
#: fewer guesses cannot show anything at usual confidence
_FEWEST_GUESSES = 8


def one_run_bound(
    scores_in: Any, scores_out: Any, *, delta: float, confidence: float, n_guesses: Guesses = None
) -> LowerBound:
    """Return the largest epsilon shown at ``delta`` by one run, without any assumption about the method.

    Parameters
    ----------
    scores_in, scores_out : vectors of numbers
        Scores of the canaries that were in the data, and of those that were left out. Higher must mean "in".
    delta, confidence : float
        With probability ``confidence`` or more, the method is not (e, delta)-private for any e below the result.
    n_guesses : int or pair of int, optional
        Number of canaries that are guessed, half of them "in"; or how many are guessed "in" and how many "out". It
        must be chosen without looking at the coins. By default a fixed list of numbers is tried, which share the
        error.

    Notes
    -----
    The number of right guesses is compared with a binomial distribution (Steinke, Nasr & Jagielski 2023,
    arXiv 2305.08846); the term for delta is a smaller one, proved in ``bounds.proof.md``.
    """
    alpha, delta = check_confidence(confidence), check_delta(delta)
    guesses = _Guessing(scores_in, scores_out)
    m = guesses.n_canaries
    fine = _usual(m, _FINE_SHARES)
    failures = _failures(m, fine, delta)
    if n_guesses is None and failures <= _PART_FOR_DELTA * alpha:
        made, correct = (
            np.array([sum(number) for number in fine]),
            np.array([guesses.right(*number) for number in fine]),
        )
        epsilon = joint.largest_epsilon(made, correct, alpha - failures)
        detail = guesses.sentence(*fine[joint.surest(made, correct, epsilon)])
    else:
        numbers = _usual(m, _SHARES) if n_guesses is None else [guesses.asked(n_guesses)]
        epsilon, detail = guesses.best(
            numbers, alpha, lambda made, correct, share: _largest_epsilon(m, made, correct, delta, share)
        )
    return LowerBound(epsilon, delta, confidence, "one-run", f"{detail}.")


def one_run_fdp_bound(
    scores_in: Any, scores_out: Any, *, delta: float, confidence: float, n_guesses: Guesses = None
) -> LowerBound:
    """Return epsilon at ``delta`` of the largest mu of Gaussian DP that one run contradicts.

    Like :func:`~dperm.audit.bounds.gaussian_dp_bound` it assumes a Gaussian trade-off curve: it tests claims stated as
    mu-GDP, and is evidence under that assumption for others. The probability of so many right guesses is bounded
    by the recursion of Mahloujifar, Melis & Chaudhuri 2024 (arXiv 2410.22235). Parameters as for
    :func:`one_run_bound`.
    """
    alpha, delta = check_confidence(confidence), check_delta(delta)
    guesses = _Guessing(scores_in, scores_out)
    m = guesses.n_canaries
    numbers = _usual(m, _SHARES) if n_guesses is None else [guesses.asked(n_guesses)]
    mu, detail = guesses.best(numbers, alpha, lambda made, correct, share: _largest_mu(m, made, correct, share))
    epsilon = math.inf if delta == 0.0 and mu > 0.0 else gdp.epsilon_of(mu, delta, lower=True)
    return LowerBound(epsilon, delta, confidence, "one-run-fdp", f"{detail}: mu is at least {mu:.4g}.")


# ------------------------------------------------------------------------------------------------ guesses
class _Guessing:
    """The order of the canaries by score, and how many guesses from its two ends are right."""

    def __init__(self, scores_in: Any, scores_out: Any) -> None:
        inside, outside = pooled_ranks(scores_in, scores_out, _NAMES)
        self.n_canaries = len(inside) + len(outside)
        self._is_in = np.zeros(self.n_canaries, dtype=bool)  # from the lowest score to the highest
        self._is_in[inside] = True

    def right(self, n_in: int, n_out: int) -> int:
        """Return how many guesses are right if the highest are guessed in and the lowest out."""
        return int(self._is_in[self.n_canaries - n_in :].sum()) + n_out - int(self._is_in[:n_out].sum())

    def sentence(self, n_in: int, n_out: int) -> str:
        """Say how many guesses are right, without full stop."""
        return f"{self.right(n_in, n_out)} of {n_in + n_out} guesses about {self.n_canaries} canaries are right"

    def best(
        self, numbers: list[tuple[int, int]], alpha: float, largest: Callable[[int, int, float], float]
    ) -> tuple[float, str]:
        """Return the largest value over numbers of guesses, which share ``alpha``, and a sentence about it."""
        share = share_of(alpha, len(numbers))
        value, number = max((largest(sum(number), self.right(*number), share), number) for number in numbers)
        return value, self.sentence(*number)

    def asked(self, n_guesses: int | tuple[int, int]) -> tuple[int, int]:
        """Return the numbers that were asked for."""
        if isinstance(n_guesses, tuple):
            n_in, n_out = (whole("n_guesses", number, least=0) for number in n_guesses)
        else:
            n_in, n_out = (whole("n_guesses", n_guesses) + 1) // 2, n_guesses // 2
        if not 0 < n_in + n_out <= self.n_canaries:
            raise InvalidInput(f"n_guesses must be from 1 to the number of canaries, {self.n_canaries}.")
        return n_in, n_out


def _usual(m: int, shares: tuple[float, ...]) -> list[tuple[int, int]]:
    """Return numbers of guesses that depend on the number of canaries only, half "in"; each contains the last."""
    made = sorted({max(min(m, _FEWEST_GUESSES), round(share * m)) for share in shares})
    return [((number + 1) // 2, number // 2) for number in made]


# ------------------------------------------------------------------------------------------------ what decides
def decisive_counts(m: int, epsilon: float, delta: float, alpha: float) -> list[tuple[tuple[int, int], int]]:
    """Return, for numbers of guesses "in" and "out", how many right ones suffice to contradict (epsilon, delta).

    :func:`one_run_bound` with its usual numbers then exceeds epsilon, and perhaps with fewer too. Numbers of guesses
    that contradict nothing, even if all are right, are left out.
    """
    fine = _usual(m, _FINE_SHARES)
    failures = _failures(m, fine, delta)
    if failures <= _PART_FOR_DELTA * alpha:  # by Bonferroni's inequality, from which the joint test starts
        share = (alpha - failures) / len(fine)
        return _fewest(fine, lambda made, correct: _largest_epsilon(m, made, correct, 0.0, share) > epsilon)
    numbers = _usual(m, _SHARES)
    share = share_of(alpha, len(numbers))
    return _fewest(numbers, lambda made, correct: _largest_epsilon(m, made, correct, delta, share) > epsilon)


def decisive_counts_fdp(m: int, mu: float, alpha: float) -> list[tuple[tuple[int, int], int]]:
    """Return the same for :func:`one_run_fdp_bound` and a claim of mu-GDP."""
    numbers = _usual(m, _SHARES)
    share = share_of(alpha, len(numbers))
    return _fewest(numbers, lambda made, correct: _contradicted(m, made, correct, share, mu))


def _fewest(
    numbers: list[tuple[int, int]], contradicts: Callable[[int, int], bool]
) -> list[tuple[tuple[int, int], int]]:
    found = []
    for number in numbers:
        made = sum(number)
        too_few, enough = 0, made
        if not contradicts(made, made):
            continue
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            too_few, enough = (too_few, middle) if contradicts(made, middle) else (middle, enough)
        found.append((number, enough))
    return found


# ------------------------------------------------------------------------------------------------ (epsilon, delta)
def _failures(m: int, numbers: list[tuple[int, int]], delta: float) -> float:
    """Return the term for delta of a test of several numbers at once; see Lemma 2 of the proof."""
    return delta * m * sum(_influence(sum(number), 0.0) for number in numbers)


def _largest_epsilon(m: int, guesses: int, correct: int, delta: float, alpha: float) -> float:
    """Return the largest epsilon under which so many right guesses have probability ``alpha`` or less."""

    def pure(epsilon: float) -> float:
        return float(special.betainc(correct, guesses - correct + 1, special.expit(epsilon)))

    def failures(epsilon: float) -> float:
        influence = min(_influence(guesses, epsilon), _influence_of_total(guesses, correct, epsilon))
        return delta * m * influence

    if correct == 0 or pure(0.0) > alpha:
        return 0.0
    if pure(_MOST_EPSILON) <= alpha:
        return _MOST_EPSILON
    top = float(brentq(lambda e: pure(e) - alpha, 0.0, _MOST_EPSILON, xtol=1e-12))
    if delta == 0.0:
        return top
    if failures(top) > alpha:  # failures weigh more at a smaller epsilon
        return 0.0

    def excess(epsilon: float) -> float:
        return pure(epsilon) + failures(epsilon) - alpha

    above = top
    for below in np.linspace(top, 0.0, _SCAN + 1):
        if excess(below) < 0.0:
            return top if below == top else float(brentq(excess, below, above, xtol=1e-9))
        above = below
    return 0.0


def _influence(guesses: int, epsilon: float) -> float:
    """Return a bound on what a failure of pure epsilon, per unit of delta and canary, adds to the p-value.

    It is (1 - q) times the mean, over n from 0 to guesses - 1, of the largest probability of Binomial(n, q).
    """
    q = float(special.expit(epsilon))
    n = np.arange(guesses)
    mode = np.floor((n + 1) * q).clip(0, n)
    log = special.gammaln(n + 1) - special.gammaln(mode + 1) - special.gammaln(n - mode + 1)
    log += special.xlogy(mode, q) + (n - mode) * float(special.log_expit(-epsilon))
    return float(special.expit(-epsilon) * np.exp(log).mean())


def _influence_of_total(guesses: int, correct: int, epsilon: float) -> float:
    """Return the same by Theorem 5.2 of Steinke, Nasr & Jagielski 2023; smaller at high confidence and low epsilon."""
    q, i = special.expit(epsilon), np.arange(1, correct + 1)
    at_least = special.betainc(correct, guesses - correct + 1, q)
    # with i guesses less than needed; all of them less is certain
    nearly = np.append(special.betainc(correct - i[:-1], guesses - correct + i[:-1] + 1, q), 1.0)
    return float(2.0 * ((nearly - at_least) / i).max())


# ------------------------------------------------------------------------------------------------ Gaussian curves
def _largest_mu(m: int, guesses: int, correct: int, alpha: float) -> float:
    """Return the largest mu under which so many right guesses have probability below ``alpha``."""
    if not _contradicted(m, guesses, correct, alpha, 0.0):
        return 0.0
    low, high = 0.0, 1.0
    while _contradicted(m, guesses, correct, alpha, high):
        low, high = high, 2.0 * high
        if high > _MOST_EPSILON:
            return low
    while high - low > 1e-7 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _contradicted(m, guesses, correct, alpha, middle) else (low, middle)
    return low


def _contradicted(m: int, guesses: int, correct: int, alpha: float, mu: float) -> bool:
    """Whether mu-GDP rules out that ``correct`` or more guesses are right with probability ``alpha``.

    ``right`` and ``wrong`` are the probabilities that a random canary is guessed rightly, or wrongly, while at least i
    guesses are right in total: the smallest that the curve allows, from i = correct down. Together they would be the
    probability that a canary is guessed, which is known.
    """
    right, wrong = alpha * correct / m, alpha * (guesses - correct) / m
    limit = guesses / m * (1.0 + 1e-12)
    for i in range(correct - 1, -1, -1):
        needed = float(special.ndtr(special.ndtri(right) - mu))
        if needed <= wrong:
            return right + wrong > limit
        right += i / (guesses - i) * (needed - wrong)
        wrong = needed
        if right + wrong > limit:
            return True
    return False
