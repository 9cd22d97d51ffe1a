"""The automatic rule on data with many columns, next to fixed noisy gradient descents and named solvers.

    python benchmarks/automatic_wide.py [--draws 4] [--epsilons 0.1 0.5 1 4] [--sets ...]

Zero-out neighbours, public scales, delta = 1/n^2; every draw has new data (or a new split) and new noise. The fixed
descent clips gradients of rows with a constant column at 1 and takes 40 steps of length 0.5 or 2 from zero, with the
noise that Gaussian composition allows: an untuned baseline. Real sets are read from the folder that DPERM_DATA names.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from recorded import Recorded
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score

from dperm import Bounds, DPLogisticRegression
from dperm.privacy.accounting.gdp import mu_of

Draw = tuple[Any, Any, Any, Any, dict[str, Any]]
N_TEST = 1000


def texts(unit: bool, n: int = 2000, d: int = 10_000) -> Callable[[np.random.Generator], Draw]:
    """0/1 rows of words from twenty topics with Zipf frequencies; labels depend on the topics."""

    def draw(rng: np.random.Generator) -> Draw:
        words = np.exp(2.0 * rng.normal(size=(20, d))) / np.arange(1, d + 1)
        words /= words.sum(axis=1, keepdims=True)
        topics = rng.dirichlet(np.full(20, 0.15), size=n + N_TEST)
        score = topics @ (4.0 * rng.normal(size=20))
        y = (score - np.median(score) + 0.3 * rng.logistic(size=len(score)) > 0).astype(int)
        found = [np.unique(rng.choice(d, rng.poisson(60) + 5, p=one @ words)) for one in topics]
        ends = np.concatenate([[0], np.cumsum([len(one) for one in found])])
        entries = [np.full(len(one), 1.0 / np.sqrt(len(one)) if unit else 1.0) for one in found]
        X = sp.csr_array((np.concatenate(entries), np.concatenate(found), ends), shape=(len(y), d))
        return X[:n], y[:n], X[n:], y[n:], {"clip": 1.0, **({"row_norm": 1.0} if unit else {})}

    return draw


def columns(n: int, d: int, relevant: int, common: float, size: float = 2.0) -> Callable[[np.random.Generator], Draw]:
    """Normal columns, a share ``common`` of whose spread comes from eight factors."""

    def draw(rng: np.random.Generator) -> Draw:
        X = np.sqrt(1.0 - common**2) * rng.normal(size=(n + N_TEST, d))
        X += common * rng.normal(size=(len(X), 8)) @ rng.normal(size=(8, d)) / np.sqrt(8.0)
        w = np.zeros(d)
        w[:relevant] = size * rng.choice([-1.0, 1.0], relevant) / np.sqrt(relevant)
        y = (X @ w + rng.logistic(size=len(X)) > 0).astype(int)
        return X[:n], y[:n], X[n:], y[n:], {"clip": 3.0}

    return draw


def stored(name: str, standardised: bool) -> Callable[[np.random.Generator], Draw]:
    """A real set, split at random; standardised with the moments of its train rows, which are treated as public."""

    def draw(rng: np.random.Generator) -> Draw:
        path = Path(os.environ["DPERM_DATA"], f"{name}.npz")
        z = np.load(path)
        X = z["X"].astype(float) if "X" in z else sp.load_npz(path).astype(float).tocsr()
        y, rows = (z["y"] > 0).astype(int), rng.permutation(X.shape[0])
        train, test = np.split(rows, [int(0.75 * len(rows))])
        if standardised:
            X = (X - X[train].mean(axis=0)) / (X[train].std(axis=0) + 1e-9)
        elif not sp.issparse(X):
            X = X / X.max()
        return X[train], y[train], X[test], y[test], {"clip": 3.0 if standardised else 1.0}

    return draw


SETS = {
    "texts": texts(unit=False),
    "texts, unit rows": texts(unit=True),
    "factors, 2,000 columns": columns(1000, 2000, 1000, 0.8),
    "factors, 500 columns": columns(4000, 500, 250, 0.8),
    "independent, 500 columns": columns(4000, 500, 250, 0.0),
    "independent, five of 2,000": columns(2000, 2000, 5, 0.0),
    "pure noise, 2,000 columns": columns(1000, 2000, 1, 0.0, 0.0),
    "MNIST, 4 and 9": stored("mnist49", False),
    "arcene": stored("arcene", True),
    "dorothea": stored("dorothea", False),
    "madelon": stored("madelon", True),
}


def fixed_descent(X: Any, y: Any, Z: Any, mu: float, rate: float, rng: np.random.Generator, steps: int = 40) -> Any:
    """Scores of test rows after a plain noisy descent; the average of the last half of the iterates."""
    rows = sp.csr_array(sp.hstack([sp.csr_array(X), np.ones((X.shape[0], 1))]))
    limit = 1.0 / np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    w = total = np.zeros(rows.shape[1])
    for t in range(steps):
        slopes = np.clip(expit(rows @ w) - y, -limit, limit)
        w = w - rate * (rows.T @ slopes + np.sqrt(steps) / mu * rng.normal(size=len(w))) / len(y)
        total = total + w * (t >= steps // 2)
    return np.asarray(Z @ total[:-1] + total[-1]).ravel() / (steps - steps // 2)


def probabilities(method: str, data: Draw, epsilon: float, rng: np.random.Generator) -> Any:
    """Predicted probabilities of the test rows."""
    X, y, Z, _, given = data
    delta = 1.0 / X.shape[0] ** 2
    if method.startswith("fixed"):
        return expit(fixed_descent(X, y, Z, mu_of(epsilon, delta), float(method.split()[-1]), rng))
    solver, _, penalty = method.partition(", ")
    bounds = Bounds(centre=0.0, scale=1.0, classes=[0, 1], **given)
    options = {"solver": solver, "penalty": penalty or "l2", "neighbours": "zero-out"}
    return DPLogisticRegression(epsilon, delta, bounds=bounds, **options).fit(X, y).predict_proba(Z)[:, 1]


def main() -> None:
    """Print and store the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.1, 0.5, 1.0, 4.0])
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    methods = ["auto", "auto, l1", "gradient", "pursuit", "fixed 0.5", "fixed 2"]
    parser.add_argument("--methods", nargs="*", default=methods)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    heads = ("set", "method", *(f"accuracy, log loss, AUC at {epsilon:g}" for epsilon in given.epsilons))
    with Recorded("automatic_wide", "The automatic rule on wide data", heads) as out:
        for name in given.sets:
            try:
                draws = [SETS[name](np.random.default_rng(draw)) for draw in range(given.draws)]
            except (KeyError, FileNotFoundError):
                print(f"{name} was left out: DPERM_DATA does not name a folder that has it.", flush=True)
                continue
            for method in given.methods:
                cells = []
                for epsilon in given.epsilons:
                    found = []
                    for number, data in enumerate(draws):
                        p = probabilities(method, data, epsilon, np.random.default_rng([number, 1]))
                        loss = log_loss(data[3], np.clip(p, 1e-9, 1.0 - 1e-9))
                        found.append((((p > 0.5) == data[3]).mean(), loss, roc_auc_score(data[3], p)))
                    mean, error = np.mean(found, axis=0), np.std(found, axis=0)[0] / np.sqrt(max(len(found) - 1, 1))
                    cells.append(f"{mean[0]:.3f} ± {error:.3f}, {mean[1]:.3f}, {mean[2]:.3f}")
                out.add(name, method, *cells)


if __name__ == "__main__":
    main()
