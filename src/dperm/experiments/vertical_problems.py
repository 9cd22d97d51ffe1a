"""Classification problems whose columns are split among parties, and runs of vertical methods on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.experiments.datasets import DataFolder, Dataset
from dperm.experiments.result import Baseline
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.solvers.vertical import MessageLog, VerticalResult, VerticalTask, run_in_process
from dperm.types import FloatArray

__all__ = ["FILES", "STRENGTH", "ShareSize", "VerticalProblem", "a9a", "digits", "log_loss", "whole"]

FILES = {"a9a": "a9a.npz", "digits": "mnist49.npz"}
#: of the l2 penalty; the paper prints none. Small enough that party 1 alone is far from the pooled optimum
STRENGTH = 1e-4

Watch = Callable[[Mapping[str, FloatArray]], None]


@dataclass(frozen=True)
class ShareSize:
    """Most rows for training, and most columns."""

    rows: int
    columns: int


@dataclass(frozen=True)
class VerticalProblem:
    """Labels 0 and 1, rows to train and to test on, and columns cut into one part for each party.

    The last party's design has the intercept, unless ``intercept`` is off. ``row_norms`` are public bounds on the
    length of a party's rows, where more is known than the range [-1, 1] of its entries.
    """

    name: str
    data: Dataset
    cuts: tuple[int, ...]
    row_norms: tuple[float | None, ...]
    intercept: bool = True

    @property
    def n(self) -> int:
        """Number of people to train on."""
        return self.data.n_train

    @property
    def d(self) -> int:
        """Number of columns of all parties."""
        return int(self.data.X.shape[1])

    @cached_property
    def y(self) -> FloatArray:
        """Labels of those people."""
        return np.asarray(self.data.y[: self.n], float)

    @cached_property
    def y_test(self) -> FloatArray:
        """Labels of the other people."""
        return np.asarray(self.data.y[self.n :], float)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """First column of every party, and the one after its last."""
        return list(pairwise([0, *self.cuts, self.d]))

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties."""
        return tuple(f"party {k + 1}" for k in range(len(self.edges)))

    @cached_property
    def designs(self) -> dict[str, DesignMatrix]:
        """Every party's private columns."""
        out = {}
        for name, (start, stop), norm in zip(self.parties, self.edges, self.row_norms, strict=True):
            scaling = Scaling(np.zeros(stop - start), np.ones(stop - start), 1.0, norm)
            part = self.data.X[: self.n, start:stop]
            height = 1.0 if self.intercept and stop == self.d else 0.0
            out[name] = DesignMatrix.from_array(part.tocsc() if sp.issparse(part) else part, scaling, height)
        return out

    @cached_property
    def facts(self) -> dict[str, Facts]:
        """Public facts of every party's columns."""
        return {name: Facts.of_design(design.shape) for name, design in self.designs.items()}

    @cached_property
    def pooled(self) -> Any:
        """All columns of all people, and a column of ones."""
        X = self.data.X
        ones = np.ones((X.shape[0], 1))
        return sp.hstack([X, ones]).tocsr() if sp.issparse(X) else np.column_stack([X, ones])

    # ------------------------------------------------------------------------------------------------- measures
    def test_loss(self, weights: FloatArray, columns: list[int] | None = None) -> float:
        """Mean log loss on the test people, of weights of all columns or some, the intercept last."""
        X = self.pooled[self.n :]
        return log_loss((X if columns is None else X[:, columns]) @ weights, self.y_test)

    def objective(self, weights: FloatArray, strength: float = STRENGTH) -> float:
        """Training objective of weights of all columns, the intercept last."""
        loss = log_loss(self.pooled[: self.n] @ weights, self.y)
        return loss + 0.5 * strength * float(weights[:-1] @ weights[:-1])

    def optimum(self, strength: float = STRENGTH, columns: list[int] | None = None) -> tuple[float, FloatArray]:
        """Return the least training objective without privacy, and its weights; of all columns or some."""
        X = self.pooled[: self.n] if columns is None else self.pooled[: self.n][:, columns]
        penalty = np.full(X.shape[1], strength)
        penalty[-1] = 0.0

        def cost(w: FloatArray) -> tuple[float, FloatArray]:
            z = X @ w
            gradient = X.T @ (expit(z) - self.y) / self.n + penalty * w
            return log_loss(z, self.y) + 0.5 * float(penalty @ w**2), gradient

        options: Any = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-8}
        found = minimize(cost, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options=options)
        return float(found.fun), np.asarray(found.x)

    @cached_property
    def pooled_optimum(self) -> tuple[float, FloatArray]:
        """The optimum over all columns."""
        return self.optimum()

    @property
    def own_columns(self) -> list[int]:
        """Columns of party 1, and the intercept, which it may fit too."""
        return [*range(self.edges[0][1]), self.d]

    def alone_loss(self) -> float:
        """Test log loss of party 1 with its own columns, without privacy."""
        return self.test_loss(self.optimum(columns=self.own_columns)[1], self.own_columns)

    def null_loss(self) -> float:
        """Test log loss of the model whose weights are 0."""
        return self.test_loss(np.zeros(self.d + 1))

    def baseline(self) -> Baseline:
        """Return the pooled optimum and the null model, by test log loss."""
        best = self.test_loss(self.pooled_optimum[1])
        origin, seed = self.data.origin, self.data.seed
        return Baseline(self.name, origin, self.n, self.d, seed, "test log loss", best, self.null_loss())

    # ----------------------------------------------------------------------------------------------------- runs
    def run(
        self,
        task: VerticalTask,
        watch: Watch | None = None,
        designs: Mapping[str, DesignMatrix] | None = None,
        y: FloatArray | None = None,
    ) -> tuple[VerticalResult, MessageLog]:
        """Run a task with fresh noise, and return its result and its messages' bytes.

        ``watch`` is called with the weights after every round, for methods without a guarantee.
        """
        designs, y = self.designs if designs is None else designs, self.y if y is None else y
        names = ("coordinator", *designs)
        source = {name: task.source(name) for name in names}
        unbounded = task.no_guarantee or (None if source["coordinator"].secure else "seeded")
        scopes = {
            name: Scope(
                task.calibrated, Ledger(neighbours=task.neighbours), task.neighbours, "experiment", unbounded=unbounded
            )
            for name in names
        }
        coordinator: Any = task.coordinator(y, scopes["coordinator"], source["coordinator"])
        if watch is not None:
            coordinator.on_round = watch
        parties = {name: task.party(name, one, scopes[name], source[name]) for name, one in designs.items()}
        messages = MessageLog()
        result = run_in_process(coordinator, parties, messages)
        for scope in scopes.values():
            scope.settle()
        return result, messages


def whole(weights: Mapping[str, FloatArray]) -> FloatArray:
    """Return the weights of all parties in one array."""
    return np.concatenate(list(weights.values()))


def log_loss(margin: FloatArray, y: FloatArray) -> float:
    """Mean logistic loss for labels 0 and 1."""
    return float(-np.mean(y * log_expit(margin) + (1.0 - y) * log_expit(-margin)))


# ------------------------------------------------------------------------------------------------------ the data
#: bits of every group of a9a's columns, of which each person has at most one
_GROUPS = (5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41)
_A9A_CUT = 66  # the paper's: eight groups for party 1, six for party 2


def _made_a9a(rows: int) -> Dataset:
    """One bit of every group for each person, and labels that depend on a few bits of both parties."""
    rng = np.random.default_rng(21)
    n = 2 * rows
    starts = np.cumsum([0, *_GROUPS])
    chosen = np.column_stack([start + rng.integers(0, width, n) for start, width in zip(starts, _GROUPS, strict=False)])
    X = sp.csr_matrix((np.ones(chosen.size), (np.repeat(np.arange(n), len(_GROUPS)), chosen.ravel())))
    w = rng.normal(size=X.shape[1]) * (rng.random(X.shape[1]) < 0.5)
    y = (rng.random(n) < expit(X @ w - 1.0)).astype(float)
    return Dataset(X, y, rows, "made, one bit of each of 14 groups", 21)


def _made_digits(rows: int, columns: int) -> Dataset:
    """Entries from 0 to 1 that are strongly correlated, as neighbouring pixels are, and labels that fit well."""
    rng = np.random.default_rng(22)
    n = 2 * rows
    factors = rng.normal(size=(max(3, columns // 8), columns))
    hidden = rng.normal(size=(n, len(factors)))
    X = np.clip(0.5 + 0.2 * hidden @ factors / np.sqrt(len(factors)) + 0.1 * rng.normal(size=(n, columns)), 0.0, 1.0)
    y = (hidden[:, :3].sum(axis=1) + 0.3 * rng.normal(size=n) > 0.0).astype(float)
    return Dataset(X, y, rows, "made, correlated columns", 22)


def a9a(folder: DataFolder, size: ShareSize) -> VerticalProblem:
    """Adult as bits, 66 and 57 columns as in the paper.

    They are eight and six groups of which at most one bit is set, so the lengths of rows are public.
    """
    data = folder.read(FILES["a9a"], lambda: _made_a9a(min(size.rows, 32561)))
    data = replace(data, X=sp.csr_matrix(data.X), y=(data.y > 0).astype(float))
    return VerticalProblem("a9a", _cut(data, size.rows), (_A9A_CUT,), (8.0**0.5, 6.0**0.5))


def digits(folder: DataFolder, size: ShareSize) -> VerticalProblem:
    """MNIST 4 against 9 in place of gisette, cut in the paper's proportions 2 : 2 : 1."""
    origin = "stand-in for gisette: MNIST 4 against 9"
    data = folder.read(FILES["digits"], lambda: _made_digits(min(size.rows, 11791), min(size.columns, 784)), origin)
    X = data.X / data.X.max()  # the range of a pixel is public
    data = replace(data, X=X[:, : size.columns], y=(data.y > 0).astype(float))
    fifth = data.X.shape[1] / 5.0
    cuts = (round(2 * fifth), round(4 * fifth))
    widths = np.diff([0, *cuts, data.X.shape[1]])
    norms = tuple(float(np.sqrt(0.5 * width)) for width in widths)  # no digit has ink in more than half of its pixels
    return VerticalProblem("digits", _cut(data, size.rows), cuts, norms)


def _cut(data: Dataset, rows: int) -> Dataset:
    """Keep the first rows to train on, and as many to test on at most."""
    if data.n_train <= rows:
        return data
    test = slice(data.n_train, data.n_train + rows)
    parts = [data.X[:rows], data.X[test]]
    X = sp.vstack(parts).tocsr() if sp.issparse(data.X) else np.vstack(parts)
    y = np.concatenate([data.y[:rows], data.y[test]])
    return Dataset(X, y, rows, f"{data.origin}, cut to its first rows", data.seed)
