"""Queries of participants in a vertical run, on their own columns and the per-person numbers they received.

:class:`WeightedRows` and :class:`LocalAtomScores` are sums over people and can be released. The others have no release
and may only be shared inside a trusted domain. Proof: ``sharing.proof.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from scipy.optimize import minimize

from dperm.data.design.facts import Facts
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query
from dperm.data.holding.party import LabelData, PartyData
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.exact import toward_zero
from dperm.objective import Loss
from dperm.objective.penalties import SeparablePenalty
from dperm.objective.proximal import proximal_slopes
from dperm.queries.gradients import predictions
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = [
    "DUAL",
    "RESIDUAL",
    "SCORES",
    "BlockMinimiser",
    "ColumnValues",
    "InverseRoot",
    "LocalAtomScores",
    "PartialPredictions",
    "PartyQuery",
    "PlainGradient",
    "SharedSlopes",
    "Stationarity",
    "WeightedRows",
]


#: names of received values: the number that multiplies a person's row, the prediction, the dual variable
RESIDUAL, SCORES, DUAL = "residual", "scores", "dual"

_UP = 1.0 + 2.0**-50


class PartyQuery(Query):
    """Base of queries on :class:`~dperm.data.holding.party.PartyData`."""


@dataclass(frozen=True, eq=False)
class WeightedRows(PartyQuery):
    """Sum over people of their row times their residual, which is clipped to ``limit``; of all columns or some.

    With the residual of a method it is this party's part of a gradient.
    """

    limit: float
    columns: tuple[int, ...] | None = None

    name: ClassVar[str] = "weighted rows"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", positive("limit", self.limit))
        if self.columns is not None:
            columns = tuple(map(int, self.columns))
            object.__setattr__(self, "columns", columns)
            if not columns or min(columns) < 0 or len(set(columns)) < len(columns):
                raise InvalidInput("columns must be distinct indices, at least one, all >= 0.")

    def _n_columns(self, facts: Facts) -> int:
        if self.columns is None:
            return facts.d
        if max(self.columns) >= facts.d:
            raise InvalidInput(f"column {max(self.columns)} is outside a design of {facts.d} columns.")
        return len(self.columns)

    def evaluate(self, data: PartyData) -> FloatArray:
        design = data.design
        spacing = design.grids.spacing(self.limit, design.grids.slope_bits)
        residual = np.nan_to_num(data.received.get(RESIDUAL), nan=0.0, posinf=self.limit, neginf=-self.limit)
        steps = toward_zero(np.clip(residual, -self.limit, self.limit), spacing)
        columns = None if self.columns is None else np.asarray(self.columns, np.intp)
        return design.sums(steps, columns) * (design.spacing * spacing)

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self.limit * facts.block_bound(self._n_columns(facts)) * _UP

    def bound(self, facts: Facts) -> float:
        return facts.n * self.limit * facts.value_bound * _UP

    def size(self, facts: Facts) -> int:
        return self._n_columns(facts)


@dataclass(frozen=True, eq=False)
class LocalAtomScores(WeightedRows):
    """Scores (-g, g) of this party's signed columns, g the :class:`WeightedRows`; for private selection.

    ``common_bound`` is the largest value bound of all parties whose candidates compete: they need one noise scale.
    """

    common_bound: float = 0.0

    name: ClassVar[str] = "local atom scores"
    norm: ClassVar[str] = "linf"

    def evaluate(self, data: PartyData) -> FloatArray:
        gradient = super().evaluate(data)
        return np.concatenate([-gradient, gradient])

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self.limit * max(facts.value_bound, self.common_bound) * _UP

    def size(self, facts: Facts) -> int:
        return 2 * self._n_columns(facts)


class _DomainOnly(Query):
    """A value without release: no useful sensitivity exists, so none is stated and a holder cannot release it."""

    norm: ClassVar[str] = "none"

    def zero_out_sensitivity(self, facts: Facts) -> NoReturn:
        raise Unsupported(f"{self.name} have no release: share them inside a trusted domain.")

    def bound(self, facts: Facts) -> NoReturn:
        self.zero_out_sensitivity(facts)


@dataclass(frozen=True, eq=False)
class PartialPredictions(_DomainOnly):
    """This holder's part of every person's prediction at public weights."""

    weights: FloatArray

    name: ClassVar[str] = "partial predictions"

    def evaluate(self, data: DesignData) -> FloatArray:
        return predictions(data, self.weights)

    def size(self, facts: Facts) -> int:
        return facts.n


@dataclass(frozen=True, eq=False)
class ColumnValues(_DomainOnly):
    """One column of this party, exact, for every person."""

    column: int

    name: ClassVar[str] = "columns of single people"

    def evaluate(self, data: PartyData) -> FloatArray:
        return data.design.scores(np.ones(1), [self.column]) * data.design.spacing

    def size(self, facts: Facts) -> int:
        return facts.n


@dataclass(frozen=True, eq=False)
class SharedSlopes(_DomainOnly):
    """The label holder's slope for every person, at the predictions it received.

    With ``rho`` it is the slope at the proximal point of (prediction + dual / rho), which is the next dual variable of
    a method of multipliers.
    """

    loss: Loss
    rho: float | None = None

    name: ClassVar[str] = "slopes of single people"

    def evaluate(self, data: LabelData) -> FloatArray:
        scores = data.received.get(SCORES)
        if self.rho is None:
            return self.loss.slope(scores, data.target)
        return proximal_slopes(self.loss, scores + data.received.get(DUAL) / self.rho, data.target, self.rho)

    def size(self, facts: Facts) -> int:
        return facts.n


@dataclass(frozen=True, eq=False)
class BlockMinimiser(_DomainOnly):
    r"""This party's exact step of a method of multipliers, without any noise.

    With received residuals r, current weights w and a curvature kappa it is

    .. math:: \arg\min_u \; r^\top D u + \tfrac{\kappa}{2} \|D (u - w)\|^2 + n \cdot \text{penalty}(u)

    in closed form without an l1 part, and by L-BFGS-B on u = a - b, a, b >= 0, with one.
    """

    weights: FloatArray
    curvature: float
    penalty: SeparablePenalty
    unpenalised: tuple[int, ...] = ()

    name: ClassVar[str] = "minimisers of a block"

    def evaluate(self, data: PartyData) -> FloatArray:
        n, d = data.facts.n, data.design.d
        gram, linear = _gram(data), _linear(data)
        l2, l1 = np.full(d, n * self.penalty.l2), np.full(d, n * self.penalty.l1)
        l2[list(self.unpenalised)] = l1[list(self.unpenalised)] = 0.0
        hessian = self.curvature * gram + np.diag(l2)
        # regularised slightly, so that directions without rows stay where they are
        hessian[np.diag_indices(d)] += 1e-12 * max(float(np.trace(hessian)), 1e-300) / d
        target = self.curvature * (gram @ self.weights) - linear
        if self.penalty.l1 == 0.0:
            return np.asarray(np.linalg.solve(hessian, target), np.float64)

        def cost(ab: FloatArray) -> tuple[float, FloatArray]:
            u = ab[:d] - ab[d:]
            product = hessian @ u
            smooth = product - target
            value = float(u @ (0.5 * product - target) + l1 @ (ab[:d] + ab[d:]))
            return value, np.concatenate([smooth + l1, l1 - smooth])

        start = np.concatenate([np.maximum(self.weights, 0.0), np.maximum(-self.weights, 0.0)])
        found: Any = minimize(
            cost, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * (2 * d),
            options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-8},
        )  # fmt: skip
        return np.asarray(found.x[:d] - found.x[d:])

    def size(self, facts: Facts) -> int:
        return facts.d


@dataclass(frozen=True, eq=False)
class Stationarity(_DomainOnly):
    """Squared length of the proximal gradient step of the augmented Lagrangian in this party's weights, one number."""

    weights: FloatArray
    penalty: SeparablePenalty
    unpenalised: tuple[int, ...] = ()

    name: ClassVar[str] = "stationarities"

    def evaluate(self, data: PartyData) -> FloatArray:
        moved = self.weights - _linear(data)
        shrunk = self.penalty.prox(moved, float(data.facts.n)) / (1.0 + data.facts.n * self.penalty.l2)
        free = list(self.unpenalised)
        shrunk[free] = moved[free]
        return np.array([float(np.sum((self.weights - shrunk) ** 2))])

    def size(self, facts: Facts) -> int:
        return 1


class PlainGradient(_DomainOnly):
    """Sum over people of their row times their residual, without clipping or noise."""

    name: ClassVar[str] = "gradient sums without noise"

    def evaluate(self, data: PartyData) -> FloatArray:
        return _linear(data)

    def size(self, facts: Facts) -> int:
        return facts.d


class InverseRoot(_DomainOnly):
    """Inverse square root of the party's second moments, as a matrix; 0 along directions without rows."""

    name: ClassVar[str] = "inverse roots of second moments"

    def evaluate(self, data: PartyData) -> FloatArray:
        values, vectors = np.linalg.eigh(_gram(data))
        kept = values > 1e-9 * max(float(values[-1]), 1e-300)
        root = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
        return np.asarray((vectors * root) @ vectors.T, np.float64)

    def size(self, facts: Facts) -> int:
        return facts.d * facts.d


def _linear(data: PartyData) -> FloatArray:
    """Sum over people of their row times their residual, in plain floating point."""
    design, residual, out = data.design, data.received.get(RESIDUAL), np.zeros(data.design.d)
    nonzero = np.flatnonzero(residual)
    if 2 * len(nonzero) < len(residual):  # a batch
        design, residual = design.take(nonzero), residual[nonzero]
    for part, block in design.row_chunks():
        out += block.T @ residual[part]
    return out * design.spacing


def _gram(data: PartyData) -> FloatArray:
    """Second moments of the party's rows, computed once."""
    gram = data.kept.get("gram")
    if gram is None:
        design = data.design
        gram = np.zeros((design.d, design.d))
        for _, block in design.row_chunks():
            gram += block.T @ block
        gram *= design.spacing**2
        data.kept["gram"] = gram
    return gram
