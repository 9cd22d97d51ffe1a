"""Theta-grid: every person reports the loss at one of a few public weight vectors; for smooth losses of few weights.

Proof: ``theta_grid.proof.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidInput
from dperm.solvers.local.bernstein import BernsteinPolynomial, Minimum
from dperm.solvers.local.sketch import Sketch
from dperm.solvers.local.task import Counts, Task
from dperm.types import FloatArray, IntArray

__all__ = ["MARGIN_LOSSES", "ThetaGrid", "ThetaGridTask"]

#: losses of a margin: convex and decreasing, so that their range ends where the range of the margin ends
MARGIN_LOSSES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "logistic": lambda margin: np.logaddexp(0.0, -margin),
    "smoothed-hinge": lambda margin: np.where(
        margin >= 1.0, 0.0, np.where(margin <= 0.0, 0.5 - margin, 0.5 * (1.0 - margin) ** 2)
    ),
}


@dataclass(frozen=True)
class ThetaGrid(Sketch):
    """The loss of a record a, scaled down to the unit ball, at public weights: l(<w, a>).

    Parameters
    ----------
    nodes : tuple of tuples of float
        The weight vectors, none of them zero.
    loss : {"logistic", "smoothed-hinge"}
        A loss of the margin <w, a>, where a is the label (-1 or 1) times the features.
    """

    nodes: tuple[tuple[float, ...], ...]
    loss: str = "logistic"

    kind: ClassVar[str] = "theta-grid"

    def __post_init__(self) -> None:
        if self.loss not in MARGIN_LOSSES:
            raise InvalidInput(f"loss must be one of {', '.join(MARGIN_LOSSES)}, not {self.loss!r}.")
        if len({len(node) for node in self.nodes}) != 1:
            raise InvalidInput("nodes must be weight vectors of one length.")
        if not np.isfinite(self._nodes).all() or not np.any(self._nodes, axis=1).all():
            raise InvalidInput("nodes must be finite and not zero: at zero every person has the same loss.")

    @cached_property
    def _nodes(self) -> FloatArray:
        return np.asarray(self.nodes, np.float64)

    @property
    def n_columns(self) -> int:
        return len(self.nodes[0])

    @property
    def sizes(self) -> IntArray:
        return np.ones(len(self.nodes), np.int64)

    @property
    def weights(self) -> FloatArray:
        return np.ones(len(self.nodes))

    @cached_property
    def low(self) -> FloatArray:
        return MARGIN_LOSSES[self.loss](np.linalg.norm(self._nodes, axis=1))

    @cached_property
    def high(self) -> FloatArray:
        return MARGIN_LOSSES[self.loss](-np.linalg.norm(self._nodes, axis=1))

    def evaluate(self, records: NDArray[Any], index: IntArray) -> FloatArray:
        columns, nodes = np.asarray(records, np.float64).T, self._nodes[index]
        longest, square, margin = np.ones(len(records)), np.zeros(len(records)), np.zeros(len(records))
        for column in columns:
            np.maximum(longest, np.abs(column), out=longest)
        for column, weights in zip(columns, nodes.T, strict=True):
            part = column / longest  # squares of long records would overflow
            square += part * part
            margin += part * weights
        return MARGIN_LOSSES[self.loss](margin / np.maximum(np.sqrt(square), 1.0 / longest))


@dataclass(frozen=True)
class ThetaGridTask:
    """A collection for any smooth loss of a margin, with one to three weights in the box [-bound, bound]^p.

    The mean loss is estimated on a tensor grid of Chebyshev points. A polynomial of total degree ``degree`` is fitted
    to the estimates by least squares, weighted by the known noise, and minimised over the box.

    Guarantee
    ---------
    That of its :class:`~dperm.solvers.local.Task`: one index and one bit per person, epsilon-DP, released to everyone.
    The weights are computed from counts. Proof: ``theta_grid.proof.md``.

    Parameters
    ----------
    loss : str
        A loss of :class:`ThetaGrid`.
    epsilon : float
        Epsilon of a report.
    n_parameters : int
        Number of weights, at most 3.
    bound : float
        Bound on every weight's magnitude.
    degree : int
        Total degree of the polynomial.
    """

    loss: str
    epsilon: float
    n_parameters: int
    bound: float
    degree: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.n_parameters <= 3 or not 1 <= self.degree <= 8 or not 0.0 < self.bound < np.inf:
            raise InvalidInput("a theta-grid needs 1 to 3 weights, a degree of 1 to 8 and a positive finite bound.")

    @cached_property
    def _grid(self) -> FloatArray:
        """All nodes in units of the bound, the centre included."""
        axis = -np.cos(np.pi * np.arange(self.degree + 1) / self.degree)
        axis[np.abs(axis) < 1e-12] = 0.0
        grid = np.meshgrid(*[axis] * self.n_parameters, indexing="ij")
        return np.stack(grid, axis=-1).reshape(-1, self.n_parameters)

    @cached_property
    def task(self) -> Task:
        """The task that people answer; it leaves out weights 0, where the loss is public."""
        asked = self._grid[np.any(self._grid != 0.0, axis=1)] * self.bound
        return Task("theta-grid", self.epsilon, ThetaGrid(tuple(tuple(node) for node in asked.tolist()), self.loss))

    def polynomial(self, counts: Counts) -> BernsteinPolynomial:
        """Return the mean loss estimated from the counts, on the box mapped to [0, 1]^p."""
        means, variances = self.task.means(counts)
        powers = np.array(
            [m for m in product(range(self.degree + 1), repeat=self.n_parameters) if 0 < sum(m) <= self.degree]
        )

        def monomials(points: FloatArray) -> FloatArray:
            values: FloatArray = np.prod(points[:, None, :] ** powers[None], axis=2)
            return values

        at_zero = float(MARGIN_LOSSES[self.loss](np.zeros(1))[0])
        weights = 1.0 / np.sqrt(np.minimum(variances, 1e12))
        design = monomials(self._grid[np.any(self._grid != 0.0, axis=1)])
        fitted = np.linalg.lstsq(design * weights[:, None], (means - at_zero) * weights, rcond=None)[0]
        axis = np.arange(self.degree + 1) / self.degree
        even = np.stack(np.meshgrid(*[axis] * self.n_parameters, indexing="ij"), axis=-1)
        values = at_zero + monomials(2.0 * even.reshape(-1, self.n_parameters) - 1.0) @ fitted
        return BernsteinPolynomial.through(values.reshape(even.shape[:-1]))

    def estimate(self, counts: Counts) -> tuple[FloatArray, Minimum]:
        """Return the weights that minimise the estimated mean loss, and the minimum with its gap."""
        found = self.polynomial(counts).minimise()
        return self.bound * (2.0 * found.point - 1.0), found
