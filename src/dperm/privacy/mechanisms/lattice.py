"""Noise on a lattice: every release is exactly a function of the continuous mechanism's output.

Adding a floating-point sample to a floating-point number leaks the number through the pattern of its last digits.
Here the query is rounded to integers q on a lattice of power-of-two spacing, and the release is

    spacing * (q + floor(scale * X) + 1/2),      X exactly standard Gaussian (or Laplace).

As q is an integer, q + floor(scale * X) = floor(q + scale * X): a post-processing of the real-valued mechanism, so
every theorem about that one applies unchanged. See ``lattice.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mpmath
import numpy as np

from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.cells import filtered_cell, filtered_cells
from dperm.privacy.mechanisms import integer_samplers
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray, IntArray
from dperm.validation import positive

__all__ = ["MOST_EXTRA", "Lattice", "floor_noise", "most_extra"]

_CHUNK = 1 << 14  # stays in the processor's cache
_LARGEST_SCALE = 2.0**40
#: share by which rounding to the lattice may raise the noise, unless the noise is very large: :func:`most_extra`
MOST_EXTRA = 2.0**-11
_TINIEST = 1e-200
_NOT_FINITE = "a query returned a value that is not finite; nothing was released."
_UP = 1.0 + 2.0**-49  # outward rounding: covers the few operations it follows


def floor_noise(
    n: int, scale: float, source: RandomSource, kind: str = "gaussian", *, sampler: str = "filtered"
) -> IntArray:
    """Return ``n`` independent values of floor(scale * X), X exactly standard Gaussian or Laplace.

    ``sampler="filtered"`` decides in double precision and resolves near ties with as many digits as needed; it relies
    on a bound on the error of two elementary functions. ``sampler="integer"`` uses integer comparisons only and makes
    no such assumption; it is about a thousand times slower.
    """
    if kind not in ("gaussian", "laplace"):
        raise InvalidInput(f"there is no lattice noise of kind {kind!r}.")
    if not 1.0 <= scale <= _LARGEST_SCALE:
        raise InvalidInput(f"the noise scale on the lattice must be in [1, 2^40], not {scale!r}.")
    out = np.empty(n, np.int64)
    if sampler == "integer":
        draw = integer_samplers.gaussian_cell if kind == "gaussian" else integer_samplers.laplace_cell
        out[:] = [draw(scale, source) for _ in range(n)]
        return out
    if sampler != "filtered":
        raise InvalidInput(f"sampler must be 'filtered' or 'integer', not {sampler!r}.")
    if n == 1:
        out[0] = _one_filtered(scale, source, kind)
        return out
    for start in range(0, n, _CHUNK):
        stop = min(start + _CHUNK, n)
        words = source.words(stop - start)
        cells, negative, undecided = filtered_cells(words, scale, kind)
        for i in undecided:
            cells[i] = _exact_cell(int(words[i]) >> 1, int(cells[i]), scale, source, kind)
        # -X lies in (-(k+1), -k] where X lies in [k, k+1): its floor is -(k+1), up to an event of probability 0
        out[start:stop] = np.where(negative, -cells - 1, cells)
    return out


def _one_filtered(scale: float, source: RandomSource, kind: str) -> int:
    """Return one value without the cost of arrays: solvers release a single number thousands of times."""
    word = source.word()
    cell, decided = filtered_cell(word, scale, kind)
    if not decided:
        cell = _exact_cell(word >> 1, cell, scale, source, kind)
    return -cell - 1 if word & 1 else cell


def _exact_cell(digits: int, guess: int, scale: float, source: RandomSource, kind: str) -> int:
    """Return the largest k >= 0 with tail(k / scale) > p; p starts with ``digits`` and gets new digits as needed."""
    bits = 64

    def above(k: int) -> bool:
        nonlocal digits, bits
        while True:
            precision = bits + 192
            with mpmath.workprec(precision):
                x = mpmath.mpf(k) / mpmath.mpf(scale)
                tail = (mpmath.erfc(x / mpmath.sqrt(2)) if kind == "gaussian" else mpmath.exp(-x)) / 2
                margin = tail * mpmath.mpf(2) ** (64 - precision)
                low, high = mpmath.ldexp(digits, -bits), mpmath.ldexp(digits + 1, -bits)
                if tail - margin >= high:
                    return True
                if tail + margin <= low:
                    return False
            digits = (digits << 64) | source.word()
            bits += 64

    low, step = guess, 1
    while low > 0 and not above(low):
        low, step = max(0, low - step), step * 2
    high, step = low + 1, 1
    while above(high):
        low, high, step = high, high + step, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return low


def _rounding(size: int, kind: str) -> float:
    """Return how far rounding can move two values apart, in lattice steps."""
    return math.sqrt(size) * _UP if kind == "gaussian" else float(size)


def most_extra(noise_multiplier: float, size: int, kind: str = "gaussian") -> float:
    """Return the largest share by which the noise of a lattice exceeds the planned one.

    It is :data:`MOST_EXTRA`, or more for noise so large that the sampler's largest scale makes the lattice coarse. The
    step is then at most ``2**-37`` times the noise: that scale over 4, rounded up to a power of two.

    >>> round(2048 * most_extra(1.0, 100), 6)
    1.0
    >>> round(2048 * most_extra(2.0**30, 100), 6)
    160.0
    """
    return max(MOST_EXTRA, _rounding(size, kind) * noise_multiplier * 8.0 / _LARGEST_SCALE) * _UP


@dataclass(frozen=True)
class Lattice:
    """Spacing and noise scale for one release, computed from public numbers only.

    Attributes
    ----------
    spacing : float
        A power of two, so that dividing by it is exact.
    scale : float
        Noise scale in lattice steps; the absolute noise is ``spacing * scale``.
    bound : float
        Public bound on the absolute value of every coordinate; values are clipped to it.
    """

    spacing: float
    scale: float
    bound: float
    kind: str

    @classmethod
    def design(
        cls, sensitivity: float, noise_multiplier: float, size: int, bound: float, kind: str = "gaussian"
    ) -> Lattice:
        """Return the lattice on which a query of this sensitivity gets at least the planned noise.

        Rounding each of ``size`` coordinates to the lattice moves it by at most half a step, so the sensitivity in
        steps is at most ``sensitivity / spacing + sqrt(size)`` (L2) or ``+ size`` (L1); the scale is that times the
        noise multiplier, rounded up.
        """
        for name, value in (("sensitivity", sensitivity), ("noise_multiplier", noise_multiplier), ("bound", bound)):
            positive(f"{name} of a release", value)
        if not (size >= 1 and _TINIEST < sensitivity < 1 / _TINIEST and _TINIEST < noise_multiplier < 1 / _TINIEST):
            raise Unsupported(
                "a release needs at least one coordinate, and a sensitivity and a noise multiplier between 1e-200 and "
                "1e200."
            )
        rounding = _rounding(size, kind)
        spacing = 2.0 ** math.floor(math.log2(sensitivity * MOST_EXTRA / rounding))
        # coarse enough for the largest scale of the sampler, and further down fine enough for 256 steps of noise
        spacing = max(spacing, 2.0 ** math.ceil(math.log2(sensitivity * noise_multiplier / (_LARGEST_SCALE / 4.0))))
        steps = (sensitivity / spacing + rounding) * _UP
        scale = steps * noise_multiplier * _UP
        while scale < 256.0:
            spacing /= 2.0
            steps = (sensitivity / spacing + rounding) * _UP
            scale = steps * noise_multiplier * _UP
        if bound / spacing >= 2.0**51 or scale > _LARGEST_SCALE or not 2.0**-900 < spacing < 2.0**900:
            raise Unsupported(
                "the query's bound is too large for its sensitivity to be released without rounding errors: "
                "use fewer records, a smaller dimension or tighter bounds."
            )
        return cls(spacing, scale, bound, kind)

    @property
    def noise_scale(self) -> float:
        """Absolute scale of the noise (standard deviation, or Laplace scale)."""
        return self.spacing * self.scale

    def release(self, value: FloatArray, source: RandomSource, sampler: str = "filtered") -> FloatArray:
        """Clip, round and add noise."""
        if sampler == "filtered" and np.size(value) == 1:
            one = float(np.asarray(value).item())
            if not math.isfinite(one):
                raise InvalidInput(_NOT_FINITE)
            step = round(min(max(one, -self.bound), self.bound) / self.spacing)
            step += _one_filtered(self.scale, source, self.kind)
            return np.array((float(step) + 0.5) * self.spacing, ndmin=np.ndim(value))
        flat = np.asarray(value, np.float64).ravel()
        if not np.isfinite(flat).all():
            raise InvalidInput(_NOT_FINITE)
        steps = np.rint(np.clip(flat, -self.bound, self.bound) / self.spacing).astype(np.int64)
        steps += floor_noise(flat.size, self.scale, source, self.kind, sampler=sampler)
        released = (steps.astype(np.float64) + 0.5) * self.spacing
        return released.reshape(np.shape(value))
