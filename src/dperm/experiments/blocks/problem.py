"""Least squares with one coordinate that matters more than the others, as in the DP-SkGD paper's example, and its fits.

Columns are not rescaled, because the example is about columns of different scales. Limits of gradients are the
coordinates' own Lipschitz constants, as the paper takes them, so that nothing is clipped but rare residuals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.experiments.greedy.methods import replace_one_part
from dperm.experiments.result import Baseline
from dperm.objective import NoPenalty, Objective, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers.base import Solver
from dperm.solvers.theory.block_descent import BlockProblem
from dperm.types import FloatArray

__all__ = ["BUDGET", "PAPER", "ImbalancedSquares", "fit"]

PAPER = "Maranjyan, Sadiev & Richtarik, DP-SkGD"
BUDGET = Budget(1.0, 1e-6)
#: features are clipped at this many of their deviations
_CLIP = 3.0
#: bound on the slope of a residual; the target's range is wider than what weights of the optimum leave
_SLOPE = 6.0
_TARGET = 8.0
#: weights of the first and of every other column
_FIRST, _OTHER = 2.0, 0.1
_NOISE = 0.1


@dataclass(frozen=True)
class ImbalancedSquares:
    """Normal columns, the first with ``imbalance`` times the smoothness of each of the others."""

    imbalance: float
    seed: int
    n: int
    d: int

    @property
    def scales(self) -> FloatArray:
        """Deviation of every column."""
        return np.append(1.0, np.full(self.d - 1, self.imbalance**-0.5))

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        rng = np.random.default_rng(self.seed)
        X = np.clip(rng.normal(size=(self.n, self.d)), -_CLIP, _CLIP) * self.scales
        weights = np.append(_FIRST, np.full(self.d - 1, _OTHER))
        return X, X @ weights + _NOISE * rng.normal(size=self.n)

    @cached_property
    def design(self) -> DesignData:
        """The private data as solvers hold them."""
        X, y = self._table
        scaling = Scaling(np.zeros(self.d), np.ones(self.d), _CLIP)
        return DesignData(DesignMatrix.from_array(X, scaling), y, -_TARGET, _TARGET)

    @cached_property
    def _gram(self) -> FloatArray:
        X, _ = self._table
        gram: FloatArray = X.T @ X / self.n
        return gram

    @cached_property
    def optimum(self) -> FloatArray:
        """The weights without privacy."""
        X, y = self._table
        return np.asarray(np.linalg.lstsq(X, y, rcond=None)[0])

    def excess(self, weights: FloatArray) -> float:
        """Excess of the objective, half of the mean squared residual, over its minimum."""
        off = weights - self.optimum
        return float(0.5 * off @ self._gram @ off)

    @property
    def smoothness(self) -> tuple[float, ...]:
        """M_j, public: the expected square of a column."""
        return tuple((self.scales**2).tolist())

    @property
    def limits(self) -> tuple[float, ...]:
        """L_j: bound on a person's derivative."""
        return tuple((_SLOPE * _CLIP * self.scales).tolist())

    @cached_property
    def constants(self) -> BlockProblem:
        """What rates depend on; the method starts at weights of 0."""
        root = 1.0 / self.scales
        mu, relative = (
            float(np.linalg.eigvalsh(matrix)[0]) for matrix in (self._gram, self._gram * root[:, None] * root)
        )
        return BlockProblem(self.smoothness, self.limits, tuple(np.abs(self.optimum).tolist()), mu, relative)

    def baseline(self) -> Baseline:
        """The problem without privacy, and with weights of 0."""
        X, y = self._table
        least = 0.5 * float(((y - X @ self.optimum) ** 2).mean())
        null = 0.5 * float((y**2).mean())
        name = f"imbalance {self.imbalance:g}"
        return Baseline(name, "made: normal columns", self.n, self.d, self.seed, "objective", least, null)


def fit(problem: ImbalancedSquares, solver: Solver) -> float:
    """Return the excess of one fit at (1, 1e-6) under replace-one, with fresh noise.

    A solver that is proved for zero-out only gets the budget that group privacy for two people leaves it.
    """
    objective = Objective(Squared(residual_clip=_SLOPE), NoPenalty())
    replace_one = Neighbours.REPLACE_ONE in solver.supported_neighbours
    neighbours = Neighbours.REPLACE_ONE if replace_one else Neighbours.ZERO_OUT
    budget = BUDGET if replace_one else replace_one_part(BUDGET)
    calibrated = calibrate(solver.plan(objective, problem.design.facts), budget)
    source = RandomSource()
    reason = None if source.secure else "seeded"
    with Scope(calibrated, Ledger(neighbours=neighbours), neighbours, "experiment", unbounded=reason) as scope:
        holder = DataHolder(problem.design, scope, source, neighbours)
        return problem.excess(solver.solve(objective, holder, calibrated).weights)
