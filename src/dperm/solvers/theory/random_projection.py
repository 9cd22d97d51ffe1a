r"""Gaussian widths, and the error bound of the projected method of Wang, Gaboardi & Xu (2018): Lemma 4, Theorem 7.

The Gaussian width of a set C is E sup over c in C of <g, c>, g standard normal. It is the size of the set as random
projections see it: sqrt(p) for a ball, sqrt(2 ln p) for the l1 ball. Widths are
exact up to quadrature unless they say otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import integrate, special, stats

from dperm.errors import InvalidInput
from dperm.validation import positive, whole

__all__ = [
    "WIDTHS",
    "corollary3_error",
    "distortion",
    "l1_ball_width",
    "l2_ball_width",
    "linf_ball_width",
    "projected_error",
    "projected_rows",
    "projection_rows",
    "simplex_width",
    "sparse_ball_width",
    "vertices_width_bound",
]


# ------------------------------------------------------------------------------------------ Gaussian widths
def l2_ball_width(p: int) -> float:
    """E |g| = sqrt(2) Gamma((p + 1)/2) / Gamma(p/2), just below sqrt(p).

    >>> round(l2_ball_width(1), 4) == round(math.sqrt(2 / math.pi), 4)
    True
    """
    whole("p", p)
    return float(math.sqrt(2.0) * math.exp(special.gammaln((p + 1) / 2.0) - special.gammaln(p / 2.0)))


def linf_ball_width(p: int) -> float:
    """E sum |g_j| = p sqrt(2 / pi), of the cube [-1, 1]^p."""
    return whole("p", p) * math.sqrt(2.0 / math.pi)


def l1_ball_width(p: int) -> float:
    """E max |g_j|, at most sqrt(2 ln(2p))."""
    whole("p", p)
    return _mean_of_largest(lambda x: p * np.log(special.erf(x / math.sqrt(2.0))), 0.0, p)


def simplex_width(p: int) -> float:
    """E max g_j, of the distributions on p outcomes, at most sqrt(2 ln p)."""
    if whole("p", p) == 1:
        return 0.0
    # subtracting the mean of one g_j, which is 0, keeps the integral one-sided on both sides of 0
    above = _mean_of_largest(lambda x: p * stats.norm.logcdf(x), 0.0, p)
    below = integrate.quad(lambda x: math.exp(p * float(stats.norm.logcdf(x))), -40.0, 0.0)[0]
    return above - float(below)


def _mean_of_largest(log_cdf: Callable[[float], float], start: float, p: int) -> float:
    """Integral of 1 - cdf from ``start``; the largest of p normal numbers is below the end of the range."""
    end = math.sqrt(2.0 * math.log(2.0 * p)) + 10.0

    def tail(x: float) -> float:
        with np.errstate(divide="ignore"):
            return -math.expm1(float(log_cdf(x)))

    middle = math.sqrt(2.0 * math.log(p + 1.0))  # the integrand falls around here
    return sum(float(integrate.quad(tail, *ends, limit=200)[0]) for ends in ((start, middle), (middle, end)))


def sparse_ball_width(p: int, k: int) -> float:
    """Width of the unit vectors with k nonzero entries: E of the root of the sum of the k largest g_j^2, about.

    The squares are taken at their median ranks; from p = 20 on the result is off by 3% or less.
    """
    if not 1 <= whole("k", k) <= whole("p", p):
        raise InvalidInput(f"k must be between 1 and p = {p}, got {k!r}.")
    ranks = np.arange(p - k + 1, p + 1)
    return float(math.sqrt(stats.chi2.ppf((ranks - 0.3) / (p + 0.4), 1).sum()))


def vertices_width_bound(n_vertices: int, longest: float = 1.0) -> float:
    """Bound longest sqrt(2 ln N) on the width of the convex hull of N vertices, for any polytope."""
    return positive("longest", longest) * math.sqrt(2.0 * math.log(whole("n_vertices", n_vertices, 2)))


#: widths of the sets that papers use, by the number of columns
WIDTHS: dict[str, Callable[[int], float]] = {
    "l2 ball": l2_ball_width,
    "l1 ball": l1_ball_width,
    "simplex": simplex_width,
    "cube": linf_ball_width,
}


# ------------------------------------------------------------------------------------------ Lemma 4 and Theorem 7
def projection_rows(width: float, gamma: float, failure: float, psi: float = 1.0, constant: float = 1.0) -> float:
    """Rows m of Lemma 4, C psi^4 max(width^2, ln(1/failure)) / gamma^2, for |Phi a|^2 within gamma |a|^2 of |a|^2.

    The lemma prints the event with the inequality the wrong way round; C is not printed.
    """
    return constant * psi**4 * max(width**2, math.log(1.0 / failure)) / gamma**2


def distortion(m: int, width: float, failure: float, psi: float = 1.0, constant: float = 1.0) -> float:
    """Return the gamma that m rows give by the same lemma."""
    return math.sqrt(projection_rows(width, 1.0, failure, psi, constant) / m)


def projected_rows(n: int, width: float, epsilon: float, failure: float = 0.05, psi: float = 1.0) -> float:
    """Rows m that Theorem 7 sets: psi^4 (G + sqrt(ln n))^2 ln(n/failure) / gamma^2, without the hidden constant.

    With its gamma this is psi^2 (G + sqrt(ln n)) sqrt(ln(n/failure)) n epsilon^2 / ln(1/failure)^2: it grows with n
    epsilon^2, so the projection has fewer rows than columns only for p far above n epsilon^2.
    """
    gamma = _base(n, width, epsilon, failure, psi)
    return psi**4 * (width + math.sqrt(math.log(n))) ** 2 * math.log(n / failure) / gamma**2


def projected_error(
    n: int, width: float, epsilon: float, failure: float = 0.05, psi: float = 1.0, m: float | None = None
) -> float:
    """Excess risk that Theorem 7 states, up to constants and logarithms: gamma^(1/(1+m)).

    With the theorem's own m it is always close to 1, which losses in [0, 1] never exceed: the bound says nothing. ``m``
    shows what a smaller projection would be promised, which the theorem does not cover.
    """
    rows = projected_rows(n, width, epsilon, failure, psi) if m is None else m
    return float(_base(n, width, epsilon, failure, psi) ** (1.0 / (1.0 + rows)))


def corollary3_error(n: int, p: int, epsilon: float, failure: float = 0.05) -> float:
    """Excess risk of Corollary 3 for the l1 ball or the simplex, with its own m = n epsilon^2 ln p sqrt(ln(n/failure)).

    Substituted into Theorem 7, the width sqrt(ln p) gives sqrt(ln p) in m where the corollary prints ln p.
    """
    m = n * epsilon**2 * math.log(p) * math.sqrt(math.log(n / failure))
    base = math.log(1.0 / failure) * (math.log(p) * math.log(n / failure)) ** 0.25 / (math.sqrt(n) * epsilon)
    return float(base ** (1.0 / (1.0 + m)))


def _base(n: int, width: float, epsilon: float, failure: float, psi: float) -> float:
    """Return gamma of Theorem 7."""
    if not 0.0 < failure < 1.0:
        raise InvalidInput(f"failure must be between 0 and 1, got {failure!r}.")
    log = math.log(whole("n", n) / failure) ** 0.25 * math.log(1.0 / failure)
    root = math.sqrt(width + math.sqrt(math.log(n)))
    return float(psi * root * log / (math.sqrt(n) * positive("epsilon", epsilon)))
