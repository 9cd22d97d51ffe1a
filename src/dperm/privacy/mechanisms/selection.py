"""Private selection of the best of many scores by an exact Gumbel race.

Among candidates with scores u_j the winner is the largest of u_j / b + G_j with independent Gumbel G_j, so candidate j
wins with probability proportional to exp(u_j / b). Double arithmetic is only a filter: when the leader is too close to
another candidate, both get more random digits and are compared with as many digits as needed. The result is always
exact. Scores that change a few at a time are kept in a :class:`TwoLevelRace`, which draws from the
same law by inversion. See ``selection.proof.md``.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray, IntArray
from dperm.validation import positive

__all__ = ["TwoLevelRace", "decide_race", "gumbel_race", "race_scale"]

# Assumed relative error of division, log and log1p together; the tests measure about 1e-15.
LIBM_ERROR = 2e-13
_LOW, _HIGH = np.uint64(2**34), np.uint64(2**64 - 2**40)
_UP = 1.0 + 2.0**-49
_CHUNK = 1 << 15
_TOO_LARGE = "the scores are too large for their sensitivity to be compared in double precision."

#: leading digits of every candidate's draw as whole numbers, and how many bits they have
Digits = tuple[list[int], int]


def race_scale(sensitivity: float, noise_multiplier: float, slack: float = 0.0) -> float:
    """Gumbel scale b, rounded up, such that 2 sensitivity / b + slack <= 2 / noise_multiplier.

    ``slack`` bounds what inexact weights add to the range of the privacy loss.
    """
    positive("the sensitivity of scores", sensitivity)
    room = 2.0 / noise_multiplier - slack * _UP
    if room <= 0.0 or slack > 1e-3 * room:
        raise Unsupported(_TOO_LARGE)
    return 2.0 * sensitivity / room * _UP


def gumbel_race(scores: FloatArray, scale: float, source: RandomSource) -> int:
    """Return the index of the largest of ``scores / scale + Gumbel noise``, exactly distributed."""
    values = np.ascontiguousarray(scores, np.float64).ravel()
    if values.size == 1 and np.isfinite(values).all():
        return 0
    return decide_race(values, source.words(values.size), scale, source)[0]


def decide_race(
    values: FloatArray, words: NDArray[np.uint64], scale: float, source: RandomSource, more: Digits | None = None
) -> tuple[int, int, int]:
    """Return the winner of a race, the digits of its draw and how many bits they have; draws start with ``words``.

    ``more`` gives draws with more digits than those in ``words``; by default new digits are drawn when needed.
    """
    if values.size == 0 or not np.isfinite(values).all():
        raise InvalidInput("a race needs at least one score, and all of them finite.")
    keys = np.empty(values.size)
    largest = 0.0
    # a draw that rounds to 1 gives -inf here and is compared exactly below
    with np.errstate(divide="ignore", over="ignore"):
        for start in range(0, values.size, _CHUNK):
            part = slice(start, min(start + _CHUNK, values.size))
            logits = values[part] / scale
            if not np.isfinite(logits).all():
                raise InvalidInput("the scores are too large for their noise to be compared in double precision.")
            largest = max(largest, float(np.abs(logits).max()))
            # v uniform: -log1p(-v) is exponential; small v (the winners) keep their full relative precision
            v = (words[part].astype(np.float64) + 0.5) * 2.0**-64
            keys[part] = logits - np.log(-np.log1p(-v))
    leader = int(np.argmax(keys))
    reach = LIBM_ERROR * (66.0 + largest) + 2.0**-31
    # Draws next to 0 or 1 have too few digits for `reach`; their keys are still right to within 1 (or -inf next to 1).
    extreme = np.flatnonzero((words < _LOW) | (words >= _HIGH))
    margin = 1.0 if leader in extreme else 2.0 * reach
    certain_rivals = np.flatnonzero(keys >= keys[leader] - margin)
    extreme_rivals = extreme[
        (words[extreme] < _LOW) | (values[extreme] / scale >= keys[leader] - margin)  # a draw next to 1 lowers its key
    ]
    rivals = np.union1d(certain_rivals, extreme_rivals)
    known, bits = (words, 64) if more is None else more
    digits = {int(j): int(known[j]) for j in rivals}
    if rivals.size == 1:
        return leader, digits[leader], bits
    return _compare_exactly(digits, bits, values, scale, source)


def _compare_exactly(
    digits: dict[int, int], bits: int, values: FloatArray, scale: float, source: RandomSource
) -> tuple[int, int, int]:
    """Compare the rivals' keys with growing precision until one is certainly the largest."""
    while True:
        with mpmath.workprec(bits + 192):
            bounds = {}
            for j, drawn in digits.items():
                logit = mpmath.mpf(float(values[j])) / mpmath.mpf(scale)
                margin = (1 + abs(logit)) * mpmath.mpf(2) ** (-bits - 64)
                # key is decreasing in v, v in [drawn, drawn + 1) * 2^-bits
                low, high = -mpmath.inf, mpmath.inf
                if drawn + 1 < 2**bits:
                    low = logit - mpmath.log(-mpmath.log1p(-mpmath.ldexp(drawn + 1, -bits))) - margin
                if drawn > 0:
                    high = logit - mpmath.log(-mpmath.log1p(-mpmath.ldexp(drawn, -bits))) + margin
                bounds[j] = (low, high)
            best = max(bounds, key=lambda j: bounds[j][0])
            ahead = [j for j in bounds if bounds[j][1] >= bounds[best][0]]
            if ahead == [best]:
                return best, digits[best], bits
        digits = {j: (digits[j] << 64) | source.word() for j in ahead}
        bits += 64


class TwoLevelRace:
    """A selection with the law of a Gumbel race, for candidates whose scores change a few at a time.

    Candidates are divided into groups. A group is drawn in proportion to the total weight of its candidates, then a
    candidate in proportion to its own weight, exp(score / scale). A change recomputes only its groups, from their
    weights, so errors do not accumulate and the state after any sequence of updates equals a fresh build.

    Parameters
    ----------
    scores : array of shape (p,)
        Initial scores.
    sensitivity, noise_multiplier : float
        As for one selection; the scale covers the rounding of the weights.
    bound : float
        Public bound on the absolute scores; scores are clipped to it.
    """

    def __init__(self, scores: FloatArray, sensitivity: float, noise_multiplier: float, bound: float) -> None:
        values = np.ascontiguousarray(scores, np.float64).ravel()
        if values.size == 0 or not np.isfinite(values).all():
            raise InvalidInput("a race needs at least one score, and all of them finite.")
        self.size = values.size
        self.sensitivity, self.noise_multiplier, self.bound = float(sensitivity), float(noise_multiplier), float(bound)
        self.width, self.error, self.scale = self.public_parameters(values.size, sensitivity, noise_multiplier, bound)
        n_groups = -(-values.size // self.width)
        self._parts = np.zeros((n_groups, self.width))  # weights are part * 2^power; unused places of a group weigh 0
        self._powers = np.full((n_groups, self.width), -(2**62), np.int64)
        self._totals, self._tops = np.zeros(n_groups), np.zeros(n_groups, np.int64)
        self._stale = np.zeros(n_groups, np.bool_)
        self.update(np.arange(self.size), values)

    @staticmethod
    def public_parameters(
        size: int, sensitivity: float, noise_multiplier: float, bound: float
    ) -> tuple[int, float, float]:
        """Return group width, error of a log weight, and scale, from public numbers; refuses too large scores."""
        # groups smaller than sqrt(p): an update sums every group that it touches, a selection the groups' totals
        width = max(1, math.isqrt(max(size // 256, 1)))
        largest = bound / (sensitivity * noise_multiplier) * _UP  # the scale is no smaller than this product
        # rounding of the logit, of its reduction, of exp and of the sum of `width` terms
        error = 2.0**-52 * (4.0 * largest + width + 16.0)
        scale = race_scale(sensitivity, noise_multiplier, 4.0 * error)
        if largest > 2.0**60:  # powers of two are counted in 64 bits
            raise Unsupported(_TOO_LARGE)
        return width, error, scale

    def update(self, indices: NDArray[np.intp], scores: FloatArray) -> None:
        """Give the candidates at ``indices`` new scores; of several for one candidate the last counts."""
        from dperm.kernels.race import NOT_FINITE, OUTSIDE, update_weights  # compiled: only when needed

        done = update_weights(
            np.asarray(indices, np.int64), np.asarray(scores, np.float64), self.size, self.bound, self.scale,
            self._parts, self._powers, self._totals, self._tops, self._stale,
        )  # fmt: skip
        if done == NOT_FINITE:
            raise InvalidInput("a race needs finite scores.")
        if done == OUTSIDE:
            raise InvalidInput("an update names a candidate that is not in the race.")

    def scores(self) -> FloatArray:
        """Return the scores of all candidates, up to the rounding of their weights; private, for checks."""
        with np.errstate(divide="ignore"):
            logits = np.log(self._parts) + self._powers * np.log(2.0)
        scores = (self.scale * logits).ravel()
        return np.where(np.isfinite(scores), scores, 0.0)[: self.size]

    def select(self, source: RandomSource) -> int:
        """Return the winner."""
        words = source.words(2)
        group = _draw(self._totals, self._tops, int(words[0]), source)
        members = slice(min(self.width, self.size - group * self.width))
        chosen = _draw(self._parts[group, members], self._powers[group, members], int(words[1]), source)
        return group * self.width + chosen


def _draw(parts: FloatArray, powers: IntArray, word: int, source: RandomSource) -> int:
    """Return k with probability exactly in proportion to ``parts[k] * 2^powers[k]``; ``word`` is the first draw."""
    from dperm.kernels.race import UNDECIDED, locate

    found = int(locate(parts, powers, (word + 0.5) * 2.0**-64))
    return _draw_exactly(parts, powers, word, source) if found == UNDECIDED else found


def _draw_exactly(parts: FloatArray, powers: IntArray, digits: int, source: RandomSource) -> int:
    """Draw in whole numbers, with as many digits as needed."""
    halves = [math.frexp(part) for part in parts.tolist()]
    # weight = whole * 2^exponent, exactly
    wholes = [int(math.ldexp(half, 53)) for half, _ in halves]
    exponents = [int(power) + e - 53 for (_, e), power in zip(halves, powers.tolist(), strict=True)]
    n, top = len(wholes), max(exponents)
    bits = 64
    while True:
        shifts = [bits + 64 + e - top for e in exponents]
        # every weight lies in [low, low + 1) units, the point in [digits, digits + 1) 2^-bits of the total
        lows = [whole << s if s >= 0 else whole >> -s for whole, s in zip(wholes, shifts, strict=True)]
        total = sum(lows)
        least, most = digits * total, (digits + 1) * (total + n)
        below = 0
        for k, low in enumerate(lows):
            if k == n - 1 or most <= (below + low) << bits:
                if k == 0 or least >= (below + k) << bits:
                    return k
                break
            below += low
        digits = (digits << 64) | source.word()
        bits += 64
