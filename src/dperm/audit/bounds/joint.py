"""One test for several numbers of guesses at once: tighter than a share of the error for each.

Right guesses among the surest r form a walk as r grows. If each guess is right with probability q at most, the walk
stays below one with independent steps, whose probability to reach any of several limits is computed exactly.
"""

from __future__ import annotations

import numpy as np
from scipy import special
from scipy.optimize import brentq

from dperm.types import FloatArray, IntArray

__all__ = ["largest_epsilon", "surest"]

#: the bound is raised in steps of this epsilon, which are halved down to the last; a finer one would not be seen
_FIRST_STEP, _LAST_STEP = 0.1, 5e-4
_MOST_EPSILON = 40.0
#: probabilities below this are not followed, and count as having reached a limit
_IGNORED = 2e-16


def largest_epsilon(numbers: IntArray, correct: IntArray, alpha: float) -> float:
    """Return an epsilon up to which pure privacy is contradicted at error ``alpha`` by ``correct`` of ``numbers``.

    The test at epsilon rejects if the smallest binomial tail among the numbers of guesses is so small that the walk
    has a tail as small anywhere with probability ``alpha`` at most. Up to ``low`` this holds by Bonferroni's
    inequality. From there on an interval is passed if it holds for the walk of its upper end and the limits of its
    lower end, which is worse than anything in between. So every epsilon below the result is rejected.
    """
    low = _root(numbers, correct, alpha / len(numbers))
    high = _root(numbers, correct, alpha)
    step = _FIRST_STEP
    while step >= _LAST_STEP and low < high:
        upper = min(low + step, high)
        smallest = float(_tails(numbers, correct, upper).min())
        if _reached(numbers, _limits(numbers, smallest, low), upper) <= alpha:
            low = upper
        else:
            step /= 2.0
    return low


def surest(numbers: IntArray, correct: IntArray, epsilon: float) -> int:
    """Return the position of the number of guesses with the smallest tail."""
    return int(np.argmin(_tails(numbers, correct, epsilon)))


def _root(numbers: IntArray, correct: IntArray, level: float) -> float:
    """Return the largest epsilon at which the smallest tail is ``level`` at most; 0.0 if there is none."""

    def excess(epsilon: float) -> float:
        return float(_tails(numbers, correct, epsilon).min()) - level

    if excess(0.0) >= 0.0:
        return 0.0
    if excess(_MOST_EPSILON) <= 0.0:
        return _MOST_EPSILON
    return float(brentq(excess, 0.0, _MOST_EPSILON, xtol=1e-10))


def _tails(numbers: IntArray, correct: IntArray, epsilon: float) -> FloatArray:
    """Return the probabilities of as many successes among independent guesses."""
    tails = special.betainc(np.maximum(correct, 1), numbers - correct + 1, special.expit(epsilon))
    certain: FloatArray = np.where(correct > 0, tails, 1.0)
    return certain


def _limits(numbers: IntArray, level: float, epsilon: float) -> IntArray:
    """Return for each number the fewest right guesses whose tail is ``level`` at most, or fewer."""
    guess = special.bdtrik(1.0 - level, numbers, special.expit(epsilon))
    # the inverse is approximate: start above it and go down while the tail stays small; number + 1 is never reached
    limits: IntArray = np.minimum(np.nan_to_num(guess).astype(np.int64) + 2, numbers + 1)
    while (lower := (limits > 1) & (_tails(numbers, limits - 1, epsilon) <= level)).any():
        limits = limits - lower
    return limits


def _reached(numbers: IntArray, limits: IntArray, epsilon: float) -> float:
    """Return the probability that a walk with independent steps reaches any of the limits."""
    alive, lowest, made, reached = np.ones(1), 0, 0, 0.0
    for number, limit in zip(numbers.tolist(), limits.tolist(), strict=True):
        first, steps = _increment(number - made, epsilon)
        alive = np.convolve(alive, steps)
        lowest, made = lowest + first, number
        below = max(limit - lowest, 0)
        reached += float(alive[below:].sum())
        alive = alive[:below]
        kept = int(np.searchsorted(np.cumsum(alive), _IGNORED))
        alive, lowest = alive[kept:], lowest + kept
        if len(alive) == 0:
            break
    # what was cut off, and the rounding of sums
    return reached + 4.0 * len(numbers) * _IGNORED + 1e-12


def _increment(n: int, epsilon: float) -> tuple[int, FloatArray]:
    """Return the first count and the probabilities of Binomial(n, q), without the farthest: less than _IGNORED in sum.

    By Bernstein's inequality the distance 9 s + 25, for a standard deviation s, is passed with probability
    2 exp(-37.5) at most.
    """
    q = float(special.expit(epsilon))
    reach = 9.0 * np.sqrt(n * q * (1.0 - q)) + 25.0
    first, last = max(int(n * q - reach), 0), min(int(n * q + reach) + 1, n)
    k = np.arange(first, last + 1)
    log = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    probabilities: FloatArray = np.exp(log + special.xlogy(k, q) + (n - k) * special.log_expit(-epsilon))
    return first, probabilities
