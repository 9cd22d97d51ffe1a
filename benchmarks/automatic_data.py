"""Data sets of ``automatic.py``: simulated families, sets that ship with scikit-learn, and stored real sets.

Every set is a function of a generator. Scales of columns are public numbers; real columns are standardised with the
moments of their train rows, which are treated as public.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets

__all__ = ["SETS", "Draw", "Set"]

N_TEST = 2000
STANDARD = {"centre": 0.0, "scale": 1.0, "clip": 3.0}


@dataclass(frozen=True)
class Draw:
    """Train rows, test rows and the public facts of one draw."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    bounds: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Set:
    """A named data set: how it is drawn, and the estimator that is fitted."""

    draw: Callable[[np.random.Generator], Draw]
    estimator: str = "logistic"
    penalty: str = "l2"
    #: whether the rule was tuned on it; the others were only reported
    tuned: bool = True

    @property
    def is_regression(self) -> bool:
        return self.estimator in ("ridge", "lasso", "huber")

    @property
    def named(self) -> tuple[str, ...]:
        """Solvers whose default fits are compared."""
        if self.estimator == "classes":
            return ("gradient",)
        if self.penalty == "l1":
            return ("gradient", "pursuit", "greedy", "wide", "whitened")
        return ("gradient", "newton", "objective", "blocks", "pursuit", "wide", "whitened")


def simulated(n: int, make: Callable[..., tuple[Any, Any]], **bounds: Any) -> Callable[..., Draw]:
    """Independent rows; the last ``N_TEST`` of them are for testing."""

    def draw(rng: np.random.Generator) -> Draw:
        X, y = make(rng, n + N_TEST)
        return Draw(X[:n], y[:n], X[n:], y[n:], {**STANDARD, **bounds})

    return draw


def labels(rng: np.random.Generator, scores: Any) -> Any:
    """0/1 labels whose log odds are the scores."""
    return (rng.random(len(scores)) < 1.0 / (1.0 + np.exp(-scores))).astype(int)


# ---------------------------------------------------------------------------------------------------- columns
def normal(p: int, size: float, shift: float = 0.0) -> Callable[..., tuple[Any, Any]]:
    """Independent normal columns that all matter."""

    def make(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        X = rng.normal(size=(n, p))
        return X, labels(rng, X @ (size * rng.normal(size=p)) + shift)

    return make


def spectrum(p: int, power: float, size: float) -> Callable[..., tuple[Any, Any]]:
    """Columns mixed from factors whose variances fall like a power; scores use factors in proportion."""

    def make(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        deviations = np.arange(1, p + 1) ** (-power / 2.0)
        hidden = rng.normal(size=(n, p)) * deviations
        X = hidden @ np.linalg.qr(rng.normal(size=(p, p)))[0]
        scores = hidden @ rng.normal(size=p)
        return X / X.std(axis=0), labels(rng, size * scores / scores.std())

    return make


def some_relevant(p: int, strong: int, weak: int, size: float) -> Callable[..., tuple[Any, Any]]:
    """Few strong and many weak columns among unrelated ones."""

    def make(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        X = rng.normal(size=(n, p))
        w = np.zeros(p)
        w[:strong] = size * rng.choice([-1.0, 1.0], strong) / np.sqrt(max(strong, 1))
        w[strong : strong + weak] = 0.5 * size * rng.normal(size=weak) / np.sqrt(max(weak, 1))
        return X, labels(rng, X @ w)

    return make


def common_factors(p: int, share: float, size: float = 2.0) -> Callable[..., tuple[Any, Any]]:
    """Normal columns, a share of whose spread comes from eight factors; half of them matter."""

    def make(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        X = np.sqrt(1.0 - share**2) * rng.normal(size=(n, p))
        X += share * rng.normal(size=(n, 8)) @ rng.normal(size=(8, p)) / np.sqrt(8.0)
        w = np.zeros(p)
        w[: p // 2] = size * rng.choice([-1.0, 1.0], p // 2) / np.sqrt(p // 2)
        return X, labels(rng, X @ w)

    return make


def separable(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Two classes far apart along a direction of ten columns."""
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 10)) + np.outer(2.0 * y - 1.0, np.full(10, 1.2)), y


def panel(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Twelve monthly values of three quantities, strongly correlated in time; the last months matter."""
    steps = rng.normal(size=(n, 3, 12)).cumsum(axis=2) / np.sqrt(12.0)
    level = rng.normal(size=(n, 3, 1))
    X = (0.8 * level + 0.6 * steps).reshape(n, 36)
    return X, labels(rng, 1.5 * (steps[:, 0, -1] - steps[:, 1, -1]) + level[:, 2, 0])


def long_rows(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Columns with heavy tails."""
    X = rng.standard_t(3, (n, 15)) / np.sqrt(3.0)
    return X, labels(rng, np.clip(X, -3.0, 3.0) @ (0.6 * rng.normal(size=15)))


def categories(levels: int, columns: int) -> Callable[..., tuple[Any, Any]]:
    """Categorical columns of many levels with Zipf frequencies, as 0/1 indicators."""

    def make(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        frequencies = 1.0 / np.arange(1, levels + 1)
        frequencies /= frequencies.sum()
        codes = rng.choice(levels, (n, columns), p=frequencies)
        effects = rng.normal(size=(columns, levels))
        scores = sum(effects[j, codes[:, j]] for j in range(columns)) / np.sqrt(columns) * 1.5
        where = (codes + levels * np.arange(columns)).ravel()
        X = sp.csr_array((np.ones(n * columns), where, np.arange(0, n * columns + 1, columns)), (n, levels * columns))
        return X, labels(rng, scores)

    return make


def texts(d: int, unit: bool, n_classes: int = 2) -> Callable[..., tuple[Any, Any]]:
    """0/1 rows of words from twenty topics with Zipf frequencies; labels depend on the topics."""

    def make(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        words = np.exp(2.0 * rng.normal(size=(20, d))) / np.arange(1, d + 1)
        words /= words.sum(axis=1, keepdims=True)
        topics = rng.dirichlet(np.full(20, 0.15), size=n)
        if n_classes == 2:
            score = topics @ (4.0 * rng.normal(size=20))
            y = (score - np.median(score) + 0.3 * rng.logistic(size=n) > 0).astype(int)
        else:
            y = np.argmax(topics @ (4.0 * rng.normal(size=(20, n_classes))) + 0.3 * rng.gumbel(size=(n, n_classes)), 1)
        found = [np.unique(rng.choice(d, rng.poisson(60) + 5, p=one @ words)) for one in topics]
        ends = np.concatenate([[0], np.cumsum([len(one) for one in found])])
        entries = [np.full(len(one), 1.0 / np.sqrt(len(one)) if unit else 1.0) for one in found]
        return sp.csr_array((np.concatenate(entries), np.concatenate(found), ends), shape=(n, d)), y

    return make


def several_classes(p: int, k: int) -> Callable[..., tuple[Any, Any]]:
    """Several classes, normal columns."""

    def make(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        X = rng.normal(size=(n, p))
        return X, np.argmax(X @ rng.normal(size=(p, k)) / np.sqrt(p / 10.0) + rng.gumbel(size=(n, k)), axis=1)

    return make


# ---------------------------------------------------------------------------------------------------- regression
def autoregressive(rng: np.random.Generator, n: int, p: int, correlation: float) -> Any:
    """Normal columns, each correlated with the one before."""
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1.0 - correlation**2) * X[:, j]
    return X


def regression(p: int, correlation: float, errors: Callable[..., Any], size: float = 0.5) -> Callable[..., Any]:
    """Correlated columns that all matter, and errors of a given distribution."""

    def make(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        X = autoregressive(rng, n, p, correlation)
        return X, X @ (size * rng.normal(size=p) * np.sqrt(15.0 / p)) + errors(rng, n)

    return make


def sparse_regression(p: int, relevant: int, correlation: float) -> Callable[..., Any]:
    """A few relevant columns among many."""

    def make(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        X = autoregressive(rng, n, p, correlation)
        y = X[:, rng.choice(p, relevant, replace=False)] @ rng.choice([-1.0, 1.0], relevant)
        return X, y + rng.normal(size=n)

    return make


def counts(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Counts with mean about 7 in a declared range that is a hundred times wider."""
    X = rng.normal(size=(n, 12))
    rate = np.exp(1.5 + X @ (0.25 * rng.normal(size=12)))
    return X, rng.negative_binomial(3, 3.0 / (3.0 + rate)).astype(float)


def no_signal(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """A target that no column explains."""
    return rng.normal(size=(n, 20)), 2.0 * rng.normal(size=n)


def factor_regression(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """2,000 columns made from ten factors."""
    hidden = rng.normal(size=(n, 10))
    X = 0.8 * hidden @ rng.normal(size=(10, 2000)) / np.sqrt(10.0) + 0.6 * rng.normal(size=(n, 2000))
    return X, hidden @ rng.normal(size=10) + rng.normal(size=n)


# ---------------------------------------------------------------------------------------------------- real sets
def split(X: Any, y: Any, rng: np.random.Generator, standardised: bool, n: int | None = None, **bounds: Any) -> Draw:
    """Three quarters of the rows (or ``n``) for training, the rest for testing, up to 5,000."""
    rows = rng.permutation(X.shape[0])
    n = n or int(0.75 * len(rows))
    train, test = rows[:n], rows[n : n + 5000]
    if standardised:
        X = (X - X[train].mean(axis=0)) / (X[train].std(axis=0) + 1e-9)
    facts = STANDARD if standardised else {"centre": 0.0, "scale": 1.0, "clip": 1.0}
    return Draw(X[train], y[train], X[test], y[test], {**facts, **bounds})


def shipped(
    load: Callable[..., Any], n: int | None = None, two: Callable[[Any], Any] | None = None, **bounds: Any
) -> Callable[..., Draw]:
    """A set of scikit-learn; ``two`` makes labels of the target."""

    def draw(rng: np.random.Generator) -> Draw:
        X, y = load(return_X_y=True)
        return split(X, y if two is None else two(y), rng, True, n, **bounds)

    return draw


def stored(name: str, standardised: bool, n: int | None = None, **bounds: Any) -> Callable[..., Draw]:
    """A real set in the folder that DPERM_DATA names."""

    def draw(rng: np.random.Generator) -> Draw:
        path = Path(os.environ["DPERM_DATA"], f"{name}.npz")
        with np.load(path, allow_pickle=False) as z:
            X = z["X"].astype(float) if "X" in z.files else sp.load_npz(path).astype(float).tocsr()
            y = z["y"]
        y = y.astype(float) if "target" in bounds else (y > 0).astype(int)
        if not standardised and not sp.issparse(X):
            X = X / X.max()
        return split(X, y, rng, standardised, n, **bounds)

    return draw


def _gaussian(rng: np.random.Generator, n: int) -> Any:
    return rng.normal(size=n)


def _heavy(rng: np.random.Generator, n: int) -> Any:
    return rng.standard_t(2.5, n)


def _skewed(rng: np.random.Generator, n: int) -> Any:
    return rng.lognormal(size=n) - np.exp(0.5)


_AROUND_20 = {"target": (-20.0, 20.0)}
_UNIT_ROWS = {"centre": 0.0, "scale": 1.0, "clip": 1.0, "row_norm": 1.0}
_WORDS = {"centre": 0.0, "scale": 1.0, "clip": 1.0}

SETS: dict[str, Set] = {
    # a few columns
    "normal, 1,000 x 10": Set(simulated(1000, normal(10, 0.6))),
    "normal, 4,000 x 50": Set(simulated(4000, normal(50, 0.3))),
    "normal, 1,500 x 100": Set(simulated(1500, normal(100, 0.25))),
    "normal, one in ten": Set(simulated(3000, normal(10, 0.6, -2.5))),
    "spectrum 1, 2,000 x 60": Set(simulated(2000, spectrum(60, 1.0, 2.5))),
    "spectrum 2, 1,000 x 100": Set(simulated(1000, spectrum(100, 2.0, 2.5))),
    "long rows": Set(simulated(1500, long_rows)),
    "separable": Set(simulated(1000, separable)),
    "panel": Set(simulated(2000, panel)),
    "pure noise, 500 x 20": Set(simulated(500, normal(20, 0.0, 0.85))),
    "hinge": Set(simulated(2000, normal(20, 0.5)), "hinge"),
    "four classes": Set(simulated(3000, several_classes(10, 4)), "classes"),
    "breast cancer": Set(shipped(datasets.load_breast_cancer)),
    "digits, below 5": Set(shipped(datasets.load_digits, two=lambda y: (y < 5).astype(int))),
    "digits": Set(shipped(datasets.load_digits), "classes"),
    "wine": Set(shipped(datasets.load_wine), "classes"),
    "a9a, 2,000": Set(stored("a9a", False, 2000)),
    "a9a": Set(stored("a9a", False, 32561)),
    # many columns
    "texts": Set(simulated(2000, texts(10_000, False), **_WORDS)),
    "texts, unit rows": Set(simulated(2000, texts(10_000, True), **_UNIT_ROWS)),
    "texts, five classes": Set(simulated(4000, texts(10_000, True, 5), **_UNIT_ROWS), "classes"),
    "texts, 1,400 words": Set(simulated(4000, texts(1400, False), **_WORDS)),
    "categories": Set(simulated(3000, categories(60, 6), **_WORDS)),
    "factors, 1,000 x 2,000": Set(simulated(1000, common_factors(2000, 0.8))),
    "factors, 4,000 x 500": Set(simulated(4000, common_factors(500, 0.8))),
    "independent, 4,000 x 500": Set(simulated(4000, common_factors(500, 0.0))),
    "normal, 300 x 3,000": Set(simulated(300, common_factors(3000, 0.5))),
    "five of 2,000": Set(simulated(2000, some_relevant(2000, 5, 0, 2.0))),
    "five of 2,000, l1": Set(simulated(2000, some_relevant(2000, 5, 0, 2.0)), "logistic", "l1"),
    "five of 300": Set(simulated(1500, some_relevant(300, 5, 0, 2.0))),
    "five strong, 200 weak of 1,000": Set(simulated(2000, some_relevant(1000, 5, 200, 2.0))),
    "pure noise, 1,000 x 2,000": Set(simulated(1000, common_factors(2000, 0.0, 0.0))),
    "MNIST, 4 and 9": Set(stored("mnist49", False)),
    "arcene": Set(stored("arcene", True)),
    "dorothea": Set(stored("dorothea", False)),
    "madelon": Set(stored("madelon", True)),
    # regression
    "regression, 2,000 x 15": Set(simulated(2000, regression(15, 0.5, _gaussian), **_AROUND_20), "ridge"),
    "regression, 1,500 x 100": Set(simulated(1500, regression(100, 0.0, _gaussian), **_AROUND_20), "ridge"),
    "regression, heavy tails": Set(simulated(2000, regression(15, 0.5, _heavy), **_AROUND_20), "ridge"),
    "regression, skewed": Set(simulated(2000, regression(15, 0.5, _skewed), **_AROUND_20), "huber"),
    "regression, no signal": Set(simulated(1500, no_signal, **_AROUND_20), "ridge"),
    "counts, range to 1,000": Set(simulated(3000, counts, target=(0.0, 1000.0)), "ridge"),
    "ten of 1,000": Set(simulated(1000, sparse_regression(1000, 10, 0.0), **_AROUND_20), "ridge"),
    "ten of 1,000, lasso": Set(simulated(1000, sparse_regression(1000, 10, 0.0), **_AROUND_20), "lasso", "l1"),
    "ten of 1,000, correlated": Set(simulated(1000, sparse_regression(1000, 10, 0.8), **_AROUND_20), "lasso", "l1"),
    "factors, 1,500 x 2,000": Set(simulated(1500, factor_regression, **_AROUND_20), "ridge"),
    "diabetes": Set(shipped(datasets.load_diabetes, target=(0.0, 400.0)), "ridge"),
    "california": Set(stored("california", True, 10_000, target=(0.0, 6.0)), "ridge"),
    "melting points": Set(stored("meltingpoint_qsar", True, target=(0.0, 400.0)), "ridge"),
}
