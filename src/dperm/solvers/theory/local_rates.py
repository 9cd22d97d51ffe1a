"""Published numbers of people and error bounds of the local model, for comparisons.

The paper is Wang, Gaboardi & Xu (2018). Functions that return numbers of people or excess risks of its theorems leave
out constants and logarithms, as the paper does; they show how numbers change with the error, epsilon and the number of
parameters p. Functions whose docstring says "proved" have all constants.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import integrate, stats

from dperm.errors import InvalidInput
from dperm.validation import is_number, is_whole, positive, whole

__all__ = [
    "average_failure",
    "average_tail",
    "bernstein_error",
    "convex_error",
    "convex_people",
    "coordinates_error",
    "coordinates_tail",
    "grid_size",
    "lipschitz_people",
    "logistic_people",
    "one_bit_people",
    "people_needed",
    "printed_average_tail",
    "regression_people",
    "smooth_people",
    "very_smooth_people",
]


def _open_unit(name: str, value: float) -> float:
    if not 0.0 < positive(name, value) < 1.0:
        raise InvalidInput(f"{name} must be between 0 and 1, got {value!r}.")
    return float(value)


# ------------------------------------------------------------------------------------------ averages, Lemmas 1 and 2
def printed_average_tail(n: int, bound: float, epsilon: float, failure: float) -> float:
    """Printed bound 2 b sqrt(ln(1/failure)) / (sqrt(n) epsilon) on the noise of Algorithm 1 (Lemma 1).

    It is false for few people and rare failures: :func:`average_failure` has the exact probability.
    """
    return 2.0 * bound * math.sqrt(math.log(1.0 / _open_unit("failure", failure)) / whole("n", n)) / epsilon


def average_tail(n: int, bound: float, epsilon: float, failure: float) -> float:
    """Proved bound b sqrt(8 ln(2/failure) / n) / epsilon on the same noise, for n >= ln(2/failure).

    ln E exp(l Z) = -ln(1 - s^2 l^2) <= 2 s^2 l^2 for Laplace noise of scale s and s^2 l^2 <= 1/2, then Chernoff.
    """
    log = math.log(2.0 / _open_unit("failure", failure))
    if whole("n", n) < log:
        raise InvalidInput(f"the bound needs at least ln(2/failure) = {log:.3g} people, got {n}.")
    return bound * math.sqrt(8.0 * log / n) / epsilon


def average_failure(n: int, threshold: float, bound: float, epsilon: float) -> float:
    """Exact probability that the mean of n Laplace variables of scale bound/epsilon exceeds ``threshold`` in size.

    Their sum has the law of a difference of two independent gamma variables of shape n.

    >>> round(average_failure(1, 2.0, 1.0, 1.0), 6) == round(math.exp(-2.0), 6)
    True
    """
    total = whole("n", n) * threshold * epsilon / bound
    law = stats.gamma(n)
    end = float(law.isf(1e-16))
    # split at the mean, where the integrand has its mass
    parts = [
        integrate.quad(lambda x: law.pdf(x) * law.sf(x + total), *ends, epsabs=0.0, epsrel=1e-9)[0]
        for ends in ((0.0, float(n)), (float(n), end))
    ]
    return 2.0 * math.fsum(parts)


def coordinates_error(n: int, p: int, bound: float, epsilon: float, failure: float) -> float:
    """Order b p sqrt(ln(p/failure)) / (sqrt(n) epsilon) of the largest error of p means (Lemma 2)."""
    return bound * p * math.sqrt(math.log(p / _open_unit("failure", failure)) / n) / epsilon


def coordinates_tail(n: int, p: int, bound: float, epsilon: float, failure: float) -> float:
    """Proved bound on the largest error when everybody sends one bit of a coordinate drawn at random.

    By Chernoff's bound a coordinate has fewer than n/(2p) answers with probability exp(-n/(8p)) at most. Decoded bits
    lie in an interval of length b (e^epsilon + 1)/(e^epsilon - 1), and given their number those of a coordinate are
    drawn without replacement, so Hoeffding's bound covers the noise and the draw of people. Needs
    n >= 8 p ln(4p/failure).
    """
    log = math.log(4.0 * p / _open_unit("failure", failure))
    if n < 8.0 * p * log:
        raise InvalidInput(f"the bound needs at least {8.0 * p * log:.4g} people, got {n}.")
    gain = 1.0 / math.tanh(epsilon / 2.0)
    return bound * gain * math.sqrt(p * log / n)


# ------------------------------------------------------------------------------------------ Theorem 3 and corollaries
def people_needed(
    error: float, n_parameters: int, order: int, epsilon: float, failure: float = 0.05, smoothness: float = 1.0
) -> float:
    """Number of people that Theorem 3 requires for an excess of ``error``, up to hidden constants.

    ``smoothness`` is D_h, a constant of the order that is not printed.

    >>> f"{people_needed(0.1, 2, 4, 1.0):.1g}"
    '4e+09'
    """
    p, h = _checked_sizes(n_parameters, order, epsilon, failure, smoothness)
    if not is_number(error) or not 0.0 < error < math.inf:
        raise InvalidInput(f"the error aimed at must be a positive finite number, not {error!r}.")
    size = math.log(1.0 / failure) * smoothness ** (2.0 * p / h) * p ** (p / h) * 4.0 ** ((h + 1) * p)
    least = math.log(1.0 / failure) * 4.0 ** (p * (h + 1)) / (epsilon * smoothness) ** 2
    return float(max(least, size / epsilon**2 * error ** -(2.0 + 2.0 * p / h)))


def bernstein_error(
    n: float, n_parameters: int, order: int, epsilon: float, failure: float = 0.05, smoothness: float = 1.0
) -> float:
    """Excess risk of Algorithm 2 for ``n`` people, equation (3), up to hidden constants and logarithms."""
    p, h = _checked_sizes(n_parameters, order, epsilon, failure, smoothness)
    share = h / (h + p)
    top = math.log(1.0 / failure) ** (share / 2.0) * smoothness ** (p / (p + h)) * p ** (p / (2.0 * (h + p)))
    return float(top * 2.0 ** ((h + 1) * p * share) / (positive("n", n) ** (share / 2.0) * epsilon**share))


def grid_size(
    n: int, n_parameters: int, order: int, epsilon: float, failure: float = 0.05, smoothness: float = 1.0
) -> int:
    """The k that Theorem 3 sets for ``n`` people, up to a hidden constant; at least 1."""
    p, h = _checked_sizes(n_parameters, order, epsilon, failure, smoothness)
    if not is_number(n) or not n >= 1:
        raise InvalidInput(f"the number of people must be a whole number of 1 or more, not {n!r}.")
    base = smoothness * math.sqrt(p * n) * epsilon / (2.0 ** ((h + 1) * p) * math.sqrt(math.log(1.0 / failure)))
    return max(1, round(float(base ** (1.0 / (h + p)))))


def one_bit_people(k: int, p: int, epsilon: float, failure: float = 0.05, smoothness: float = 1.0) -> float:
    """Least number of people of Theorem 4, up to a hidden constant: the largest of its three conditions."""
    _checked_sizes(p, p, epsilon, failure, smoothness)
    log = math.log(1.0 / failure)
    cells = p * float(k + 1) ** p * math.log(k + 1)
    return max(log * 4.0 ** (p * (p + 1)) / (epsilon * smoothness) ** 2, cells, log / epsilon**2)


def _checked_sizes(p: int, h: int, epsilon: float, failure: float, smoothness: float) -> tuple[int, int]:
    numbers = is_whole(p) and is_whole(h) and all(is_number(one) for one in (epsilon, failure, smoothness))
    finite = numbers and max(epsilon, smoothness) < math.inf
    if not finite or not (p >= 1 and h >= 1 and min(epsilon, smoothness) > 0.0 and 0.0 < failure < 1.0):
        raise InvalidInput(
            "the sample size of Theorem 3 needs whole numbers n_parameters and order of 1 or more, a positive finite "
            "epsilon and smoothness, and a failure between 0 and 1."
        )
    return p, h


# ------------------------------------------------------------------------------------------ Table 1
def lipschitz_people(error: float, p: int, epsilon: float) -> float:
    """4^p error^-(p+2) epsilon^-2 for Lipschitz losses: Claim 4 of Smith, Thakurta & Upadhyay (2017), Table 1."""
    return float(4.0**p * error ** -(p + 2.0) / epsilon**2)


def convex_people(error: float, p: int, epsilon: float) -> float:
    """2^p error^-(p+1) epsilon^-2 for convex Lipschitz losses: their Theorem 10, Table 1."""
    return float(2.0**p * error ** -(p + 1.0) / epsilon**2)


def convex_error(n: int, p: int, epsilon: float, failure: float = 0.05) -> float:
    """Excess (sqrt(p) ln(1/failure)^2 / (epsilon^2 n))^(1/(p+1)) of the same (Theorem 1, equation (1))."""
    return float((math.sqrt(p) * math.log(1.0 / failure) ** 2 / (epsilon**2 * n)) ** (1.0 / (p + 1)))


def smooth_people(error: float, p: int, epsilon: float, smoothness: float = 1.0) -> float:
    """Return the number for (8, T)-smooth losses: error^-(2+p/2) epsilon^-2 (4^5 sqrt(D_4) p^(1/4))^p (Corollary 1).

    Table 1 writes (c_0 p^(1/4))^p, so c_0 is at least 4^5.
    """
    base = 4.0**5 * math.sqrt(smoothness) * p**0.25
    return float(base**p * error ** -(2.0 + p / 2.0) / epsilon**2)


def very_smooth_people(error: float, p: int, epsilon: float, smoothness: float = 1.0) -> float:
    """Return the number for (infinity, T)-smooth losses: 4^(p(p+1)) D_p^2 p epsilon^-2 error^-4 (Corollary 2)."""
    return float(4.0 ** (p * (p + 1)) * smoothness**2 * p / epsilon**2 * error**-4.0)


def regression_people(error: float, p: int, epsilon: float, delta: float) -> float:
    """P ln(1/delta) epsilon^-2 error^-2 for linear regression (Smith et al. 2017, as cited in the introduction)."""
    return float(p * math.log(1.0 / delta) / (epsilon * error) ** 2)


def logistic_people(error: float, p: int, epsilon: float, r: float = 1.0, c: float = 1.0) -> float:
    """Return the number for logistic regression of Zheng, Mou & Wang (2017), as cited in the introduction.

    p (8r/error)^(4 r lnln(8r/error)) (4r/epsilon)^(2 c r ln(8r/error) + 2) / (error epsilon)^2; r and c do not depend
    on p and are not printed.
    """
    ratio = 8.0 * r / error
    log = math.log(p) + 4.0 * r * math.log(math.log(ratio)) * math.log(ratio)
    log += (2.0 * c * r * math.log(ratio) + 2.0) * math.log(4.0 * r / epsilon) - 2.0 * math.log(error * epsilon)
    return math.inf if log > 700.0 else float(np.exp(log))
