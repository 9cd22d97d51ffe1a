"""Problems of the comparison with peers: generated once, saved as .npz, read by every worker.

Workers run in the peers' own environments, so reading needs numpy alone; scikit-learn and scipy are imported only where
a problem is generated.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: splits and noise seeds of a full run
DEFAULTS = {"breast_cancer": (20, 5), "logit": (5, 2), "a9a": (1, 5), "sparse": (5, 2), "california": (5, 2)}
#: the same for ``--fast``
FAST = {"breast_cancer": (4, 1), "logit": (1, 1), "a9a": (1, 1), "sparse": (1, 1), "california": (1, 1)}
#: names of the scores
SCORES = {"logistic": "Test accuracy", "squared": "Test R2"}
DESCRIPTIONS = {
    "breast_cancer": "breast_cancer (569 rows, 30 columns, 80/20 splits)",
    "logit": "simulated logistic (20000 rows, 100 columns, 20 of them active, 80/20 splits)",
    "a9a": "a9a (32561 train and 16281 test rows, 123 columns of 0/1)",
    "sparse": "simulated sparse least squares (1000 train and 1000 test rows, 1000 columns, 10 of them active)",
    "california": "california housing (20640 rows, 8 columns, 80/20 splits)",
}
#: public ranges of its columns: income, age of houses, rooms, bedrooms, people in a block and in a home, latitude and
#: longitude
CALIFORNIA = [0, 1, 1, 0.5, 3, 1, 32, -125], [15, 52, 12, 2.5, 5000, 6, 42, -114]


@dataclass
class Problem:
    """Rows with their splits, and the facts that every method treats as public.

    Attributes
    ----------
    task : str
        ``"logistic"`` (labels 0 and 1, scored by test accuracy) or ``"squared"`` (scored by test R2).
    train, test : array of shape (n_splits, rows)
        Row numbers of each split.
    standardise : bool
        Whether columns are standardised with the moments of the train rows, taken as public.
    clip : float
        Public bound of a scaled entry.
    row_norm : float
        Public bound of a scaled row; infinite where none is known beyond that of its entries.
    unit : float
        Public typical length of a scaled row with its constant; methods that need rows in the unit ball divide by it
        and shorten the rows that stick out.
    target : (float, float)
        Public range of a regression target.
    """

    name: str
    task: str
    X: Any
    y: Any
    train: Any
    test: Any
    standardise: bool
    clip: float
    row_norm: float
    unit: float
    target: tuple[float, float] = (0.0, 1.0)

    @property
    def n_train(self) -> int:
        return int(self.train.shape[1])

    @property
    def n_splits(self) -> int:
        return int(self.train.shape[0])

    @property
    def delta(self) -> float:
        return 1.0 / self.n_train**2

    def split(self, number: int) -> tuple[Any, Any, Any, Any]:
        """Train rows, train targets, test rows, test targets, scaled."""
        inside, outside = self.train[number], self.test[number]
        X, X_test = self.X[inside].astype(float), self.X[outside].astype(float)
        if self.standardise:
            centre, scale = X.mean(0), X.std(0)
            X, X_test = (X - centre) / scale, (X_test - centre) / scale
        return X, self.y[inside].astype(float), X_test, self.y[outside].astype(float)

    @property
    def middle(self) -> float:
        """Middle of the public range of the target; one half for labels."""
        return 0.5 * (self.target[0] + self.target[1])

    @property
    def half_range(self) -> float:
        """Half of the public range of the target; one half for labels."""
        return 0.5 * (self.target[1] - self.target[0])

    def clipped(self, X: Any) -> Any:
        """Scaled rows inside their public bounds."""
        return np.clip(X, -self.clip, self.clip)

    def unit_rows(self, X: Any) -> Any:
        """Rows with a constant, inside the unit ball."""
        rows = np.column_stack([X, np.ones(len(X))]) / self.unit
        return rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))

    def from_unit(self, weights: Any) -> tuple[Any, float]:
        """Weights of unit rows as coefficients and intercept of scaled rows."""
        return weights[:-1] / self.unit, float(weights[-1]) / self.unit

    def train_loss(self, y: Any, z: Any) -> float:
        """Mean loss of predictions of the train rows, without any penalty."""
        if self.task == "logistic":
            return float(np.mean(np.logaddexp(0.0, z) - y * z))
        return 0.5 * float(np.mean((z - y) ** 2))

    def score(self, y: Any, z: Any) -> float:
        """Accuracy, or R2, of predictions of the test rows."""
        if self.task == "logistic":
            return float(np.mean((z > 0.0) == (y > 0.5)))
        return 1.0 - float(np.mean((z - y) ** 2) / np.var(y))

    def save(self, path: Path) -> None:
        """Write the file that the workers read."""
        np.savez_compressed(path, **vars(self))

    @classmethod
    def load(cls, path: str | Path) -> Problem:
        with np.load(path) as stored:
            values = {name: stored[name] for name in stored.files}
        for name in ("name", "task", "standardise", "clip", "row_norm", "unit"):
            values[name] = values[name].item()
        values["target"] = tuple(values["target"].tolist())
        return cls(**values)


def make(name: str, n_splits: int, seed: int) -> Problem:
    """Generate a problem; the seed determines simulated rows and splits."""
    # the place in this list is part of the seed: a new set goes to the end, so that the others keep their rows
    makers = {
        "a9a": _a9a,
        "breast_cancer": _breast_cancer,
        "logit": _logit,
        "sparse": _sparse,
        "california": _california,
    }
    number = list(makers).index(name)
    return makers[name](n_splits, np.random.default_rng([seed, number]))


def _splits(n: int, share: float, count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    orders = np.array([rng.permutation(n) for _ in range(count)])
    n_train = int(share * n)
    return orders[:, :n_train], orders[:, n_train:]


def _breast_cancer(n_splits: int, rng: np.random.Generator) -> Problem:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    splits = _splits(len(y), 0.8, n_splits, rng)
    return Problem("breast_cancer", "logistic", X, y, *splits, True, 3.0, np.inf, float(np.sqrt(31)))


def _logit(n_splits: int, rng: np.random.Generator) -> Problem:
    n, p = 20000, 100
    X = rng.standard_normal((n, p))
    weights = np.zeros(p)
    weights[:20] = 0.5 * rng.standard_normal(20)
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-X @ weights))
    splits = _splits(n, 0.8, n_splits, rng)
    return Problem("logit", "logistic", X, y.astype(np.int8), *splits, False, 4.0, np.inf, float(np.sqrt(p + 1)))


def _a9a(n_splits: int, rng: np.random.Generator) -> Problem:
    """One split, the published one; a row has at most fourteen ones."""
    import scipy.sparse as sp

    path = Path(os.environ["DPERM_DATA"]) / "a9a.npz"
    X = sp.load_npz(path).toarray().astype(np.int8)
    with np.load(path) as stored:
        y, n_train = (stored["y"] > 0).astype(np.int8), int(stored["n_train"])
    order = np.arange(len(y))[None, :]
    splits = order[:, :n_train], order[:, n_train:]
    return Problem("a9a", "logistic", X, y, *splits, False, 1.0, float(np.sqrt(14)), float(np.sqrt(15)))


def _sparse(n_splits: int, rng: np.random.Generator) -> Problem:
    n, p = 2000, 1000
    X = rng.standard_normal((n, p))
    weights = np.zeros(p)
    weights[rng.choice(p, 10, replace=False)] = rng.choice([-1.0, 1.0], 10)
    y = X @ weights + rng.standard_normal(n)
    splits = _splits(n, 0.5, n_splits, rng)
    return Problem("sparse", "squared", X, y, *splits, False, 3.0, np.inf, float(np.sqrt(p + 1)), (-10.0, 10.0))


def _california(n_splits: int, rng: np.random.Generator) -> Problem:
    """Columns inside their public ranges for every method, because a few blocks are a hundred deviations away."""
    with np.load(Path(os.environ["DPERM_DATA"]) / "california.npz") as stored:
        X, y = np.clip(stored["X"].astype(float), *CALIFORNIA), stored["y"].astype(float)
    splits = _splits(len(y), 0.8, n_splits, rng)
    return Problem("california", "squared", X, y, *splits, True, 3.0, np.inf, 3.0, (0.0, 5.1))
