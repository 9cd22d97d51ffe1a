r"""Curvature constants of block Frank-Wolfe, and the convergence bounds made of them.

The expected curvature of f under a sampling (Lou & Cheung, AAAI 2018, Definition 2) is

.. math:: C = \sup_{x, s \in M,\, 0 < \gamma \le 1} \; \mathbb{E}_S \, \tfrac{2}{\gamma^2}
   \bigl( f(x + \gamma (s - x)_S) - f(x) - \gamma \langle (s - x)_S, \nabla f(x) \rangle \bigr)

For a quadratic with Hessian H the bracket is :math:`\gamma^2/2 \, (s-x)_S^\top H (s-x)_S`, and with P the matrix of
pair probabilities, repeated over the coordinates of the blocks,

.. math:: C = \max_{\delta \in M - M} \delta^\top (P \circ H) \, \delta,

a convex function whose maximum is at a corner of the difference body: found here by listing corners. For any other f
the same numbers are upper bounds if f(y) <= f(x) + <y - x, grad f(x)> + (y - x)^T H (y - x) / 2 on the set (Assumption
2 with H = A^T A).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from itertools import product as cartesian

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dperm.errors import InvalidInput, Unsupported
from dperm.objective import Box, Constraint, L1Ball, Simplex
from dperm.solvers.sampling import DistributedSampling, ElementarySampling, NiceSampling, Sampling
from dperm.solvers.theory.block_frank_wolfe import ProductSet
from dperm.types import FloatArray
from dperm.validation import non_negative

__all__ = [
    "Quadratic",
    "distributed_bound",
    "eso_bound",
    "expected_curvature",
    "expected_set_curvature",
    "gap_bound",
    "global_curvature",
    "jaggi_bound",
    "lacoste_julien_bound",
    "nice_bound",
    "normalised_eigenvalue",
    "pairwise_bound",
    "product_curvature",
    "relations",
    "set_curvature",
    "sharp_gap_bound",
    "wang_bound",
]


_MOST_CORNERS = 500_000
_CHUNK = 1 << 14


class Quadratic:
    """f(x) = x^T H x / 2 + linear^T x, H symmetric and positive semidefinite.

    >>> Quadratic(2.0 * np.eye(2), [1.0, 0.0]).value(np.array([1.0, 1.0]))
    3.0
    """

    def __init__(self, hessian: ArrayLike, linear: ArrayLike | None = None) -> None:
        self.hessian = _hessian(hessian)
        d = len(self.hessian)
        self.linear = np.zeros(d) if linear is None else np.array(linear, np.float64)
        if self.linear.shape != (d,) or not np.isfinite(self.linear).all():
            raise InvalidInput(f"linear must be {d} finite numbers.")

    def value(self, x: FloatArray) -> float:
        """f(x)."""
        return float(x @ (0.5 * (self.hessian @ x) + self.linear))

    def partial(self, x: FloatArray, coordinates: NDArray[np.intp]) -> FloatArray:
        """Gradient at x in some coordinates."""
        out: FloatArray = self.hessian[coordinates] @ x + self.linear[coordinates]
        return out


# ------------------------------------------------------------------------------------------------- exact curvatures
def expected_curvature(hessian: ArrayLike, product: ProductSet, sampling: Sampling) -> float:
    """Expected curvature of a quadratic, exact; needs few enough corners to list.

    >>> from dperm.objective import Box
    >>> square = ProductSet.equal(Box(0.0, 1.0), n_blocks=2)
    >>> expected_curvature(np.ones((2, 2)), square, NiceSampling(2, 1)), global_curvature(np.ones((2, 2)), square)
    (1.0, 4.0)
    """
    matrix = _fitting(hessian, product)
    if sampling.d != product.n_blocks:
        raise InvalidInput(f"the sampling is over {sampling.d} blocks and the product has {product.n_blocks}.")
    owner = _owners(product)
    return _largest(matrix * sampling.pairs()[np.ix_(owner, owner)], product, range(product.n_blocks))


def global_curvature(hessian: ArrayLike, product: ProductSet) -> float:
    """C_f of Jaggi (2013): the expected curvature when all blocks move."""
    return expected_curvature(hessian, product, ElementarySampling(product.n_blocks))


def set_curvature(hessian: ArrayLike, product: ProductSet, subset: Sequence[int]) -> float:
    """Curvature when exactly the blocks in ``subset`` move (Wang et al., ICML 2016)."""
    chosen = sorted(int(i) for i in subset)
    if len(set(chosen)) < len(chosen) or not all(0 <= i < product.n_blocks for i in chosen):
        raise InvalidInput(f"subset must name different blocks of 0..{product.n_blocks - 1}, not {subset!r}.")
    return _largest(_fitting(hessian, product), product, chosen)


def expected_set_curvature(hessian: ArrayLike, product: ProductSet, sampling: Sampling) -> float:
    """Mean of :func:`set_curvature` over the subsets of a sampling; C_f^tau for a tau-nice one."""
    return math.fsum(q * set_curvature(hessian, product, subset) for subset, q in sampling.subsets())


def product_curvature(hessian: ArrayLike, product: ProductSet) -> float:
    """Sum of the curvatures of single blocks (Lacoste-Julien et al., ICML 2013)."""
    return math.fsum(_block_curvatures(_fitting(hessian, product), product))


# ------------------------------------------------------------------------------------------------------ upper bounds
def normalised_eigenvalue(matrix: ArrayLike, blocks: Sequence[Sequence[int]] | None = None) -> float:
    """Largest v^T M v over v^T D v <= 1, D the (block) diagonal of a positive semidefinite M.

    >>> round(normalised_eigenvalue([[4.0, 2.0], [2.0, 1.0]]), 12)
    2.0
    """
    m = _hessian(matrix)
    roots = []
    # block by block, as scales may differ by any factor; a positive semidefinite M vanishes where its diagonal does
    for block in [[j] for j in range(len(m))] if blocks is None else blocks:
        values, vectors = np.linalg.eigh(m[np.ix_(block, block)])
        kept = values > 1e-12 * max(values[-1], 0.0)
        part = np.zeros((len(m), int(kept.sum())))
        part[list(block)] = vectors[:, kept] / np.sqrt(values[kept])
        roots.append(part)
    root = np.hstack(roots)
    if not root.shape[1]:
        return 1.0
    return float(np.linalg.eigvalsh(root.T @ m @ root)[-1])


def eso_bound(hessian: ArrayLike, product: ProductSet, sampling: Sampling) -> float:
    r"""Proposition 1: :math:`C \le \sum_i p_i \beta_i D_i^2`.

    :math:`\beta_i = \min(\lambda'(P), \lambda'(H)) \, \|H_{ii}\|` with the normalised eigenvalues of pair probabilities
    and Hessian (the separable overapproximation of Qu & Richtarik, 2016) and D_i the L2 diameter of block i's set.
    For blocks of several coordinates :math:`\lambda'(H)` is taken against the block diagonal.
    """
    matrix = _fitting(hessian, product)
    factor = min(normalised_eigenvalue(sampling.pairs()), normalised_eigenvalue(matrix, product.blocks))
    norms = np.array([np.linalg.norm(matrix[np.ix_(b, b)], 2) for b in product.blocks])
    return float(factor * (sampling.probabilities @ (norms * product.diameters**2)))


def pairwise_bound(hessian: ArrayLike, product: ProductSet, sampling: Sampling) -> float:
    """Sum over pairs of blocks of their probability times their largest product: for every sampling, and never above
    the bounds of propositions 3 and 4, which replace the means by maxima.
    """
    return float(np.sum(sampling.pairs() * _pair_products(_fitting(hessian, product), product)))


def nice_bound(hessian: ArrayLike, product: ProductSet, tau: int) -> float:
    r"""Proposition 3: :math:`\tau \mu_1 + \tau (\tau - 1) \mu_2` bounds the expected curvature of tau-nice sampling.

    :math:`\mu_1` is the largest :math:`\delta_i^\top H_{ii} \delta_i`, :math:`\mu_2` the largest
    :math:`\delta_i^\top H_{ij} \delta_j` of two different blocks, :math:`\delta` in the difference body.
    """
    tau = NiceSampling(product.n_blocks, tau).tau
    products = _pair_products(_fitting(hessian, product), product)
    off = ~np.eye(product.n_blocks, dtype=bool)
    return float(tau * products.diagonal().max() + tau * (tau - 1) * products[off].max(initial=0.0))


def distributed_bound(hessian: ArrayLike, product: ProductSet, sampling: DistributedSampling) -> float:
    r"""Proposition 4: :math:`K \tau \mu_1 + K \tau (\tau - 1) \mu_2 + K (K - 1) \tau^2 \mu_3`.

    As in :func:`nice_bound`, with :math:`\mu_2` over pairs of one party and :math:`\mu_3` over pairs of two parties.
    It also holds for parties of unequal size.
    """
    products = _pair_products(_fitting(hessian, product), product)
    if sampling.d != product.n_blocks:
        raise InvalidInput(f"the sampling is over {sampling.d} blocks and the product has {product.n_blocks}.")
    party = np.empty(sampling.d, int)
    for k, part in enumerate(sampling.parts):
        party[list(part)] = k
    same = party[:, None] == party[None, :]
    inner = products[same & ~np.eye(sampling.d, dtype=bool)].max(initial=0.0)
    outer = products[~same].max(initial=0.0)
    k, tau = len(sampling.parts), sampling.tau
    return float(k * tau * products.diagonal().max() + k * tau * (tau - 1) * inner + k * (k - 1) * tau**2 * outer)


def relations(hessian: ArrayLike, product: ProductSet, sampling: Sampling) -> dict[str, tuple[float, float]]:
    """Inequalities that the expected curvature must satisfy, as (smaller, larger) sides.

    Propositions 1 to 4 where they apply to ``sampling``. Behind proposition 2 are two facts that hold for every
    sampling: the largest mean is at most the mean of the largest, and a block that does not move (s_i = x_i) is allowed
    when all may move.
    """
    exact = expected_curvature(hessian, product, sampling)
    probabilities = sampling.probabilities
    out = {
        "eso": (exact, eso_bound(hessian, product, sampling)),
        "pairwise": (exact, pairwise_bound(hessian, product, sampling)),
        "expected set curvature": (exact, expected_set_curvature(hessian, product, sampling)),
        "global curvature": (exact, global_curvature(hessian, product)),
    }
    if np.count_nonzero(sampling.pairs()) == product.n_blocks:  # never two blocks at once
        out["product curvature"] = (exact, float(probabilities.max()) * product_curvature(hessian, product))
    if isinstance(sampling, ElementarySampling):
        out["elementary"] = (global_curvature(hessian, product), exact)
    if isinstance(sampling, NiceSampling):
        out["nice"] = (exact, nice_bound(hessian, product, sampling.tau))
    if isinstance(sampling, DistributedSampling):
        out["distributed"] = (exact, distributed_bound(hessian, product, sampling))
    return out


# ------------------------------------------------------------------------------------------------------- convergence
def gap_bound(h0: float, curvature: float, p_min: float, t: int, rho: float = 0.0) -> float:
    r"""Bound on the expected gap after ``t`` steps of block Frank-Wolfe under any sampling (Theorem 1).

    .. math:: \mathbb{E} f(x_t) - f^* \le \frac{2 \, (h_0 + (1 + \rho) \, C / p)}{p \, t + 2}

    C is the expected curvature, p the smallest probability of a block (K tau / d for (K, tau)-distributed sampling) and
    h_0 the first gap. The printed equation multiplies h_0 by C as well, a slip: it would make the gap of every
    linear function zero. Proof: one step gives E h' <= (1 - gamma p) h + gamma^2 (1 + rho) C / 2; with
    Q >= max(h_0, (1 + rho) C / p) and gamma = 2/(p t + 2), induction gives h_t <= 2 Q/(p t + 2), since
    (a - p)(a + p) <= a^2 at a = p t + 2.

    >>> gap_bound(1.0, 1.0, 1.0, 2)
    1.0
    """
    h0, curvature, p_min, rho = _rates(h0, curvature, p_min, rho, t)
    return 2.0 * (h0 + (1.0 + rho) * curvature / p_min) / (p_min * t + 2.0)


def sharp_gap_bound(h0: float, curvature: float, p_min: float, t: int, rho: float = 0.0) -> float:
    """:func:`gap_bound` with the larger of its two terms in place of their sum, which its proof allows."""
    h0, curvature, p_min, rho = _rates(h0, curvature, p_min, rho, t)
    return 2.0 * max(h0, (1.0 + rho) * curvature / p_min) / (p_min * t + 2.0)


def jaggi_bound(curvature: float, t: int, rho: float = 0.0) -> float:
    """2 (1 + rho) C_f / (t + 2), t >= 1, all blocks always (Jaggi 2013): the first step, of length 1, forgets h_0.

    It is :func:`sharp_gap_bound` with p = 1 and a first gap of at most (1 + rho) C_f.
    """
    if t < 1:
        raise InvalidInput(f"this bound holds from t = 1 on, not at {t!r}.")
    return sharp_gap_bound(0.0, curvature, 1.0, t, rho)


def lacoste_julien_bound(h0: float, curvature: float, n_blocks: int, t: int, rho: float = 0.0) -> float:
    """2 d (h_0 + (1 + rho) C) / (t + 2 d), one of d blocks at a time, C the product curvature (2013)."""
    return gap_bound(h0, curvature / n_blocks, 1.0 / n_blocks, t, rho)


def wang_bound(h0: float, curvature: float, n_blocks: int, tau: int, t: int, rho: float = 0.0) -> float:
    """2 d (h_0 + (1 + rho) d C) / (tau^2 t + 2 d), C the expected set curvature (Wang et al. 2016).

    For their own step 2 d tau / (tau^2 t + 2 d), not the universal one; here for comparison.
    """
    h0, curvature, _, rho = _rates(h0, curvature, 1.0, rho, t)
    return 2.0 * n_blocks * (h0 + (1.0 + rho) * n_blocks * curvature) / (tau**2 * t + 2.0 * n_blocks)


# ----------------------------------------------------------------------------------------------------------- parts
def _rates(h0: float, curvature: float, p_min: float, rho: float, t: int) -> tuple[float, float, float, float]:
    if not 0.0 < p_min <= 1.0 + 1e-12:
        raise InvalidInput(f"p_min must be a probability above 0, not {p_min!r}.")
    if t < 0:
        raise InvalidInput(f"t must be 0 or more, not {t!r}.")
    return non_negative("h0", h0), non_negative("curvature", curvature), float(p_min), non_negative("rho", rho)


def _hessian(matrix: ArrayLike) -> FloatArray:
    m = np.array(matrix, np.float64)
    if m.ndim != 2 or m.shape[0] != m.shape[1] or m.size == 0 or not np.isfinite(m).all():
        raise InvalidInput(f"hessian must be a square matrix of finite numbers, not of shape {m.shape}.")
    scale = float(np.abs(m).max())
    if not np.allclose(m, m.T, rtol=0.0, atol=1e-10 * scale) or np.linalg.eigvalsh(m)[0] < -1e-9 * len(m) * scale:
        raise InvalidInput("hessian must be symmetric and positive semidefinite.")
    return 0.5 * (m + m.T)


def _fitting(hessian: ArrayLike, product: ProductSet) -> FloatArray:
    matrix = _hessian(hessian)
    if len(matrix) != product.d:
        raise InvalidInput(f"hessian has {len(matrix)} rows and the product {product.d} coordinates.")
    return matrix


def _owners(product: ProductSet) -> NDArray[np.intp]:
    """Block of every coordinate."""
    owner = np.empty(product.d, np.intp)
    for i, block in enumerate(product.blocks):
        owner[list(block)] = i
    return owner


def _difference_corners(constraint: Constraint, size: int) -> FloatArray:
    """Corners of {s - x : s, x in the set}, one per row; points inside may be missing, corners may not."""
    if isinstance(constraint, L1Ball):  # the difference body of a symmetric set is twice the set
        return 2.0 * constraint.radius * np.vstack([np.eye(size), -np.eye(size)])
    if isinstance(constraint, Simplex):
        unit = constraint.radius * np.eye(size)
        return np.array([unit[a] - unit[b] for a, b in permutations(range(size), 2)]) if size > 1 else np.zeros((1, 1))
    if isinstance(constraint, Box):
        _check_count(2.0**size)
        widths = constraint.best_atom(-np.ones(size)) - constraint.best_atom(np.ones(size))
        signs: FloatArray = np.array(list(cartesian((-1.0, 1.0), repeat=size)))
        return signs * widths
    raise Unsupported(f"exact curvatures are known for boxes, simplices and l1 balls, not for {constraint.name!r}.")


def _check_count(count: float) -> None:
    if count > _MOST_CORNERS:
        raise Unsupported(f"{count:.3g} corners are too many to list: use one of the bounds instead.")


def _largest(form: FloatArray, product: ProductSet, chosen: Sequence[int]) -> float:
    """Largest delta^T form delta over the corners of the difference body in the chosen blocks, 0 elsewhere."""
    if not len(chosen):
        return 0.0
    corners = [_difference_corners(product.constraints[i], len(product.blocks[i])) for i in chosen]
    _check_count(math.prod(float(len(c)) for c in corners))
    columns = [j for i in chosen for j in product.blocks[i]]
    small = form[np.ix_(columns, columns)]
    sizes = [len(c) for c in corners]
    best = 0.0
    for start in range(0, math.prod(sizes), _CHUNK):
        which = np.unravel_index(np.arange(start, min(start + _CHUNK, math.prod(sizes))), sizes)
        delta = np.hstack([c[w] for c, w in zip(corners, which, strict=True)])
        best = max(best, float(np.einsum("ij,ij->i", delta @ small, delta).max()))
    return best


def _block_curvatures(matrix: FloatArray, product: ProductSet) -> list[float]:
    return [_largest(matrix, product, [i]) for i in range(product.n_blocks)]


def _pair_products(matrix: FloatArray, product: ProductSet) -> FloatArray:
    """Largest delta_i^T H_ij delta_j for every pair of blocks; on the diagonal the same delta on both sides."""
    corners = [_difference_corners(c, len(b)) for c, b in zip(product.constraints, product.blocks, strict=True)]
    out = np.diag(_block_curvatures(matrix, product))
    for i, a in enumerate(product.blocks):
        for j, b in enumerate(product.blocks[:i]):
            out[i, j] = out[j, i] = float((corners[i] @ matrix[np.ix_(a, b)] @ corners[j].T).max())
    return out
