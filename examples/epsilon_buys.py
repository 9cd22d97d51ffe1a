"""What epsilon buys: excess risk of four methods on one logistic regression with 5,000 people and 10 columns.

``insecure_seed`` makes the figure the same at every build. Leave it out for a real fit: with it there is no guarantee.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dperm import Bounds, DPLogisticRegression
from dperm.errors import InsecureSeedWarning

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SOLVERS = ("auto", "newton", "gradient", "objective")


def people(n: int = 5000, p: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Simulate correlated columns within public bounds, and a label that follows five of them."""
    rng = np.random.default_rng(0)
    X = np.clip(rng.normal(size=(n, p)) + 0.7 * rng.normal(size=(n, 1)), -3.6, 3.6)
    return X, (rng.random(n) < 1 / (1 + np.exp(-X[:, :5] @ [1.0, -0.8, 0.6, -0.4, 0.5]))).astype(int)


def measure(epsilons: tuple[float, ...] = EPSILONS, n_runs: int = 6) -> tuple[dict[str, np.ndarray], float]:
    """Excess of the mean log loss over its minimum for every method, epsilon and run, and that of a constant."""
    X, y = people()
    best = log_loss(y, LogisticRegression(C=1e6).fit(X, y).predict_proba(X))
    public = Bounds(centre=0.0, scale=1.2, clip=3.0, classes=[0, 1])

    def excess(solver: str, epsilon: float, seed: int) -> float:
        model = DPLogisticRegression(epsilon, bounds=public, solver=solver, neighbours="zero-out", insecure_seed=seed)
        return log_loss(y, model.fit(X, y).predict_proba(X)) - best

    curves = {
        solver: np.array([[excess(solver, epsilon, seed) for seed in range(n_runs)] for epsilon in epsilons])
        for solver in SOLVERS
    }
    return curves, log_loss(y, np.full(len(y), y.mean())) - best


if __name__ == "__main__":
    from figures import draw

    warnings.simplefilter("ignore", InsecureSeedWarning)
    curves, null = measure()
    draw(__file__, EPSILONS, curves, null=null)
