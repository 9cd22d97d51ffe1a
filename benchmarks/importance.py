"""Compare importance sampling with uniform sampling in block descent (DP-SkGD), where one coordinate dominates.

A least-squares problem with columns of very different scales, fitted without rescaling: the first column has
most of the smoothness and of the distance to the optimum. Both samplings get the same budget and fresh noise, and
several numbers of steps; the difference of their excess risks is reported with a 95% interval over paired runs.
Run: python benchmarks/importance.py [--runs 20]
"""

from __future__ import annotations

import argparse
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from recorded import Recorded

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.objective import NoPenalty, Objective, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import BlockDescent

P, N = 64, 20_000
STEPS = (48, 128, 256, 512, 1024)
SAMPLINGS = ("uniform", "importance")
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


def problem(seed):
    rng = np.random.default_rng(seed)
    X = np.clip(rng.normal(size=(N, P)), -3, 3) * SCALES
    w = np.concatenate([[2.0], np.full(P - 1, 0.1)])
    y = X @ w + 0.1 * rng.normal(size=N)
    data = DesignData(DesignMatrix.from_array(X, Scaling(np.zeros(P), np.ones(P), 3.0)), y, -8.0, 8.0)
    best = np.linalg.lstsq(X, y, rcond=None)[0]

    def excess(found):
        return 0.5 * float(((X @ found - y) ** 2).mean() - ((X @ best - y) ** 2).mean())

    return data, excess


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="data sets")
    runs = parser.parse_args().runs
    problems = [problem(seed) for seed in range(runs)]
    found = {}
    title = "Importance against uniform sampling in block descent, one coordinate matters"
    with Recorded("importance", title, ("steps", "uniform", "importance", "difference, 95% interval")) as table:
        for n_steps in STEPS:
            pairs = np.array(
                [[excess(fit(sampling, data, n_steps)) for sampling in SAMPLINGS] for data, excess in problems]
            )
            found[n_steps] = pairs
            table.add(
                str(n_steps), *(f"{mean:.4f}" for mean in pairs.mean(axis=0)), interval(pairs[:, 0] - pairs[:, 1])
            )
        # for each sampling the best number of steps is chosen on the first half of the runs and compared on the second
        half = runs // 2
        best = [min(STEPS, key=lambda n, k=k: found[n][:half, k].mean()) for k in (0, 1)]
        uniform, importance = (found[n][half:, k] for k, n in enumerate(best))
        null = np.mean([excess(np.zeros(P)) for _, excess in problems])
        table.say(
            f"Excess risk over {runs} data sets; that of weights 0 is {null:.2f}. Each sampling at its best number of "
            f"steps on the first {half} data sets ({best[0]} and {best[1]}), on the others: uniform "
            f"{uniform.mean():.4f}, importance {importance.mean():.4f}, difference {interval(uniform - importance)}."
        )


def interval(differences):
    mean, half = np.mean(differences), 1.96 * np.std(differences, ddof=1) / np.sqrt(len(differences))
    return f"{mean:.4f} [{mean - half:.4f}, {mean + half:.4f}]"


if __name__ == "__main__":
    main()
