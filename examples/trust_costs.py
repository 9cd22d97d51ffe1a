"""What less trust costs: one logistic regression in the central, the vertical and the local model.

All models use the same 40,000 people. In the vertical runs each party holds one column, and all run in one process.
Seeds make the figure the same at every build. Leave them out for a real fit: with them there is no guarantee.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dperm import Bounds, Budget, DPLogisticRegression, Ledger, LocalLogisticRegression
from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.errors import InsecureSeedWarning
from dperm.objective import L2, Logistic, Objective
from dperm.privacy import RandomSource, Scope
from dperm.solvers.vertical import AdmmSharing, TranscriptSharing, run_in_process

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
N = 40_000


def vertical(kind: type, X: np.ndarray, y: np.ndarray, epsilon: float, seed: int, **settings: float) -> np.ndarray:
    """Return the predictions of a run in which every column has its own owner."""
    column = Scaling(np.zeros(1), np.ones(1), 1.0)
    designs = {f"party {j}": DesignMatrix.from_array(X[:, [j]], column) for j in range(X.shape[1])}
    facts = {name: Facts.of_design(design.shape) for name, design in designs.items()}
    task = kind(Objective(Logistic(), L2(1e-6)), facts, Budget(epsilon, 1e-6), **settings)
    scopes = {
        name: Scope(task.calibrated, Ledger(), task.neighbours, "example", unbounded="seeded noise")
        for name in ("labels", *designs)
    }
    parties = {
        name: task.party(name, design, scopes[name], RandomSource(f"{name} {seed}")) for name, design in designs.items()
    }
    coordinator = task.coordinator(y.astype(float), scopes["labels"], RandomSource(f"labels {seed}"))
    result = run_in_process(coordinator, parties)
    weights = np.array([result.weights[name][0] for name in designs])
    return 1 / (1 + np.exp(-X @ weights))


def measure(epsilons: tuple[float, ...] = EPSILONS, n_runs: int = 3) -> tuple[dict[str, np.ndarray], float]:
    """Excess of the mean log loss over its minimum for every trust model, and that of no weights."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, 2))
    y = rng.random(N) < 1 / (1 + np.exp(-1.5 * X[:, 0] + X[:, 1]))
    best = log_loss(y, LogisticRegression(C=1e6, fit_intercept=False).fit(X, y).predict_proba(X))
    public = Bounds(features=(-1, 1), classes=[False, True])
    plain = {"bounds": public, "fit_intercept": False}

    def model(estimator: type, epsilon: float, seed: int) -> np.ndarray:
        return estimator(epsilon, insecure_seed=seed, **plain).fit(X, y).predict_proba(X)[:, 1]

    methods = {
        "central": lambda e, seed: model(DPLogisticRegression, e, seed),
        "vertical, model view": lambda e, seed: vertical(AdmmSharing, X, y, e, seed, n_rounds=12, step=4.0),
        "vertical, transcript view": lambda e, seed: vertical(TranscriptSharing, X, y, e, seed, n_rounds=3, step=4.0),
        "local": lambda e, seed: model(LocalLogisticRegression, e, seed),
    }
    curves = {
        label: np.array([[log_loss(y, method(e, seed)) - best for seed in range(n_runs)] for e in epsilons])
        for label, method in methods.items()
    }
    return curves, np.log(2.0) - best


if __name__ == "__main__":
    from figures import draw

    warnings.simplefilter("ignore", InsecureSeedWarning)
    curves, null = measure()
    draw(__file__, EPSILONS, curves, null=null)
