"""Published utility rates as functions, for comparisons: orders of magnitude, without their constants.

The rates are not bounds: they hide constants and logarithms (noted in each docstring) and assume more than dperm does.
They show how the error changes with n, epsilon and the dimension.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput

__all__ = [
    "block_rate_convex",
    "block_rate_strongly_convex",
    "coordinate_rate_convex",
    "coordinate_rate_strongly_convex",
    "gradient_rate_convex",
    "gradient_rate_strongly_convex",
    "greedy_quasi_sparse_bound",
    "greedy_rate_convex",
    "greedy_rate_strongly_convex",
    "greedy_steps_convex",
    "greedy_steps_strongly_convex",
    "is_quasi_sparse",
    "privacy_factor",
    "quasi_sparsity",
]


def privacy_factor(n: int, epsilon: float, delta: float) -> float:
    """sqrt(ln(1/delta)) / (n epsilon), common to all convex rates; squared for strongly convex ones."""
    return math.sqrt(math.log(1.0 / delta)) / (n * epsilon)


def _positive(values: ArrayLike, what: str) -> np.ndarray:
    out = np.asarray(values, float)
    if out.ndim != 1 or not (np.isfinite(out) & (out > 0.0)).all():
        raise InvalidInput(f"{what} must be positive numbers, one per coordinate.")
    return out


def _weighted_norm(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.sqrt((weights * values**2).sum()))


# ----------------------------------------------------------------------------- block descent (DP-SkGD), Table 1
def block_rate_convex(
    lipschitz: ArrayLike, smoothness: ArrayLike, distance: ArrayLike, probabilities: ArrayLike
) -> float:
    r"""Rate of DP-SkGD for convex problems, :math:`\|L\|_{M^{-1}} R_{M P^{-1}}`, times :func:`privacy_factor`.

    ``lipschitz`` holds, for every coordinate, the Lipschitz constant of its block; ``distance`` is \|w0 - w*\| per
    coordinate; ``probabilities`` are the sampling's. With b uniform blocks this is the printed
    :math:`\|L\|_{M^{-1}} R_M \sqrt b`, with importance sampling
    :math:`\|L\|_{M^{-1}} R_I \sqrt{\sum_i \max_{j \in A_i} M_j}` (Maranjyan, Sadiev & Richtarik, Table 1).
    """
    L, M, p = (_positive(v, "constants") for v in (lipschitz, smoothness, probabilities))
    R = np.abs(np.asarray(distance, float))
    return _weighted_norm(L, 1.0 / M) * _weighted_norm(R, M / p)


def block_rate_strongly_convex(
    lipschitz: ArrayLike, smoothness: ArrayLike, probabilities: ArrayLike, strong_convexity: float
) -> float:
    r"""Rate for strongly convex problems, :math:`\|L\|^2_{M^{-1}} \max_j (M_j/p_j) / \mu`, times the squared factor."""
    L, M, p = (_positive(v, "constants") for v in (lipschitz, smoothness, probabilities))
    return _weighted_norm(L, 1.0 / M) ** 2 * float((M / p).max()) / strong_convexity


def coordinate_rate_convex(lipschitz: ArrayLike, smoothness: ArrayLike, distance: ArrayLike) -> float:
    r"""Rate of DP-CD, :math:`\|L\|_{M^{-1}} R_M \sqrt d` (Mangold et al. 2022), times :func:`privacy_factor`."""
    L, M = _positive(lipschitz, "lipschitz"), _positive(smoothness, "smoothness")
    return _weighted_norm(L, 1.0 / M) * _weighted_norm(np.abs(np.asarray(distance, float)), M) * math.sqrt(len(M))


def coordinate_rate_strongly_convex(lipschitz: ArrayLike, smoothness: ArrayLike, strong_convexity: float) -> float:
    r"""Rate of DP-CD, :math:`\|L\|^2_{M^{-1}} d / \mu_M`, times the squared factor."""
    L, M = _positive(lipschitz, "lipschitz"), _positive(smoothness, "smoothness")
    return _weighted_norm(L, 1.0 / M) ** 2 * len(M) / strong_convexity


def gradient_rate_convex(lipschitz: float, distance: float, d: int) -> float:
    r"""Rate of DP-SGD and DP-SVRG for convex problems, :math:`L R_I \sqrt d`, times :func:`privacy_factor`."""
    return lipschitz * distance * math.sqrt(d)


def gradient_rate_strongly_convex(lipschitz: float, d: int, strong_convexity: float) -> float:
    r"""Rate of DP-SGD and DP-SVRG, :math:`L^2 d / \mu_I`, times the squared factor."""
    return lipschitz**2 * d / strong_convexity


# ------------------------------------------------------------------------- greedy descent (DP-GCD), Theorem 4.4
def greedy_steps_convex(
    n: int, epsilon: float, delta: float, distance: float, smallest_smoothness: float, largest_lipschitz: float
) -> float:
    """Number of steps of order n^(2/3) epsilon^(2/3) R^(2/3) M^(1/3) / (L^(2/3) ln(1/delta)^(1/3)).

    ``distance`` is the largest M-weighted l1 distance from the level set of the start to an optimum.
    """
    top = (n * epsilon * distance) ** (2.0 / 3.0) * smallest_smoothness ** (1.0 / 3.0)
    return float(top / (largest_lipschitz ** (2.0 / 3.0) * math.log(1.0 / delta) ** (1.0 / 3.0)))


def greedy_rate_convex(
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    distance: float,
    smallest_smoothness: float,
    largest_lipschitz: float,
    failure: float = 0.05,
) -> float:
    """Excess of order R^(4/3) L^(2/3) ln(1/delta) ln(p/failure) / (n epsilon)^(2/3) / M^(1/3) (Theorem 4.4, convex)."""
    top = distance ** (4.0 / 3.0) * largest_lipschitz ** (2.0 / 3.0) * math.log(1.0 / delta) * math.log(p / failure)
    return float(top / ((n * epsilon) ** (2.0 / 3.0) * smallest_smoothness ** (1.0 / 3.0)))


def greedy_steps_strongly_convex(
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    strong_convexity: float,
    smallest_smoothness: float,
    largest_lipschitz: float,
    gap: float,
    failure: float = 0.05,
) -> float:
    """Number of steps of order ln(M mu n epsilon gap / (L ln(1/delta) ln(2p/failure))) / mu, at least 1."""
    inside = smallest_smoothness * strong_convexity * n * epsilon * gap
    inside /= largest_lipschitz * math.log(1.0 / delta) * math.log(2.0 * p / failure)
    return max(1.0, math.log(max(inside, math.e)) / strong_convexity)


def greedy_rate_strongly_convex(
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    strong_convexity: float,
    smallest_smoothness: float,
    largest_lipschitz: float,
    failure: float = 0.05,
) -> float:
    """Excess of order L^2 ln(1/delta) ln(2p/(mu failure)) / (M mu^2 n^2 epsilon^2) (Theorem 4.4, strongly convex)."""
    top = largest_lipschitz**2 * math.log(1.0 / delta) * math.log(2.0 * p / (strong_convexity * failure))
    return top / (smallest_smoothness * strong_convexity**2 * (n * epsilon) ** 2)


# ------------------------------------------------------------------------------ quasi-sparsity, Theorem 4.7
def quasi_sparsity(weights: ArrayLike, tolerance: float) -> int:
    """Number of weights above ``tolerance`` in magnitude: the vector is (tolerance, this number)-quasi-sparse.

    >>> quasi_sparsity([3.0, -0.5, 0.01], 0.1)
    2
    """
    return int((np.abs(np.asarray(weights, float)) > tolerance).sum())


def is_quasi_sparse(weights: ArrayLike, tolerance: float, n_large: int) -> bool:
    """Whether at most ``n_large`` weights exceed ``tolerance`` in magnitude (Definition 4.6)."""
    return quasi_sparsity(weights, tolerance) <= n_large


def greedy_quasi_sparse_bound(
    n_steps: int,
    n: int,
    p: int,
    epsilon: float,
    gap: float,
    tolerance: float,
    n_large: int,
    sparsity: int,
    strong_convexity: float,
    smallest_smoothness: float,
    largest_lipschitz: float,
) -> float:
    """Excess after ``n_steps`` on a problem with a (tolerance, n_large)-quasi-sparse solution (Theorem 4.7).

    The contraction of the initial ``gap`` is exact; the two added terms are orders, without their constants and
    logarithms: (T + tau)(p - tau) alpha^2 and L^2 T (T + tau) / (M mu n^2 epsilon^2). Iterates are assumed to have at
    most ``sparsity`` nonzero weights.
    """
    if not 0 <= n_steps <= p - n_large:
        raise InvalidInput("the theorem needs 0 <= n_steps <= p - n_large.")
    left = 1.0
    for t in range(1, n_steps + 1):
        left *= 1.0 - strong_convexity / (4.0 * (n_large + min(t, sparsity)))
    tail = (n_steps + n_large) * (p - n_large) * tolerance**2
    noise = largest_lipschitz**2 * n_steps * (n_steps + n_large)
    return left * gap + tail + noise / (smallest_smoothness * strong_convexity * (n * epsilon) ** 2)
