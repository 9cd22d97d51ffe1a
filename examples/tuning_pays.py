"""When tuning pays: a strength that is far off, the default, and one found inside the budget.

``insecure_seed`` makes the figure the same at every build. Leave it out for a real fit: with it there is no guarantee.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dperm import Bounds, DPLogisticRegression, DPTuner
from dperm.errors import InsecureSeedWarning

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def measure(epsilons: tuple[float, ...] = EPSILONS, n_runs: int = 5) -> tuple[dict[str, np.ndarray], float]:
    """Excess of the mean log loss over its minimum for fixed and tuned strengths, and that of a constant."""
    rng = np.random.default_rng(0)
    X = np.clip(rng.normal(size=(4000, 8)), -3, 3)
    y = (rng.random(4000) < 1 / (1 + np.exp(-X[:, :3] @ [1.0, -1.0, 0.5]))).astype(int)
    best = log_loss(y, LogisticRegression(C=1e6).fit(X, y).predict_proba(X))
    public = Bounds(centre=0.0, scale=1.0, clip=3.0, classes=[0, 1])

    def fixed(strength: float | None, epsilon: float, seed: int) -> np.ndarray:
        model = DPLogisticRegression(epsilon, bounds=public, strength=strength, insecure_seed=seed)
        return model.fit(X, y).predict_proba(X)

    def tuned(epsilon: float, seed: int) -> np.ndarray:
        grid = {"strength": [1e-4, 1e-2, 1.0]}
        tuner = DPTuner(DPLogisticRegression(bounds=public), grid, epsilon=epsilon, insecure_seed=seed)
        return tuner.fit(X, y).predict_proba(X)

    methods = {
        "default strength": lambda e, seed: fixed(None, e, seed),
        "tuned among three, paid for": tuned,
        "strength 1, far too strong": lambda e, seed: fixed(1.0, e, seed),
    }
    curves = {
        label: np.array([[log_loss(y, method(e, seed)) - best for seed in range(n_runs)] for e in epsilons])
        for label, method in methods.items()
    }
    return curves, log_loss(y, np.full(len(y), y.mean())) - best


if __name__ == "__main__":
    from figures import draw

    warnings.simplefilter("ignore", InsecureSeedWarning)
    curves, null = measure()
    draw(__file__, EPSILONS, curves, null=null)
