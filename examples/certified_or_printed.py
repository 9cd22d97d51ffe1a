"""Certified or printed: greedy coordinate descent with dperm's noise and with the noise that its paper prints.

The printed calibration has no guarantee (``guarantee=None``). The certified one has a guarantee and less noise.
``insecure_seed`` makes the figure the same at every build. Leave it out for a real fit: with it there is no guarantee.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dperm import Bounds, DPLogisticRegression
from dperm.errors import InsecureSeedWarning
from dperm.solvers import GreedyCoordinateDescent

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)


def measure(epsilons: tuple[float, ...] = EPSILONS, n_runs: int = 16) -> tuple[dict[str, np.ndarray], float]:
    """Excess of the mean log loss over its minimum for both calibrations, and that of a constant."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(5000, 50))
    y = (rng.random(5000) < 1 / (1 + np.exp(-1.5 * X[:, 0] + X[:, 1] - 0.7 * X[:, 2]))).astype(int)
    best = log_loss(y, LogisticRegression(C=1e6).fit(X, y).predict_proba(X))
    public = Bounds(centre=0.0, scale=1.0, clip=1.0, classes=[0, 1])
    solver = GreedyCoordinateDescent(n_steps=10, rule="GS-s")

    def excess(calibration: str, epsilon: float, seed: int) -> float:
        model = DPLogisticRegression(
            epsilon, bounds=public, solver=solver, penalty="none", calibration=calibration, insecure_seed=seed
        )
        return log_loss(y, model.fit(X, y).predict_proba(X)) - best

    curves = {
        label: np.array([[excess(calibration, epsilon, seed) for seed in range(n_runs)] for epsilon in epsilons])
        for label, calibration in (("certified", "certified"), ("printed, no guarantee", "paper"))
    }
    return curves, log_loss(y, np.full(len(y), y.mean())) - best


if __name__ == "__main__":
    from figures import draw

    warnings.simplefilter("ignore", InsecureSeedWarning)
    curves, null = measure()
    draw(__file__, EPSILONS, curves, null=null)
