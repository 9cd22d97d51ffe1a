r"""Table 1 of the DP-SkGD paper (Maranjyan, Sadiev & Richtarik), row by row, as functions of M, L, R and the blocks.

Rates are orders of magnitude. A convex rate is multiplied by :func:`~dperm.solvers.theory.rates.privacy_factor`, a
strongly convex one by its square. Rows of the paper's own method are special cases of
:func:`~dperm.solvers.theory.rates.block_rate_convex`; here they stand as they are printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput
from dperm.solvers.coordinate_sampling import BlockSampling
from dperm.solvers.theory import rates
from dperm.types import FloatArray

__all__ = ["BlockProblem", "PrintedRate", "block_lipschitz", "importance_gain", "sketch", "table1"]


@dataclass(frozen=True)
class BlockProblem:
    r"""What the rates depend on.

    Parameters
    ----------
    smoothness : tuple of float
        :math:`M_j`, smoothness of every coordinate.
    lipschitz : tuple of float
        :math:`L_j`, Lipschitz constant of every coordinate.
    distance : tuple of float
        :math:`|w^0_j - w^*_j|` of every coordinate.
    strong_convexity : float
        mu in the l2 norm.
    relative_convexity : float
        :math:`\mu_M`, strong convexity in the norm weighted by M.
    """

    smoothness: tuple[float, ...]
    lipschitz: tuple[float, ...]
    distance: tuple[float, ...]
    strong_convexity: float
    relative_convexity: float

    def __post_init__(self) -> None:
        if len({len(self.smoothness), len(self.lipschitz), len(self.distance)}) != 1:
            raise InvalidInput("smoothness, lipschitz and distance need one number per coordinate.")

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return len(self.smoothness)


@dataclass(frozen=True)
class PrintedRate:
    """A row of the table: method, sampling, number of blocks and both rates, without their common factors."""

    method: str
    sampling: str
    n_blocks: int
    convex: float
    strongly_convex: float


def block_lipschitz(lipschitz: ArrayLike, blocks: Sequence[Sequence[int]]) -> FloatArray:
    r"""Return :math:`L_{\{A_1, ..., A_b\}}`: every coordinate gets the Lipschitz constant of its block.

    By the triangle inequality along coordinates a block's constant is at most the root of its sum of squares.

    >>> block_lipschitz([3.0, 4.0, 1.0], [[0, 1], [2]]).tolist()
    [5.0, 5.0, 1.0]
    """
    each = np.asarray(lipschitz, float)
    out = np.empty_like(each)
    for block in blocks:
        out[list(block)] = math.sqrt(float((each[list(block)] ** 2).sum()))
    return out


def sketch(drawn: Sequence[int], probabilities: ArrayLike) -> FloatArray:
    """Return the diagonal of the sketch C(S): 1/p_j for drawn coordinates, else 0; its mean is the identity."""
    p = np.asarray(probabilities, float)
    out = np.zeros_like(p)
    out[list(drawn)] = 1.0 / p[list(drawn)]
    return out


def table1(problem: BlockProblem, n_blocks: int) -> list[PrintedRate]:
    """All rows of the table: b = ``n_blocks``, b = d, b = 1, and the methods that it is compared with.

    The importance row prints its strongly convex rate without the square of the norm, which the row above it has and
    its derivation gives; it is squared here. The convex rate of DP-SGD is illegible in the table: that of Bassily et
    al. (2014) is L R sqrt(d).
    """
    rows = []
    for b in dict.fromkeys((n_blocks, problem.d)):
        rows += _block_rows(problem, b)
    M, R = (np.asarray(one, float) for one in (problem.smoothness, problem.distance))
    rows.append(
        PrintedRate(
            "DP-CD",
            "uniform",
            problem.d,
            rates.coordinate_rate_convex(problem.lipschitz, M, R),
            rates.coordinate_rate_strongly_convex(problem.lipschitz, M, problem.relative_convexity),
        )
    )
    whole = math.sqrt(math.fsum(one**2 for one in problem.lipschitz))
    trace = float((1.0 / M).sum())
    rows.append(
        PrintedRate(
            "DP-SkGD",
            "all coordinates",
            1,
            whole * math.sqrt(trace * float((M * R**2).sum())),
            whole**2 * trace * float(M.max()) / problem.strong_convexity,
        )
    )
    rows.append(
        PrintedRate(
            "DP-SGD, DP-SVRG",
            "all coordinates",
            1,
            rates.gradient_rate_convex(whole, float(np.linalg.norm(R)), problem.d),
            rates.gradient_rate_strongly_convex(whole, problem.d, problem.strong_convexity),
        )
    )
    return rows


def _block_rows(problem: BlockProblem, b: int) -> list[PrintedRate]:
    M, R = (np.asarray(one, float) for one in (problem.smoothness, problem.distance))
    blocks = [block for block, _ in BlockSampling.uniform(problem.d, b).subsets()]
    norm = float(np.sqrt((block_lipschitz(problem.lipschitz, blocks) ** 2 / M).sum()))
    largest = math.fsum(max(M[j] for j in block) for block in blocks)
    mu, in_m = problem.strong_convexity, float(np.sqrt((M * R**2).sum()))
    return [
        PrintedRate("DP-SkGD", "uniform", b, norm * in_m * math.sqrt(b), norm**2 * float(M.max()) * b / mu),
        PrintedRate(
            "DP-SkGD",
            "importance",
            b,
            norm * float(np.linalg.norm(R)) * math.sqrt(largest),
            norm**2 * largest / mu,
        ),
    ]


def importance_gain(problem: BlockProblem, n_blocks: int) -> tuple[float, float]:
    """Factors by which importance sampling lowers the convex and the strongly convex rate, by the general row.

    They are at most sqrt(b) and b; the paper's example, where one coordinate has all smoothness and all distance,
    reaches both.
    """
    uniform = BlockSampling.uniform(problem.d, n_blocks)
    lipschitz = block_lipschitz(problem.lipschitz, [block for block, _ in uniform.subsets()])
    chances = [one.probabilities for one in (uniform, BlockSampling.importance(problem.smoothness, n_blocks))]
    M, mu = problem.smoothness, problem.strong_convexity
    convex = [rates.block_rate_convex(lipschitz, M, problem.distance, one) for one in chances]
    strongly = [rates.block_rate_strongly_convex(lipschitz, M, one, mu) for one in chances]
    return convex[0] / convex[1], strongly[0] / strongly[1]
