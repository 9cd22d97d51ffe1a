"""Importance against uniform sampling in block descent (DP-SkGD), on a problem where one coordinate matters.

A least-squares problem with columns of very different scales, fitted without rescaling them: the first column carries
most of the smoothness and of the distance to the optimum. Both samplings get the same budget, the same number of steps
and fresh noise; the difference of their excess risks is given with a 95% interval over paired runs.
Run: python benchmarks/importance.py [--runs 40]
"""

from __future__ import annotations

import argparse
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

from dperm.data.design import DesignMatrix, Scaling
from dperm.data.holder import DataHolder, DesignData
from dperm.objective import NoPenalty, Objective, Squared
from dperm.privacy.budget import Budget
from dperm.privacy.calibration import calibrate
from dperm.privacy.ledger import Ledger
from dperm.privacy.neighbours import Neighbours
from dperm.privacy.randomness import RandomSource
from dperm.privacy.scope import Scope
from dperm.solvers import BlockDescent

P, N = 64, 20_000
SCALES = np.concatenate([[1.0], np.full(P - 1, 0.02)])


def fit(sampling, data, n_steps):
    objective = Objective(Squared(residual_clip=3.0), NoPenalty())
    solver = BlockDescent(
        n_rounds=1,
        n_inner=n_steps,
        n_blocks=P,
        sampling=sampling,
        clip=3.0,
        smoothness=tuple(SCALES**2),
        step=0.5,
        averaging=False,
    )
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(1.0, 1e-6))
    with Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "benchmark") as scope:
        holder = DataHolder(data, scope, RandomSource(), Neighbours.REPLACE_ONE)
        return solver.solve(objective, holder, calibrated).weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    runs = parser.parse_args().runs
    differences, levels = [], []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        X = np.clip(rng.normal(size=(N, P)), -3, 3) * SCALES
        w = np.concatenate([[2.0], np.full(P - 1, 0.1)])
        y = X @ w + 0.1 * rng.normal(size=N)
        data = DesignData(DesignMatrix.from_array(X, Scaling(np.zeros(P), np.ones(P), 3.0)), y, -8.0, 8.0)
        best = np.linalg.lstsq(X, y, rcond=None)[0]

        def excess(found, X=X, y=y, best=best):
            return 0.5 * float(((X @ found - y) ** 2).mean() - ((X @ best - y) ** 2).mean())

        pair = [excess(fit(sampling, data, 48)) for sampling in ("uniform", "importance")]
        levels.append(pair)
        differences.append(pair[0] - pair[1])
    mean, half = np.mean(differences), 1.96 * np.std(differences, ddof=1) / np.sqrt(runs)
    uniform, importance = np.mean(levels, axis=0)
    print(f"excess risk, {runs} fresh data sets: uniform {uniform:.4f}, importance {importance:.4f}")
    print(f"uniform - importance: {mean:.4f}, 95% interval [{mean - half:.4f}, {mean + half:.4f}]")


if __name__ == "__main__":
    main()
