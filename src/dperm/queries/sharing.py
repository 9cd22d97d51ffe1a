"""Queries of participants in a vertical run, on their own columns and the per-person numbers they were sent.

Proof: ``sharing.proof.md``. What is released here is a sum over people; :class:`SharedSlopes` and
:class:`BlockMinimiser` have no release and may only be shared inside a trusted domain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from scipy.optimize import minimize

from dperm.data.design.facts import Facts
from dperm.data.holding.party import LabelData, PartyData
from dperm.data.holding.query import Query
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.exact import toward_zero
from dperm.objective import Loss
from dperm.objective.penalties import SeparablePenalty
from dperm.objective.proximal import proximal_slopes
from dperm.types import FloatArray

__all__ = [
    "DUAL",
    "RESIDUAL",
    "SCORES",
    "BlockMinimiser",
    "ColumnValues",
    "InverseRoot",
    "LocalAtomScores",
    "PartyQuery",
    "PlainGradient",
    "SharedSlopes",
    "Stationarity",
    "WeightedRows",
]


#: names in an inbox: the number that multiplies a person's row, a person's prediction, a person's dual variable
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
        if not (math.isfinite(self.limit) and self.limit > 0.0):
            raise InvalidInput(f"limit must be positive, not {self.limit!r}.")
        object.__setattr__(self, "limit", float(self.limit))
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
        residual = np.nan_to_num(data.inbox.get(RESIDUAL), nan=0.0, posinf=self.limit, neginf=-self.limit)
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


class _InsideOnly(Query):
    """A value with no release: no useful sensitivity exists, so none is stated."""

    norm: ClassVar[str] = "none"

    def zero_out_sensitivity(self, facts: Facts) -> NoReturn:
        raise Unsupported(f"{self.name} have no release: share them inside a trusted domain.")

    def bound(self, facts: Facts) -> NoReturn:
        self.zero_out_sensitivity(facts)


@dataclass(frozen=True, eq=False)
class ColumnValues(_InsideOnly):
    """One column of this party, exact, for every person."""

    column: int

    name: ClassVar[str] = "columns of single people"

    def evaluate(self, data: PartyData) -> FloatArray:
        return data.design.scores(np.ones(1), [self.column]) * data.design.spacing

    def size(self, facts: Facts) -> int:
        return facts.n


@dataclass(frozen=True, eq=False)
class SharedSlopes(_InsideOnly):
    """The label holder's slope for every person, at the predictions in its inbox.

    With ``rho`` it is the slope at the proximal point of (prediction + dual / rho), which is the next dual variable of
    a method of multipliers.
    """

    loss: Loss
    rho: float | None = None

    name: ClassVar[str] = "slopes of single people"

    def evaluate(self, data: LabelData) -> FloatArray:
        scores = data.inbox.get(SCORES)
        if self.rho is None:
            return self.loss.slope(scores, data.target)
        return proximal_slopes(self.loss, scores + data.inbox.get(DUAL) / self.rho, data.target, self.rho)

    def size(self, facts: Facts) -> int:
        return facts.n


@dataclass(frozen=True, eq=False)
class BlockMinimiser(_InsideOnly):
    r"""This party's exact step of a method of multipliers, without any noise.

    With residuals r (in the inbox), current weights w and a curvature kappa it is

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
        strong, thin = np.full(d, n * self.penalty.l2), np.full(d, n * self.penalty.l1)
        strong[list(self.unpenalised)] = thin[list(self.unpenalised)] = 0.0
        hessian = self.curvature * gram + np.diag(strong)
        # directions that no row has are left where they are
        hessian[np.diag_indices(d)] += 1e-12 * max(float(np.trace(hessian)), 1e-300) / d
        target = self.curvature * (gram @ self.weights) - linear
        if self.penalty.l1 == 0.0:
            return np.asarray(np.linalg.solve(hessian, target), np.float64)

        def cost(ab: FloatArray) -> tuple[float, FloatArray]:
            u = ab[:d] - ab[d:]
            product = hessian @ u
            smooth = product - target
            value = float(u @ (0.5 * product - target) + thin @ (ab[:d] + ab[d:]))
            return value, np.concatenate([smooth + thin, thin - smooth])

        start = np.concatenate([np.maximum(self.weights, 0.0), np.maximum(-self.weights, 0.0)])
        found: Any = minimize(
            cost, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * (2 * d),
            options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-8},
        )  # fmt: skip
        return np.asarray(found.x[:d] - found.x[d:])

    def size(self, facts: Facts) -> int:
        return facts.d


@dataclass(frozen=True, eq=False)
class Stationarity(_InsideOnly):
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


class PlainGradient(_InsideOnly):
    """Sum over people of their row times their residual, without clipping or noise."""

    name: ClassVar[str] = "gradient sums without noise"

    def evaluate(self, data: PartyData) -> FloatArray:
        return _linear(data)

    def size(self, facts: Facts) -> int:
        return facts.d


class InverseRoot(_InsideOnly):
    """Inverse square root of the party's second moments, as a matrix; 0 along directions that no row has."""

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
    design, residual, out = data.design, data.inbox.get(RESIDUAL), np.zeros(data.design.d)
    concerned = np.flatnonzero(residual)
    if 2 * len(concerned) < len(residual):  # a batch
        design, residual = design.take(concerned), residual[concerned]
    for part, block in design.row_chunks():
        out += block.T @ residual[part]
    return out * design.spacing


def _gram(data: PartyData) -> FloatArray:
    """Second moments of the party's rows, worked out once."""
    known = data.kept.get("gram")
    if known is None:
        design = data.design
        known = np.zeros((design.d, design.d))
        for _, block in design.row_chunks():
            known += block.T @ block
        known *= design.spacing**2
        data.kept["gram"] = known
    return known
