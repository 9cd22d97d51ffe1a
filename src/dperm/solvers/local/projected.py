"""Linear models with many features by a public random projection: Algorithm 4 of Wang, Gaboardi and Xu (2018).

Here the small problem is solved from moments; :mod:`~dperm.solvers.local.projected_net` solves it as the paper does.
Proof: ``projected.proof.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import linprog

from dperm.errors import InvalidData, InvalidInput, Unsupported
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local.linear_models import LinearTask
from dperm.solvers.local.task import Counts, Task
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = ["ProjectedLinearModel", "Projection", "least_l1", "public_signs"]


def public_signs(n_rows: int, n_columns: int, source: RandomSource) -> tuple[tuple[int, ...], ...]:
    """Draw a matrix of -1 and 1; it is public and the same for everybody."""
    words = source.words(n_rows * n_columns).reshape(n_rows, n_columns)
    return tuple(tuple(row) for row in (2 * (words & np.uint64(1)).astype(np.int64) - 1).tolist())


def least_l1(matrix: FloatArray, small: FloatArray, l1_radius: float) -> FloatArray:
    """Return the weights w of least l1 norm with ``matrix @ w = small``, scaled into the l1 ball."""
    both = np.hstack([matrix, -matrix])
    found = linprog(np.ones(both.shape[1]), A_eq=both, b_eq=small, method="highs")
    if found.x is None:
        raise Unsupported("no weights have this projection: the public matrix needs more columns than rows.")
    p = matrix.shape[1]
    weights = found.x[:p] - found.x[p:]
    return np.asarray(weights * min(1.0, l1_radius / max(float(np.abs(weights).sum()), 1e-300)))


@dataclass(frozen=True)
class Projection:
    """The public part of Algorithm 4: the matrix, the l1 ball of the weights, and epsilon.

    Parameters
    ----------
    epsilon : float
        Epsilon of a report.
    signs : tuple of tuples of int
        The public matrix of m rows, of -1 and 1; see :func:`public_signs`.
    l1_radius : float
        Bound on the l1 norm of the weights.
    """

    epsilon: float
    signs: tuple[tuple[int, ...], ...]
    l1_radius: float = 1.0

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or not (np.abs(self._signs) == 1.0).all():
            raise InvalidInput("signs must be a matrix of -1 and 1.")
        positive("l1_radius", self.l1_radius)

    @property
    def _signs(self) -> FloatArray:
        return np.asarray(self.signs, np.float64)

    @cached_property
    def matrix(self) -> FloatArray:
        """The projection, m rows."""
        matrix: FloatArray = self._signs / np.sqrt(len(self.signs))
        return matrix

    @property
    def inputs(self) -> dict[str, Any]:
        """How a record is computed from a person's data; part of the task."""
        return {"signs": [list(row) for row in self.signs], "l1_radius": float(self.l1_radius)}

    def _projected(self, features: Any, target: Any) -> tuple[FloatArray, FloatArray]:
        x, y = np.asarray(features, np.float64), np.asarray(target, np.float64)
        if x.ndim != 2 or x.shape[1] != self.matrix.shape[1] or y.shape != x.shape[:1]:
            raise InvalidData(f"features must have {self.matrix.shape[1]} columns, and the target one number per row.")
        with np.errstate(all="ignore"):
            return x @ self.matrix.T, y


@dataclass(frozen=True)
class ProjectedLinearModel(Projection):
    """Experimental: weights in the l1 ball for far more features than a collection could estimate one by one.

    People project their features, x -> signs x / sqrt(m), scale the result down to the unit ball (the published form
    leaves this out) and report one moment of the projection and the target. The collector solves the small problem and
    returns the weights of smallest l1 norm with the same projection. With 400 features at epsilon 1 it is no better
    than the null model (all weights 0) for up to ten million people.

    Guarantee
    ---------
    That of its :class:`~dperm.solvers.local.Task`: one index and one bit per person, epsilon-DP. The projection is
    public and computed by the person.

    Parameters
    ----------
    epsilon, signs, l1_radius :
        As for :class:`Projection`.
    loss : {"squared", "logistic"}
        The loss, of a target in [-1, 1] or of a label -1 or 1.
    """

    loss: str = "squared"

    @cached_property
    def _linear(self) -> LinearTask:
        # columns of the matrix have length 1, so the projection of weights is no longer than their l1 norm
        reach = (1.0,) * len(self.matrix)
        name = "projected least squares" if self.loss == "squared" else f"projected {self.loss} loss"
        return LinearTask(self.loss, self.epsilon, reach, self.l1_radius, self.l1_radius, name=name, inputs=self.inputs)

    @property
    def task(self) -> Task:
        """The task that people answer, after the projection."""
        return self._linear.task

    def records(self, features: Any, target: Any) -> FloatArray:
        """Return the records that people compute from their features, in the unit ball, and target, in [-1, 1]."""
        projected, y = self._projected(features, target)
        return np.column_stack([projected, y]) if self.loss == "squared" else projected * y[:, None]

    def estimate(self, counts: Counts) -> FloatArray:
        """Return the weights of smallest l1 norm whose projection solves the small problem, inside the l1 ball."""
        return least_l1(self.matrix, self._linear.estimates(counts)[0].weights, self.l1_radius)
