r"""The analysis of DP-GCD as functions: its lemmas and the bounds of its theorems, with all constants.

Names and numbers are those of Mangold, Bellet, Salmon & Tommasi (AISTATS 2023), appendix B. f is convex and
M-component-smooth, :math:`\|v\|_{M,q} = (\sum_j M_j^{q/2} |v_j|^q)^{1/q}`; a step updates coordinate j with Laplace
noise eta after a choice with Laplace noise chi, and j* would have been chosen without noise. Where a printed constant
does not follow from its proof, the function has the one that does, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from itertools import product as cartesian

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput

__all__ = [
    "convex_bound",
    "convex_step_bound",
    "convex_steps",
    "gap_from_gradient",
    "l1_strong_convexity",
    "noise_level",
    "noise_of_a_step",
    "noisy_recursion_bound",
    "printed_scale",
    "quasi_sparse_bound",
    "step_bound",
    "strongly_convex_bound",
    "strongly_convex_steps",
    "sum_of_squares_tail",
    "weighted_norm",
]

_MOST_CASES = 2_000_000  # bounds the time of listing supports and signs


def weighted_norm(values: ArrayLike, smoothness: ArrayLike, order: float) -> float:
    r""":math:`\|v\|_{M,q}` for q = 1 or 2; q = inf gives the dual norm :math:`\|v\|_{M^{-1},\infty}` of gradients.

    >>> weighted_norm([3.0, 4.0], [4.0, 1.0], 1), weighted_norm([3.0, 4.0], [4.0, 1.0], math.inf)
    (10.0, 4.0)
    """
    v, root = np.abs(np.asarray(values, float)), np.sqrt(np.asarray(smoothness, float))
    if order == 1:
        return float((root * v).sum())
    if order == 2:
        return float(np.sqrt(((root * v) ** 2).sum()))
    if order == math.inf:
        return float((v / root).max())
    raise InvalidInput(f"the order of the norm must be 1, 2 or inf, not {order!r}.")


# ------------------------------------------------------------------------------------------------------- noise
def printed_scale(n_steps: int, n: int, epsilon: float, delta: float, lipschitz: float) -> float:
    """Scale of the Laplace noise in every mean gradient, 8 L sqrt(T ln(1/delta)) / (n epsilon) (Theorem 4.2)."""
    return 8.0 * lipschitz * math.sqrt(n_steps * math.log(1.0 / delta)) / (n * epsilon)


def sum_of_squares_tail(scales: Sequence[float], threshold: float) -> float:
    """Bound on P(sum of squared Laplace variables >= threshold): 2^K exp(-sqrt(threshold) / (2 max scale)) (Lemma B.1).

    >>> sum_of_squares_tail([1.0], 0.0)
    1.0
    """
    exponent = len(scales) * math.log(2.0) - math.sqrt(threshold) / (2.0 * max(scales))
    return min(1.0, math.exp(exponent))


def noise_level(n_steps: int, p: int, scale: float, smallest_smoothness: float, failure: float) -> float:
    """Return beta = 2 scale^2 ln(8 T p / failure)^2 / M_min, which no step's noise exceeds but with that probability.

    It follows from Lemma B.1 for three variables and a union over steps and coordinates, eq. (34).
    """
    return 2.0 * scale**2 * math.log(8.0 * n_steps * p / failure) ** 2 / smallest_smoothness


# ------------------------------------------------------------------------------------------------------- one step
def noise_of_a_step(
    update: float, choice: float, choice_of_best: float, smoothness: float, smoothness_of_best: float
) -> float:
    """Return eta^2 / (2 M_j) + chi_j^2 / (2 M_j) + chi_j*^2 / (4 M_j*), what noise can add to the gap in one step."""
    return (update**2 + choice**2) / (2.0 * smoothness) + choice_of_best**2 / (4.0 * smoothness_of_best)


def step_bound(gap: float, gradient_norm: float, noise: float) -> float:
    """Bound on f(w') - f* after a step of 1/M_j (Lemma B.2): gap - gradient_norm^2 / 8 + noise.

    ``gradient_norm`` is the :func:`weighted_norm` of order inf of the gradient, ``noise`` is :func:`noise_of_a_step`.
    """
    return gap - gradient_norm**2 / 8.0 + noise


def convex_step_bound(gap: float, distance: float, noise: float) -> float:
    """The same from the distance |w - w*| of order 1 (Lemma B.3): gap - gap^2 / (8 distance^2) + noise."""
    return gap - gap**2 / (8.0 * distance**2) + noise


def noisy_recursion_bound(t: int, c: float, beta: float) -> float:
    """Bound c/t + 2 sqrt(beta c) on xi_t, where xi_(t+1) <= xi_t - xi_t^2 / c + beta (Lemma B.4).

    It holds for nonnegative sequences with beta <= c and xi_0 >= 2 sqrt(beta c), from t = 1 on.
    """
    if not 0.0 <= beta <= c or t < 1:
        raise InvalidInput("Lemma B.4 needs 0 <= beta <= c and t >= 1.")
    return c / t + 2.0 * math.sqrt(beta * c)


# ------------------------------------------------------------------------------------------------------- convex
def convex_bound(n_steps: int, distance: float, beta: float) -> float:
    """Excess after T steps, 8 R^2 / T + sqrt(32 R^2 beta) (Theorem 4.4, convex, eq. (28)).

    ``distance`` R is the largest order-1 distance from the level set of the start to an optimum; the bound needs a
    start whose gap is at least sqrt(32 R^2 beta) and beta <= 8 R^2, and then holds but for the failure of ``beta``.
    """
    return 8.0 * distance**2 / n_steps + math.sqrt(32.0 * distance**2 * beta)


def convex_steps(
    n: int, epsilon: float, delta: float, distance: float, smallest_smoothness: float, largest_lipschitz: float
) -> int:
    """T of Theorem 4.4, convex: (n^2 epsilon^2 R^2 M_min / (2^7 L_max^2 ln(1/delta)))^(1/3), at least 1.

    Before eq. (37) the paper prints the same expression with 1/4 in place of 2^(-7/3), about 1/5. Without the logarithm
    in beta twice as many steps minimise :func:`convex_bound`; the bound at T is at most a third larger.
    """
    inside = (n * epsilon * distance) ** 2 * smallest_smoothness / (2.0**7 * largest_lipschitz**2 * -math.log(delta))
    return max(1, round(float(inside ** (1.0 / 3.0))))


# ------------------------------------------------------------------------------------------- strongly convex
def l1_strong_convexity(hessian: ArrayLike, smoothness: ArrayLike, sparsity: int) -> float:
    r"""Return :math:`\mu_{M,1}^{(k)}` of a quadratic over vectors that share a support of k coordinates, exactly.

    The smallest of d^T H d with :math:`\|d\|_{M,1} = 1` on a support is 1 / max over signs of b^T H^-1 b with
    b_j = +- sqrt(M_j); all supports and signs are listed, so k must be small.

    >>> l1_strong_convexity(np.eye(2), [1.0, 1.0], 1), round(l1_strong_convexity(np.eye(2), [1.0, 1.0], 2), 12)
    (1.0, 0.5)
    """
    H, root = np.asarray(hessian, float), np.sqrt(np.asarray(smoothness, float))
    p = len(root)
    k = min(sparsity, p)
    if k < 1 or math.comb(p, k) * 2**k > _MOST_CASES:
        raise InvalidInput(f"supports of {k} of {p} coordinates cannot be listed: choose a smaller sparsity, from 1.")
    signs = np.array([(1.0, *rest) for rest in cartesian((-1.0, 1.0), repeat=k - 1)])
    largest = 0.0
    for support in combinations(range(p), k):
        b = signs * root[list(support)]
        largest = max(largest, float((b * np.linalg.solve(H[np.ix_(support, support)], b.T).T).sum(1).max()))
    return 1.0 / largest


def gap_from_gradient(
    gradient_norm: float,
    strong_convexity: float,
    p: int,
    tolerance: float = 0.0,
    n_large: int = 0,
    largest_smoothness: float = 0.0,
) -> float:
    r"""Bound on f(w) - f* from the gradient: its norm^2 / (2 mu) + M_max (p - tau) alpha^2 / 2 (Lemma B.5).

    ``strong_convexity`` is :math:`\mu_{M,1}^{(t + \tau)}` for a t-sparse w and an optimum that is (tolerance,
    n_large)-quasi-sparse; without a tolerance this is Corollary B.6. (The lemma as printed lacks a square.)
    """
    tail = 0.5 * largest_smoothness * (p - n_large) * tolerance**2
    return gradient_norm**2 / (2.0 * strong_convexity) + tail


def strongly_convex_bound(n_steps: int, gap: float, strong_convexity: float, beta: float) -> float:
    """Excess after T steps, (1 - mu/4)^T gap + 4 beta / mu (Theorem 4.4, strongly convex, eq. (54)).

    ``beta`` is :func:`noise_level` for the scale of the noise. With :func:`printed_scale` it is 128 L^2 T ln(1/delta)
    ln(8 T p / failure)^2 / (M n^2 epsilon^2): eq. (55) prints 32 instead, a quarter of what its own scale gives, and
    eq. (50) a contraction of 1 - mu/2, which the proof does not reach.
    """
    return (1.0 - strong_convexity / 4.0) ** n_steps * gap + 4.0 * beta / strong_convexity


def strongly_convex_steps(
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    strong_convexity: float,
    smallest_smoothness: float,
    largest_lipschitz: float,
    gap: float,
    failure: float = 0.05,
) -> int:
    """T = (4/mu) ln(mu M n^2 epsilon^2 gap / (128 L^2 ln(1/delta) ln(8p/failure))), at least 1 (before eq. (56))."""
    inside = strong_convexity * smallest_smoothness * (n * epsilon) ** 2 * gap
    inside /= 128.0 * largest_lipschitz**2 * math.log(1.0 / delta) * math.log(8.0 * p / failure)
    return max(1, round(4.0 / strong_convexity * math.log(max(inside, 1.0))))


def quasi_sparse_bound(
    n_steps: int,
    gap: float,
    strong_convexity: float,
    beta: float,
    p: int,
    tolerance: float,
    n_large: int,
    sparsity: int,
    largest_smoothness: float,
) -> float:
    r"""Excess after T steps from w = 0 with a (tolerance, n_large)-quasi-sparse optimum (Theorem 4.7, eq. (58)).

    With k = min(sparsity, T) + n_large and mu the strong convexity in the norm of order 2:
    (1 - mu/(4 k))^T gap + 4 k beta / mu + M_max (p - n_large) tolerance^2 / 2. The last term differs from the printed
    k (p - tau) alpha^2 / 8: that lacks the M_max of Lemma B.5, and its derivation takes the strong convexity on sparse
    vectors for at most that on all, while it is at least that. With A = M_max (p - tau) alpha^2 / 2 the recursion of
    eq. (61) is x' - A <= (1 - mu_t/4) (x - A) + beta, so A is added once and without k.
    """
    k = min(sparsity, n_steps) + n_large
    left = (1.0 - strong_convexity / (4.0 * k)) ** n_steps * gap
    return left + 4.0 * k * beta / strong_convexity + 0.5 * largest_smoothness * (p - n_large) * tolerance**2
