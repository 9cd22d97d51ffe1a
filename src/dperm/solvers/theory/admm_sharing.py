r"""The analysis of ADMM sharing as functions: conditions on rho, the descent of a round, and the constant of its rate.

The problem is :math:`\min l(\sum_m D_m x_m) + \sum_m R_m(x_m)`, l a sum of losses whose slopes change by at most
``lipschitz`` times the change of the prediction. Names and numbers are those of Hu, Liu et al. (KDD 2019), section 3
and appendix 7. A party's step may have extra curvature rho * ``damping`` along :math:`D_m`; the printed step has none.
With M parties, :math:`\sigma_m` an eigenvalue of :math:`D_m^\top D_m`, and :math:`R_m` ``strength``-strongly convex, a
round lowers the augmented Lagrangian by at least

.. math:: \sum_m \tfrac12 \bigl(\text{strength} + \rho \, (2 + 2 \, \text{damping} - M) \, \sigma_m \bigr)
   \|\Delta x_m\|^2 + \bigl(\tfrac{\gamma}{2} - \tfrac{L^2}{\rho}\bigr) \|\Delta z\|^2 .

This corrects Lemma 4. The paper's Lemma 3 holds for at most two parties, and its condition 2(b),
:math:`\gamma_m(\rho) > 2 \sigma_{\max}`, lacks a factor rho: three parties with the printed step can meet it while the
Lagrangian falls by less than the lemma says, and at small rho they can diverge. Damping above M/2 - 1 cures both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput

__all__ = [
    "SharingProblem",
    "augmented_lagrangian",
    "joint_change",
    "printed_block_condition",
    "separate_change",
    "smallest_rho",
]


def smallest_rho(lipschitz: float, *, convex: bool) -> float:
    r"""Return the rho above which the dual step costs less than the z-step gains: rho gamma(rho) > 2 L^2 and rho > L.

    gamma(rho), the strong convexity of the z-step, is rho for a convex loss and rho - L for any other (condition 2(c)).

    >>> round(smallest_rho(0.25, convex=True), 4), smallest_rho(0.25, convex=False)
    (0.3536, 0.5)
    """
    return (math.sqrt(2.0) if convex else 2.0) * lipschitz


def printed_block_condition(rho: float, smallest: float, largest: float, strength: float = 0.0) -> bool:
    """Whether strength + rho * smallest > 2 * largest, for eigenvalues of D_m' D_m (condition 2(b) as printed)."""
    return strength + rho * smallest > 2.0 * largest


def augmented_lagrangian(
    loss: float, penalty: float, scores: ArrayLike, z: ArrayLike, dual: ArrayLike, rho: float
) -> float:
    """Return l(z) + R(x) + <y, s - z> + rho/2 |s - z|^2, s the sum of partial scores (equation (5))."""
    gap = np.asarray(scores, float) - np.asarray(z, float)
    return float(loss + penalty + np.asarray(dual, float) @ gap + 0.5 * rho * (gap @ gap))


# ------------------------------------------------------------------------------------------------------- Lemma 3
def joint_change(residual: ArrayLike, changes: Sequence[ArrayLike]) -> float:
    """Return |r + sum of changes|^2 - |r|^2: what all parties' moves together do to the squared residual."""
    r = np.asarray(residual, float)
    moved = r + np.sum([np.asarray(one, float) for one in changes], axis=0)
    return float(moved @ moved - r @ r)


def separate_change(residual: ArrayLike, changes: Sequence[ArrayLike], *, printed: bool = False) -> float:
    """Bound on :func:`joint_change`: the sum of what each move does alone, plus (M - 1) times the squared moves.

    Lemma 3 prints one times the squared moves, which is too little for three parties that move the same way:

    >>> moves = [[1.0]] * 3
    >>> joint_change([0.0], moves), separate_change([0.0], moves, printed=True), separate_change([0.0], moves)
    (9.0, 6.0, 9.0)
    """
    factor = 1.0 if printed else len(changes) - 1.0
    alone = sum(joint_change(residual, [one]) for one in changes)
    return alone + factor * sum(float(np.sum(np.asarray(one, float) ** 2)) for one in changes)


# ------------------------------------------------------------------------------------------------- Theorems 1 and 2
@dataclass(frozen=True)
class SharingProblem:
    """The public and spectral numbers on which convergence rests.

    Parameters
    ----------
    rho, damping : float
        Penalty of the constraint, and extra curvature of the parties' steps relative to it.
    smallest, largest : tuple of float
        Extreme eigenvalues of every party's D_m' D_m.
    lipschitz : float
        Bound on how much one person's slope changes per unit of prediction.
    strength : float
        Strong convexity of the penalty; 0 for none or l1.
    convex : bool
        Whether the loss is convex.

    Examples
    --------
    >>> two = SharingProblem(0.4, 0.0, (1.0, 2.0), (5.0, 6.0), 0.25, strength=0.1)
    >>> two.converges, SharingProblem(0.4, 0.0, (1.0,) * 3, (5.0,) * 3, 0.25, strength=0.1).converges
    (True, False)
    """

    rho: float
    damping: float
    smallest: tuple[float, ...]
    largest: tuple[float, ...]
    lipschitz: float
    strength: float = 0.0
    convex: bool = True

    def __post_init__(self) -> None:
        if not self.smallest or len(self.smallest) != len(self.largest):
            raise InvalidInput("every party needs a smallest and a largest eigenvalue.")
        if any(not 0.0 <= low <= high for low, high in zip(self.smallest, self.largest, strict=True)):
            raise InvalidInput("eigenvalues of D'D must be 0 or more, the smallest at most the largest.")

    @property
    def n_parties(self) -> int:
        """M."""
        return len(self.smallest)

    @property
    def z_modulus(self) -> float:
        """gamma(rho), the strong convexity of the z-step."""
        return self.rho if self.convex else self.rho - self.lipschitz

    @property
    def z_descent(self) -> float:
        """What a round gains at least per squared change of z: gamma/2 - L^2/rho."""
        return 0.5 * self.z_modulus - self.lipschitz**2 / self.rho

    @property
    def block_descents(self) -> tuple[float, ...]:
        """What a round gains at least per squared change of each party's weights."""
        factor = 2.0 + 2.0 * self.damping - self.n_parties
        return tuple(
            0.5 * (self.strength + self.rho * factor * (low if factor >= 0.0 else high))
            for low, high in zip(self.smallest, self.largest, strict=True)
        )

    @property
    def converges(self) -> bool:
        """Whether Theorem 1 applies: every round lowers the augmented Lagrangian, and it is bounded below.

        The bound below, Lemma 5, needs rho >= L.
        """
        return min(self.z_descent, *self.block_descents) > 0.0 and self.rho >= self.lipschitz

    def descent(self, block_changes: Sequence[float], z_change: float) -> float:
        """Return the least fall of the augmented Lagrangian in a round with these lengths of changes (Lemma 4)."""
        blocks = sum(c * length**2 for c, length in zip(self.block_descents, block_changes, strict=True))
        return blocks + self.z_descent * z_change**2

    @property
    def stationarity_factor(self) -> float:
        """C_1: V_t is at most C_1 times the squared changes of the next round.

        From (39), (42) and (43), with the squares of sums that (44) leaves out. (43) prints the constraint at t + 1
        where V_t has it at t, which costs the change of all scores. Convex penalties.
        """
        more = self.n_parties + 1.0
        rho, L = self.rho, self.lipschitz
        z = more * ((L + rho) ** 2 + (1.0 + L / rho) ** 2)
        blocks = [(2.0 + rho * (1.0 + self.damping) * s) ** 2 + more * (rho**2 + 1.0) * s for s in self.largest]
        return max(z, *blocks)

    @property
    def rate_constant(self) -> float:
        """C of Theorem 2: C_1 over the least gain per squared change; infinite where the theorem does not apply."""
        if not self.converges:
            return math.inf
        return self.stationarity_factor / min(self.z_descent, *self.block_descents)

    def rounds_until(self, epsilon: float, lagrangian: float, lowest: float) -> float:
        """Bound on the first round with V_t <= epsilon: C (Lagrangian of round 1 - lowest objective) / epsilon."""
        return self.rate_constant * (lagrangian - lowest) / epsilon
