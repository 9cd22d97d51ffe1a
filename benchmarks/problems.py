"""Sparse problems of the DP-GCD paper (Mangold, Bellet, Salmon & Tommasi 2023), for benchmarks.

Columns are standardised with constants that are taken as public, as the paper does; dorothea is used as it is.
Real data come from the folder that DPERM_DATA names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.objective import L1, Logistic, Objective, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers.base import Solver


@dataclass
class Problem:
    """A penalised problem with its optimum."""

    name: str
    X: Any
    y: Any
    strength: float
    clip: float
    residual_clip: float | None  # None: logistic
    best: float = np.nan

    def __post_init__(self) -> None:
        self.best = self.value(self._optimum())

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    def value(self, w: Any) -> float:
        z = self.X @ w
        if self.residual_clip is None:
            loss = float(np.logaddexp(0.0, -(2.0 * self.y - 1.0) * z).mean())
        else:
            loss = 0.5 * float(((z - self.y) ** 2).mean())
        return loss + self.strength * float(np.abs(w).sum())

    def relative_error(self, w: Any) -> float:
        return (self.value(w) - self.best) / self.best

    def _optimum(self) -> Any:
        """Accelerated proximal gradient with restarts."""
        curvature = 0.25 if self.residual_clip is None else 1.0
        largest = sp.linalg.svds(self.X.astype(float), k=1, return_singular_vectors=False)[0]
        length = 1.0 / (curvature * largest**2 / self.n)
        w = np.zeros(self.X.shape[1])
        v, t = w.copy(), 1.0
        for _ in range(5000):
            z = self.X @ v
            slope = 1.0 / (1.0 + np.exp(-z)) - self.y if self.residual_clip is None else z - self.y
            moved = v - length * (self.X.T @ slope) / self.n
            new = np.sign(moved) * np.maximum(np.abs(moved) - length * self.strength, 0.0)
            if (v - new) @ (new - w) > 0:
                t = 1.0
            following = (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
            v = new + (t - 1.0) / following * (new - w)
            if np.abs(new - w).max() < 1e-9:
                w = new
                break
            w, t = new, following
        return w

    def objective(self) -> Objective:
        loss = Logistic() if self.residual_clip is None else Squared(residual_clip=self.residual_clip)
        return Objective(loss, L1(self.strength))

    def design(self) -> DesignData:
        p = self.X.shape[1]
        scaling = Scaling(np.zeros(p), np.ones(p), self.clip)
        return DesignData(DesignMatrix.from_array(self.X, scaling), np.asarray(self.y, float))

    def fit(
        self,
        solver: Solver,
        data: DesignData,
        epsilon: float = 1.0,
        source: RandomSource | None = None,
        printed: bool = False,
    ) -> Any:
        """Weights of a private fit at (epsilon, 1/n^2), replace-one, with fresh noise unless a source is given."""
        objective, budget = self.objective(), Budget(epsilon, 1.0 / self.n**2)
        calibrated = calibrate(solver.plan(objective, data.facts), budget)
        if printed:
            calibrated = solver.printed(objective, data.facts, budget).calibrated
        neighbours = Neighbours.REPLACE_ONE
        source = source or RandomSource()
        reason = None if source.secure else "seeded"
        with Scope(calibrated, Ledger(), neighbours, "benchmark", unbounded=reason) as scope:
            holder = DataHolder(data, scope, source, neighbours)
            return solver.solve(objective, holder, calibrated).weights


def _load(name: str) -> tuple[Any, Any, int]:
    path = Path(os.environ["DPERM_DATA"]) / name
    with np.load(path) as z:
        y = z["y"].astype(float)
        n_train = int(z["n_train"]) if "n_train" in z else len(y)
        dense = z["X"].astype(float) if "X" in z else None
    return (sp.load_npz(path).astype(float) if dense is None else dense), y, n_train


def _standardised(X: Any) -> Any:
    return (X - X.mean(0)) / X.std(0)


def dorothea() -> Problem:
    X, y, _ = _load("dorothea.npz")
    return Problem("dorothea", X.tocsc(), (y > 0).astype(float), 0.0100, 1.0, None)


def madelon() -> Problem:
    X, y, n_train = _load("madelon.npz")
    return Problem("madelon", _standardised(X[:n_train]), (y[:n_train] > 0).astype(float), 0.045, 3.0, None)


def california() -> Problem:
    X, y, _ = _load("california.npz")
    return Problem("california", _standardised(X), (y - y.mean()) / y.std(), 0.08, 10.0, 3.0)


def square(seed: int, n: int = 1000, p: int = 1000) -> Problem:
    """n = p, ten weights of +-1, unit noise; strength a quarter of the largest useful one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    w = np.zeros(p)
    w[:10] = rng.choice([-1.0, 1.0], 10)
    y = X @ w + rng.normal(size=n)
    X = _standardised(X)
    y = (y - y.mean()) / y.std()
    strength = 0.25 * float(np.abs(X.T @ y).max()) / n
    return Problem(f"square {seed}", X, y, strength, 3.0, 2.0)


PROBLEMS = {"dorothea": dorothea, "madelon": madelon, "california": california}
