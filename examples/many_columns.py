"""Many columns, few that matter: sparse methods with 2,000 people, 1,000 columns and ten weights that are not zero.

``insecure_seed`` makes the figure the same at every build. Leave it out for a real fit: with it there is no guarantee.
"""

from __future__ import annotations

import warnings

import numpy as np

from dperm import Bounds, DPLasso
from dperm.errors import InsecureSeedWarning

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SOLVERS = ("auto", "greedy", "peel", "frank-wolfe", "gradient")


def measure(epsilons: tuple[float, ...] = EPSILONS, n_runs: int = 3) -> tuple[dict[str, np.ndarray], float]:
    """Excess of the mean squared error on fresh people over that of the true weights, and that of no weights."""
    rng = np.random.default_rng(0)
    weights = np.zeros(1000)
    weights[rng.choice(1000, 10, replace=False)] = rng.choice([-1.0, 1.0], 10)

    def people(n: int) -> tuple[np.ndarray, np.ndarray]:
        X = np.clip(rng.normal(size=(n, 1000)), -3, 3)
        return X, X @ weights + rng.normal(size=n)

    X, y = people(2000)
    X_new, y_new = people(2000)
    public = Bounds(centre=0.0, scale=1.0, clip=3.0, target=(-10, 10))

    def risk(predicted: np.ndarray | float) -> float:
        return float(np.mean((y_new - predicted) ** 2)) - float(np.mean((y_new - X_new @ weights) ** 2))

    def excess(solver: str, epsilon: float, seed: int) -> float:
        model = DPLasso(epsilon, bounds=public, solver=solver, neighbours="zero-out", insecure_seed=seed)
        return risk(model.fit(X, y).predict(X_new))

    curves = {
        solver: np.array([[excess(solver, epsilon, seed) for seed in range(n_runs)] for epsilon in epsilons])
        for solver in SOLVERS
    }
    return curves, risk(0.0)


if __name__ == "__main__":
    from figures import draw

    warnings.simplefilter("ignore", InsecureSeedWarning)
    curves, null = measure()
    draw(__file__, EPSILONS, curves, null=null, quantity="excess squared error on new people")
