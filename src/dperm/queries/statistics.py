"""Moments, curvature and quantiles of rows and targets. Proof: ``statistics.proof.md``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query, added
from dperm.data.holding.table_data import TableData
from dperm.errors import InvalidInput
from dperm.kernels.exact import toward_zero
from dperm.objective import Loss
from dperm.queries.gradients import check_weights, predictions
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = [
    "Curvature",
    "FirstMoment",
    "QuantileScores",
    "SecondMoment",
    "TargetMoment",
    "TargetQuantileScores",
    "unpack_symmetric",
]


_UP = 1.0 + 2.0**-50
_DOWN = 1.0 - 2.0**-50


def _checked_clip(clip: float | None) -> float | None:
    # as a double: a float32 would make the sensitivity less precise
    return None if clip is None else positive("clip", clip)


def _row_factors(data: DesignData, clip: float | None) -> FloatArray:
    """Return factors in (0, 1] that bring every row to an L2 norm of at most ``clip``."""
    if clip is None:
        return np.ones(data.design.n_rows)
    with np.errstate(divide="ignore"):
        factors: FloatArray = np.minimum(1.0, clip * _DOWN / data.design.norms())
    return factors


@dataclass(frozen=True, eq=False)
class FirstMoment(Query):
    """Sum of the rows, each scaled down to L2 norm ``clip`` where it is longer."""

    clip: float | None = None

    name: ClassVar[str] = "first moment"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", _checked_clip(self.clip))

    def part(self, block: DesignData) -> FloatArray:
        spacing = block.design.grids.spacing(1.0, block.design.grids.slope_bits)
        factors = toward_zero(_row_factors(block, self.clip), spacing)
        return block.design.sums(factors) * (block.design.spacing * spacing)

    def _row_bound(self, facts: Facts) -> float:
        return facts.row_bound if self.clip is None else min(self.clip, facts.row_bound)

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self._row_bound(facts)

    def bound(self, facts: Facts) -> float:
        return facts.n * min(self._row_bound(facts), facts.value_bound)

    def size(self, facts: Facts) -> int:
        return facts.d


@dataclass(frozen=True, eq=False)
class TargetMoment(Query):
    """Sum of the target, centred at the middle of its public range so that an empty record contributes 0."""

    name: ClassVar[str] = "target moment"
    norm: ClassVar[str] = "l2"

    def part(self, block: DesignData) -> FloatArray:
        facts = block.facts
        half = self.zero_out_sensitivity(facts)
        middle = facts.target_low + (facts.target_high - facts.target_low) / 2.0
        spacing = facts.grids.count_spacing(half)
        steps = toward_zero(np.clip(block.target - middle, -half, half), spacing)
        return np.array([steps.sum() * spacing])

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return (facts.target_high - facts.target_low) / 2.0 * _UP

    def bound(self, facts: Facts) -> float:
        return facts.n * self.zero_out_sensitivity(facts)

    def size(self, facts: Facts) -> int:
        return 1


@dataclass(frozen=True, eq=False)
class SecondMoment(Query):
    """Sum of row times row transposed, each row scaled down to L2 norm ``clip`` where it is longer.

    The value is the upper triangle: the diagonal, then sqrt(2) times the entries above it, so that its L2 norm is the
    matrix's Frobenius norm. :func:`unpack_symmetric` undoes it.
    """

    clip: float | None = None

    name: ClassVar[str] = "second moment"
    norm: ClassVar[str] = "l2"
    replacement_ratio: ClassVar[float] = math.sqrt(2.0) * _UP

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", _checked_clip(self.clip))

    def _row_weights(self, data: DesignData) -> FloatArray:
        return _row_factors(data, self.clip)

    def _sum(self, data: DesignData, weights: FloatArray, spacing: float) -> FloatArray:
        """Sum of weighted row times itself transposed, rows in whole steps of ``spacing``."""
        return data.design.second_moments(weights, data.design.spacing, spacing)

    def _n_columns(self, facts: Facts) -> int:
        return facts.d

    def _weight_bound(self) -> float:
        return 1.0

    def _entry_bound(self, facts: Facts) -> float:
        """Bound on one weighted entry of a row."""
        return math.sqrt(self._weight_bound()) * facts.value_bound * _UP

    def _spacing(self, facts: Facts) -> float:
        return facts.grids.spacing(self._entry_bound(facts), facts.grids.gram_bits)

    def part(self, block: DesignData) -> FloatArray:
        # the weight is folded into the row before it is rounded, so that the products stay whole
        total = self._sum(block, self._row_weights(block), self._spacing(block.facts))
        return total[np.triu_indices(len(total))]  # symmetric: half of it says all

    def total(self, parts: Iterable[FloatArray], facts: Facts) -> FloatArray:
        k, spacing = self._n_columns(facts), self._spacing(facts)
        total = np.zeros((k, k))
        total[np.triu_indices(k)] = added(parts)
        packed = np.concatenate([np.diag(total), math.sqrt(2.0) * total[np.triu_indices(k, 1)]])
        return packed * (spacing * spacing)

    def _square_bound(self, facts: Facts) -> float:
        """Bound on one person's squared (weighted) row norm."""
        row = facts.row_bound if self.clip is None else min(self.clip, facts.row_bound)
        return self._weight_bound() * row * row * _UP

    def zero_out_sensitivity(self, facts: Facts) -> float:
        # sqrt(2) times a whole number is rounded once per coordinate of either neighbour
        rounding = 2.0**-51 * self.bound(facts) * math.sqrt(self.size(facts))
        return (self._square_bound(facts) + rounding) * _UP

    def bound(self, facts: Facts) -> float:
        return facts.n * min(self._square_bound(facts), self._entry_bound(facts) ** 2) * math.sqrt(2.0) * _UP

    def size(self, facts: Facts) -> int:
        k = self._n_columns(facts)
        return k * (k + 1) // 2


@dataclass(frozen=True, eq=False)
class Curvature(SecondMoment):
    """The same sum weighted by the loss's second derivative at public weights (the Hessian of the total loss)."""

    loss: Loss | None = None
    weights: FloatArray | None = None

    name: ClassVar[str] = "curvature"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss is None or self.weights is None:
            raise InvalidInput("curvature needs a loss and the weights at which it is taken.")
        if self.loss.n_outputs != 1 or not math.isfinite(self.loss.curvature_bound):
            raise InvalidInput("curvature is defined for losses of one prediction with bounded second derivative.")

    def _weight_bound(self) -> float:
        assert self.loss is not None
        return self.loss.curvature_bound

    def _row_weights(self, data: DesignData) -> FloatArray:
        assert self.loss is not None
        assert self.weights is not None
        second = self.loss.curvature(predictions(data, self.weights), data.target)
        roots = np.sqrt(np.clip(second, 0.0, self.loss.curvature_bound)) * _DOWN
        return roots * _row_factors(data, self.clip)

    def size(self, facts: Facts) -> int:
        assert self.loss is not None
        assert self.weights is not None
        check_weights(self.weights, self.loss, facts)
        return super().size(facts)


def unpack_symmetric(packed: FloatArray, d: int) -> FloatArray:
    """Return the symmetric matrix whose packed upper triangle (see :class:`SecondMoment`) is given.

    >>> unpack_symmetric(np.array([1.0, 2.0, np.sqrt(2.0) * 3.0]), 2).round(12).tolist()
    [[1.0, 3.0], [3.0, 2.0]]
    """
    matrix = np.zeros((d, d))
    above = np.triu_indices(d, 1)
    matrix[above] = packed[d:] / math.sqrt(2.0)
    matrix += matrix.T
    matrix[np.diag_indices(d)] = packed[:d]
    return matrix


@dataclass(frozen=True, eq=False)
class QuantileScores(Query):
    """For each point of a public grid, minus the number of records by which it misses the wanted quantile.

    A value counts as the next grid point above it (``side="high"``, for an upper bound) or below it (``side="low"``).
    Values outside the grid count as its ends. A point then is the quantile, with score 0, if at most ``quantile * n``
    values lie below it and at least as many do not lie above it; so many equal values (a column of zeros and ones)
    leave one best point and not a whole range. The wanted rank is public, so one person moves each score by at most 1
    under both relations. ``score_penalties`` are public numbers, one per point, that are subtracted from the scores: a
    point that is unlikely a priori needs so many more records to be chosen.
    """

    column: int
    quantile: float
    grid: FloatArray
    side: str = "high"
    score_penalties: FloatArray | None = None

    name: ClassVar[str] = "quantile"
    norm: ClassVar[str] = "linf"
    replacement_ratio: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.quantile < 1.0:
            raise InvalidInput(f"quantile must be between 0 and 1, not {self.quantile!r}.")
        if len(self.grid) < 2 or not (np.diff(self.grid) > 0.0).all():
            raise InvalidInput("a quantile grid needs at least two increasing points.")
        if self.side not in ("low", "high"):
            raise InvalidInput(f"side must be 'low' or 'high', not {self.side!r}.")
        if self.column < 0:
            raise InvalidInput(f"column must be 0 or more, not {self.column!r}.")
        if self.score_penalties is not None:
            given = np.asarray(self.score_penalties, np.float64)
            if given.shape != self.grid.shape or not (np.isfinite(given) & (given >= 0.0)).all():
                raise InvalidInput("score_penalties must be finite numbers of 0 or more, one per point of the grid.")
            object.__setattr__(self, "score_penalties", given)

    @property
    def _largest_penalty(self) -> float:
        return 0.0 if self.score_penalties is None else float(self.score_penalties.max())

    def part(self, block: TableData) -> FloatArray:
        return block.ranks(self.column, self.grid, strict=self.side == "low")

    def total(self, parts: Iterable[FloatArray], facts: Facts) -> FloatArray:
        wanted, ranks = self.quantile * facts.n, added(parts)
        # values outside the grid count as its first or last point
        inner = ranks[:-1] if self.side == "high" else ranks[1:]
        below, up_to = np.concatenate([[0.0], inner]), np.concatenate([inner, [float(facts.n)]])
        # subtracted from 0, so that the best score is 0 and not -0
        scores: FloatArray = 0.0 - np.maximum(0.0, np.maximum(below - wanted, wanted - up_to))
        return scores if self.score_penalties is None else scores - self.score_penalties

    def zero_out_sensitivity(self, facts: Facts) -> float:
        # ranks are whole; subtracting public numbers rounds each score by at most 2^-53 (2 n + penalty)
        return 1.0 + 2.0**-51 * self.bound(facts)

    def bound(self, facts: Facts) -> float:
        return facts.n + self._largest_penalty

    def size(self, facts: Facts) -> int:
        if self.column >= facts.n_features:
            raise InvalidInput(f"column {self.column} is outside a table of {facts.n_features} columns.")
        return len(self.grid)


@dataclass(frozen=True, eq=False)
class TargetQuantileScores(QuantileScores):
    """The same for the range of a regression target, which has its own share of the budget."""

    name: ClassVar[str] = "target quantile"
