"""What bounds cost: one table with public scales, with fair ranges, with wide ranges, and with ranges that are bought.

``insecure_seed`` makes the figure the same at every build. Leave it out for a real fit: with it there is no guarantee.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dperm import Bounds, DPLogisticRegression
from dperm.errors import InsecureSeedWarning

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DECLARED = {
    "centre and scale": Bounds(centre=50.0, scale=10.0, clip=3.0, classes=[0, 1]),
    "fair ranges (20 to 80)": Bounds(features=(20, 80), classes=[0, 1]),
    "wide ranges (0 to 1,000)": Bounds(features=(0, 1000), classes=[0, 1]),
    "bought with 10% of the budget": Bounds(classes=[0, 1]),
}


def measure(epsilons: tuple[float, ...] = EPSILONS, n_runs: int = 6) -> tuple[dict[str, np.ndarray], float]:
    """Excess of the mean log loss over its minimum for every choice of bounds, and that of a constant."""
    rng = np.random.default_rng(0)
    X = np.clip(rng.normal(50, 10, size=(3000, 6)), 20, 80)
    y = (rng.random(3000) < 1 / (1 + np.exp(-(X - 50) / 10 @ [1.0, -1.0, 0.5, 0.5, -0.5, 0.0]))).astype(int)
    best = log_loss(y, LogisticRegression(C=1e6, max_iter=1000).fit(X - 50, y).predict_proba(X - 50))

    def excess(bounds: Bounds, epsilon: float, seed: int) -> float:
        model = DPLogisticRegression(epsilon, bounds=bounds, insecure_seed=seed).fit(X, y)
        return log_loss(y, model.predict_proba(X)) - best

    curves = {
        label: np.array([[excess(bounds, epsilon, seed) for seed in range(n_runs)] for epsilon in epsilons])
        for label, bounds in DECLARED.items()
    }
    return curves, log_loss(y, np.full(len(y), y.mean())) - best


if __name__ == "__main__":
    from figures import draw

    warnings.simplefilter("ignore", InsecureSeedWarning)
    curves, null = measure()
    draw(__file__, EPSILONS, curves, null=null)
