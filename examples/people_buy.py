"""What people buy: excess risk for tables of 500 to 32,000 people. Four times the people help like four times epsilon.

``insecure_seed`` makes the figure the same at every build. Leave it out for a real fit: with it there is no guarantee.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dperm import Bounds, DPLogisticRegression
from dperm.errors import InsecureSeedWarning

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
PEOPLE = (500, 2_000, 8_000, 32_000)


def measure(epsilons: tuple[float, ...] = EPSILONS, n_runs: int = 8) -> tuple[dict[str, np.ndarray], None]:
    """Excess of the mean log loss over its minimum for every size, epsilon and run, each run on fresh people."""
    public = Bounds(centre=0.0, scale=1.0, clip=3.0, classes=[0, 1])

    def excess(n: int, epsilon: float, seed: int) -> float:
        rng = np.random.default_rng(seed)
        X = np.clip(rng.normal(size=(n, 5)), -3, 3)
        y = (rng.random(n) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.5, 0.5, 0.0]))).astype(int)
        best = log_loss(y, LogisticRegression(C=1e6).fit(X, y).predict_proba(X))
        model = DPLogisticRegression(epsilon, bounds=public, insecure_seed=seed).fit(X, y)
        return log_loss(y, model.predict_proba(X)) - best

    return {
        f"{n:,} people": np.array([[excess(n, epsilon, seed) for seed in range(n_runs)] for epsilon in epsilons])
        for n in PEOPLE
    }, None


if __name__ == "__main__":
    from figures import draw

    warnings.simplefilter("ignore", InsecureSeedWarning)
    draw(__file__, EPSILONS, measure()[0])
