"""The paper's problem, least squares on an l1 ball over columns of several parties, on the columns of a9a."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.experiments.datasets import DataFolder
from dperm.experiments.result import Baseline
from dperm.experiments.vertical_problems import ShareSize, VerticalProblem, a9a, whole
from dperm.objective import L1Ball, Objective, Squared
from dperm.solvers.vertical import MessageLog, VerticalTask
from dperm.types import FloatArray

__all__ = ["PAPER", "Lasso", "constrained_minimum", "lasso"]

PAPER = "Lou & Cheung 2018, Frank-Wolfe over features"
#: of the l1 ball: the constraint binds, and a linear model of labels of -1 and 1 is nearly as good as it gets
RADIUS = 3.0
#: bound on a residual: labels of -1 and 1 are rarely missed by more
_CLIP = 2.0


def constrained_minimum(
    hessian: FloatArray, linear: FloatArray, project: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Minimise x'Hx/2 + linear'x over a set, given by its projection, by accelerated projected gradient."""
    length = 1.0 / float(np.linalg.eigvalsh(hessian)[-1])
    x = np.zeros(len(linear))
    v, t = x.copy(), 1.0
    for _ in range(20_000):
        new = project(v - length * (hessian @ v + linear))
        following = (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
        if (v - new) @ (new - x) > 0.0:
            following, t = 1.0, 1.0  # restart
        v = new + (t - 1.0) / following * (new - x)
        change = float(np.abs(new - x).max())
        x, t = new, following
        if change < 1e-10:
            break
    return x


@dataclass(frozen=True)
class Lasso:
    """min 1/(2n) |X w - y|^2 over |w|_1 <= radius, y in {-1, 1}; columns are held by several parties."""

    problem: VerticalProblem
    radius: float = RADIUS

    @property
    def objective(self) -> Objective:
        """The loss; its clip bounds what one person can change."""
        return Objective(Squared(residual_clip=_CLIP))

    @property
    def options(self) -> dict[str, Any]:
        """Options of every Frank-Wolfe task on this problem."""
        return {"radius": self.radius, "target_low": -1.0, "target_high": 1.0}

    @property
    def X(self) -> Any:
        """Columns of the people to train on."""
        return self.problem.data.X[: self.problem.n]

    @cached_property
    def y(self) -> FloatArray:
        """Their labels, -1 or 1."""
        return 2.0 * self.problem.y - 1.0

    def value(self, weights: FloatArray) -> float:
        """Return the objective, without clipping."""
        return 0.5 * float(np.mean((self.X @ weights - self.y) ** 2))

    @cached_property
    def hessian(self) -> FloatArray:
        """Second moments of the columns."""
        made = self.X.T @ self.X
        return np.asarray(made.toarray() if hasattr(made, "toarray") else made, float) / self.problem.n

    @cached_property
    def best(self) -> float:
        """The least objective on the ball, without privacy."""
        linear = -np.asarray(self.X.T @ self.y, float) / self.problem.n
        return self.value(constrained_minimum(self.hessian, linear, L1Ball(self.radius).project))

    def run(
        self, task: VerticalTask, designs: Mapping[str, DesignMatrix] | None = None
    ) -> tuple[FloatArray, MessageLog]:
        """Return the weights of one run with fresh noise, and the bytes of its messages."""
        result, messages = self.problem.run(task, designs=designs, y=self.y)
        return whole(result.weights), messages

    def baseline(self) -> Baseline:
        """Return the optimum and the null model, against which results are read."""
        data, null = self.problem.data, self.value(np.zeros(self.problem.d))
        measure = f"objective, l1 ball of radius {self.radius:g}"
        return Baseline(
            "LASSO on a9a", data.origin, self.problem.n, self.problem.d, data.seed, measure, self.best, null
        )


def lasso(folder: DataFolder, rows: int) -> Lasso:
    """Return the problem, with at most so many people."""
    return Lasso(replace(a9a(folder, ShareSize(rows, 123)), intercept=False))
