r"""Minimising functions that are close to convex ones, and what a small empirical risk says about new people.

Lemma 3 and Theorems 5 and 6 of Wang, Gaboardi & Xu (2018) rest on Risteski & Li (2016): a function within ``deviation``
of a convex 1-Lipschitz one can be minimised in polynomial time. dperm's own minimiser is
:meth:`~dperm.solvers.local.bernstein.BernsteinPolynomial.minimise_nearly_convex`.
"""

from __future__ import annotations

import math

from dperm.errors import InvalidInput
from dperm.validation import positive

__all__ = [
    "ball_conditioning",
    "near_convex_error",
    "population_bound",
    "population_bound_linear",
    "tolerated_deviation",
]

#: the constant of Lemma 3
_LEMMA_3 = 16348.0


def tolerated_deviation(error: float, p: int, conditioning: float) -> float:
    """Largest deviation from convexity that Lemma 3 allows for an ``error``, over a set of diameter 1.

    max(error^2 / (mu sqrt(p)), error / p) / 16348, mu being the set's ``conditioning`` (Definition 7).
    """
    return max(error**2 / (conditioning * math.sqrt(p)), error / p) / _LEMMA_3


def near_convex_error(deviation: float, p: int, conditioning: float) -> float:
    """Smallest error that Lemma 3 promises for this deviation; Theorem 5 takes 16348 p deviation, its second branch.

    Losses lie in [0, 1], so the promise says nothing unless the deviation is below about 1/16348.
    """
    by_conditioning = math.sqrt(_LEMMA_3 * deviation * conditioning * math.sqrt(p))
    return min(by_conditioning, _LEMMA_3 * p * deviation)


def ball_conditioning(radius: float) -> float:
    """Return mu of Definition 7 for a ball: F = |x|^2 - r^2 has |F''| / |F'| = 1/r on the sphere.

    A cube has none: a function whose level set has corners has no gradient there.
    """
    return 1.0 / positive("radius", radius)


def population_bound(
    empirical_excess: float, lipschitz: float, strong_convexity: float, n: int, failure: float
) -> float:
    """Excess risk in the population, with probability 1 - failure, from that on n people; proved.

    For losses that are ``lipschitz`` and strongly convex (Shalev-Shwartz et al. 2009): weights with this empirical
    excess are within sqrt(2 excess / strong_convexity) of the empirical minimiser, whose own excess in the population
    is at most 4 L^2 / (strong_convexity n) on average, and Markov's inequality.
    """
    if not 0.0 < failure < 1.0:
        raise InvalidInput(f"failure must be between 0 and 1, got {failure!r}.")
    away = lipschitz * math.sqrt(2.0 * empirical_excess / positive("strong_convexity", strong_convexity))
    return away + 4.0 * lipschitz**2 / (failure * strong_convexity * n)


def population_bound_linear(empirical_excess: float, lipschitz: float, radius: float, n: int, failure: float) -> float:
    """The same for losses in [0, 1] of <w, y>, with |w| <= ``radius`` and |y| <= 1, convex or not; proved.

    All weights' means are close at once: their Rademacher complexity is at most L radius / sqrt(n). So the risk of the
    weights exceeds their mean loss by at most 2 L radius / sqrt(n) and a deviation of sqrt(ln(2/failure) / (2 n)), and
    the mean loss of the best weights exceeds their risk by at most another such deviation. Making the loss strongly
    convex by a penalty and using :func:`population_bound` would give at least L radius for any n.
    """
    if not 0.0 < failure < 1.0:
        raise InvalidInput(f"failure must be between 0 and 1, got {failure!r}.")
    deviation = math.sqrt(math.log(2.0 / failure) / (2.0 * n))
    return empirical_excess + 2.0 * lipschitz * positive("radius", radius) / math.sqrt(n) + 2.0 * deviation
