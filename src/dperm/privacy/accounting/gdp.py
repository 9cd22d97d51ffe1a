"""The exact (epsilon, delta) curve of Gaussian releases (mu-GDP), rounded to the safe side.

A ``mu``-GDP release satisfies ``(epsilon, delta(epsilon))``-DP exactly with

    delta(epsilon) = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2)

(Balle & Wang 2018, arXiv 1805.06530; Dong, Roth & Su 2022, arXiv 1905.02383). With a = epsilon/mu - mu/2,
b = epsilon/mu + mu/2 and Mills' ratio m(x) = Phi(-x)/phi(x), exp(epsilon) phi(b) = phi(a), so
delta = phi(a) (m(a) - m(b)): no overflow for any epsilon.
"""

from __future__ import annotations

import math

from scipy import special
from scipy.optimize import brentq

__all__ = ["delta_of", "epsilon_of", "mu_of"]

# erfcx and exp are accurate to a few units in the last place; this covers them with a safety factor of 50
_RELATIVE_ERROR = 2e-14


def _mills(x: float) -> float:
    return math.sqrt(math.pi / 2.0) * float(special.erfcx(x / math.sqrt(2.0)))


def _delta(mu: float, epsilon: float, sign: float) -> float:
    if mu <= 0.0:
        return 0.0
    a, b = epsilon / mu - mu / 2.0, epsilon / mu + mu / 2.0
    reach = abs(epsilon) / mu + mu / 2.0
    if a < -5.0:  # Mills' ratio of a very negative number overflows; here delta is near 1 and plain Phi is exact
        first = float(special.ndtr(-a))
        second = math.exp(min(epsilon + float(special.log_ndtr(-b)), 0.0))
        return min(1.0, max(0.0, first - second + sign * (_RELATIVE_ERROR + 1e-15 * reach * reach * min(second, 1.0))))
    density = math.exp(-a * a / 2.0) / math.sqrt(2.0 * math.pi)
    # a is known to a few ulps of the numbers it is the difference of, which moves the density by a * da
    slack = (_RELATIVE_ERROR + 4e-16 * (1.0 + abs(a)) * reach) * _mills(a)
    # the last term covers a density too small for full precision
    return min(1.0, max(0.0, density * (_mills(a) - _mills(b) + sign * slack) + sign * 2e-323))


def delta_of(mu: float, epsilon: float, *, lower: bool = False) -> float:
    """Smallest delta of a ``mu``-GDP release at ``epsilon``, as an upper (or lower) bound.

    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    """
    return _delta(mu, epsilon, -1.0 if lower else 1.0)


def epsilon_of(mu: float, delta: float, *, lower: bool = False) -> float:
    """Smallest epsilon of a ``mu``-GDP release at ``delta``, rounded up (or down).

    >>> round(epsilon_of(0.2367, 1e-6), 3)
    1.0
    """
    if mu <= 0.0 or delta_of(mu, 0.0, lower=lower) <= delta:
        return 0.0
    high = 1.0
    while delta_of(mu, high, lower=lower) > delta:
        high *= 2.0
        if high > 1e9:
            return 0.0 if lower else math.inf
    root = float(brentq(lambda e: delta_of(mu, e, lower=lower) - delta, 0.0, high, xtol=1e-15, rtol=1e-14))
    step = 1e-14 * max(root, 1e-3)
    while delta_of(mu, root, lower=lower) > delta and not lower:
        root, step = root + step, step * 2.0
    return max(0.0, root - step) if lower else root


def mu_of(epsilon: float, delta: float) -> float:
    """Largest ``mu`` that is ``(epsilon, delta)``-DP, rounded down.

    >>> round(mu_of(1.0, 1e-6), 4)
    0.2367
    """
    high = 1.0
    while delta_of(high, epsilon) < delta:
        high *= 2.0
    low = high
    while delta_of(low, epsilon) > delta:
        low /= 2.0
        if low < 1e-300:
            return 0.0
    root = float(brentq(lambda m: delta_of(m, epsilon) - delta, low, high, xtol=1e-300, rtol=1e-14))
    step = 1e-14 * root
    while delta_of(root, epsilon) > delta:
        root, step = root - step, step * 2.0
    return max(root, 0.0)
