"""Choosing the best of many scores privately: the Gumbel race, exactly.

Among candidates with scores u_j the winner is the largest of u_j / b + G_j with independent Gumbel G_j, so candidate j
wins with probability proportional to exp(u_j / b). Double arithmetic only filters: when the leader cannot be told from
another candidate, both get more random digits and the comparison is made with as many digits as it needs. It never
fails and never guesses. See ``selection.proof.md``.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.randomness import RandomSource

__all__ = ["TwoLevelRace", "gumbel_race", "race_scale"]

# Assumed relative error of division, log and log1p together; the tests measure about 1e-15.
LIBM_ERROR = 2e-13
_LOW, _HIGH = np.uint64(2**34), np.uint64(2**64 - 2**40)
_UP = 1.0 + 2.0**-49
_CHUNK = 1 << 15

FloatArray = NDArray[np.float64]


def race_scale(sensitivity: float, noise_multiplier: float, slack: float = 0.0) -> float:
    """Gumbel scale b, rounded up, such that 2 sensitivity / b + slack <= 2 / noise_multiplier.

    ``slack`` is what inexact weights may add to the range of the privacy loss.
    """
    if not (math.isfinite(sensitivity) and sensitivity > 0.0):
        raise InvalidInput(f"the sensitivity of scores must be positive and finite, not {sensitivity!r}.")
    room = 2.0 / noise_multiplier - slack * _UP
    if room <= 0.0 or slack > 1e-3 * room:
        raise Unsupported("the scores are too large for their sensitivity to be raced in double precision.")
    return 2.0 * sensitivity / room * _UP


def gumbel_race(scores: FloatArray, scale: float, source: RandomSource) -> int:
    """Return the index of the largest of ``scores / scale + Gumbel noise``, exactly distributed."""
    values = np.ascontiguousarray(scores, np.float64).ravel()
    if values.size == 0 or not np.isfinite(values).all():
        raise InvalidInput("a race needs at least one score, and all of them finite.")
    if values.size == 1:
        return 0
    words = source.words(values.size)
    keys = np.empty(values.size)
    largest = 0.0
    with np.errstate(divide="ignore", over="ignore"):  # a draw that rounds to 1 gives -inf here and is settled below
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
    if rivals.size == 1:
        return leader
    return _settle(rivals, values, words, scale, source)


def _settle(
    rivals: NDArray[np.intp], values: FloatArray, words: NDArray[np.uint64], scale: float, source: RandomSource
) -> int:
    """Compare the rivals' keys with growing precision until one is certainly the largest."""
    digits = {int(j): int(words[j]) for j in rivals}
    bits = 64
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
                return best
        digits = {j: (digits[j] << 64) | source.word() for j in ahead}
        bits += 64


class TwoLevelRace:
    """A race over candidates whose scores change a few at a time.

    Candidates stand in groups of about sqrt(p). First the groups race with the log of their total weight, then the
    candidates of the winning group. A change recomputes only its groups, from scratch, so nothing drifts and the
    state after any sequence of updates equals a fresh build.

    Parameters
    ----------
    scores : array of shape (p,)
        Initial scores.
    sensitivity, noise_multiplier : float
        As for one selection; the scale found covers the rounding of the group weights.
    bound : float
        Public bound on the absolute scores; scores are clipped to it.
    """

    def __init__(self, scores: FloatArray, sensitivity: float, noise_multiplier: float, bound: float) -> None:
        values = np.ascontiguousarray(scores, np.float64).ravel()
        if values.size == 0 or not np.isfinite(values).all():
            raise InvalidInput("a race needs at least one score, and all of them finite.")
        self.size = values.size
        self.sensitivity, self.noise_multiplier, self.bound = float(sensitivity), float(noise_multiplier), float(bound)
        self.width, self.error, self.scale = self.numbers(values.size, sensitivity, noise_multiplier, bound)
        n_groups = -(-values.size // self.width)
        padded = np.full(n_groups * self.width, -np.inf)
        padded[: self.size] = self._logits(values)
        self._table = padded.reshape(n_groups, self.width)
        self._totals = np.empty(n_groups)
        self._refresh(np.arange(n_groups))

    @staticmethod
    def numbers(size: int, sensitivity: float, noise_multiplier: float, bound: float) -> tuple[int, float, float]:
        """Group width, error of a group's total and scale, from public numbers; refuses what cannot be raced."""
        # groups smaller than sqrt(p): an update rewrites its whole group, a selection only reads the groups' totals
        width = max(1, math.isqrt(max(size // 64, 1)))
        largest = bound / (sensitivity * noise_multiplier) * _UP  # the scale is no smaller than this product
        # rounding of the logit, of exp, of the sum of `width` terms and of the log, in units of the scale
        error = 2.0**-52 * (4.0 * largest + width + 16.0)
        return width, error, race_scale(sensitivity, noise_multiplier, 4.0 * error)

    def _logits(self, values: FloatArray) -> FloatArray:
        clipped: FloatArray = np.clip(values, -self.bound, self.bound) / self.scale
        return clipped

    def _refresh(self, groups: NDArray[np.intp]) -> None:
        from dperm.kernels.race import group_totals  # compiled: only when needed

        group_totals(self._table, groups, self._totals)

    def update(self, indices: NDArray[np.intp], scores: FloatArray) -> None:
        """Give the candidates at ``indices`` new scores; of several for one candidate the last counts."""
        if not np.isfinite(scores).all():
            raise InvalidInput("a race needs finite scores.")
        places = np.asarray(indices, np.intp)
        if places.size and not (places.min() >= 0 and places.max() < self.size):
            raise InvalidInput("an update names a candidate that is not in the race.")
        self._table.reshape(-1)[places] = self._logits(np.asarray(scores, np.float64))
        touched = np.zeros(len(self._totals), np.bool_)
        touched[places // self.width] = True
        self._refresh(np.flatnonzero(touched))

    def select(self, source: RandomSource) -> int:
        """Return the winner."""
        group = gumbel_race(self._totals, 1.0, source)
        row = self._table[group]
        return group * self.width + gumbel_race(row[: min(self.width, self.size - group * self.width)], 1.0, source)
