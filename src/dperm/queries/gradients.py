"""Sums of per-person gradients: all coordinates, a block, or one. Proof: ``gradients.proof.md``."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.data.design.weights import BoxedWeights, SparseWeights
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query
from dperm.errors import InvalidInput
from dperm.kernels.exact import toward_zero, weights_on_grid
from dperm.objective import Logistic, Loss
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = [
    "FeatureGradient",
    "FullGradient",
    "GradientBlock",
    "GradientCoordinate",
    "WeightSteps",
    "check_weights",
    "clipped",
    "clipped_slopes",
    "predictions",
    "slope_spacing",
]

Weights = FloatArray | SparseWeights | BoxedWeights

_DOWN = 1.0 - 2.0**-50


def check_weights(weights: Weights, loss: Loss, facts: Facts) -> None:
    """Refuse weights that do not fit the design, before anything is charged."""
    if isinstance(weights, SparseWeights | BoxedWeights):
        if weights.d != facts.d or loss.n_outputs != 1:
            raise InvalidInput(f"weights in a box are for one output and {facts.d} columns, not {weights.d}.")
        return
    wanted = (facts.d,) if loss.n_outputs == 1 else (facts.d, loss.n_outputs)
    if np.shape(weights) != wanted:
        raise InvalidInput(f"weights must have shape {wanted}, not {np.shape(weights)}.")
    if not np.isfinite(weights).all():
        raise InvalidInput("weights must be finite.")


def predictions(data: DesignData, weights: Weights) -> FloatArray:
    """Return exact predictions of every row at public weights (rounded to the design's weight grid)."""
    if isinstance(weights, SparseWeights | BoxedWeights):
        scores, spacing = data.cache.scores(data.design, weights)
        return scores * spacing  # whole numbers times a power of two: no rounding
    return WeightSteps.of(weights, data.design).predictions(data.design)


@dataclass(frozen=True, eq=False)
class WeightSteps:
    """Public weights on the grid of a design, made once and used for all of its strips."""

    steps: FloatArray
    #: length of a step of a prediction
    unit: float

    @classmethod
    def of(cls, weights: FloatArray, design: DesignMatrix) -> WeightSteps:
        """Round weights to the grid."""
        # this limit is far beyond any use, and no prediction overflows within it
        bounded = np.clip(np.asarray(weights, np.float64), -1e250, 1e250)
        steps, spacing = weights_on_grid(bounded, design.grids.weight_bits)
        return cls(steps, design.spacing * spacing)

    def predictions(self, design: DesignMatrix) -> FloatArray:
        """Return exact predictions of the rows: whole numbers times a power of two."""
        scores = design.scores(self.steps)
        scores *= self.unit
        return scores


def slope_spacing(design: DesignMatrix, loss: Loss) -> float:
    """Return the length of a step of this loss's slopes."""
    return design.grids.spacing(loss.slope_bound, design.grids.slope_bits)


def clipped_slopes(data: DesignData, loss: Loss, weights: Weights, limit: FloatArray | float) -> FloatArray:
    """Return the slopes of all rows, clipped to ``limit`` and rounded toward zero to whole :func:`slope_spacing`."""
    return clipped(loss, predictions(data, weights), data.target, limit, slope_spacing(data.design, loss))


def clipped(
    loss: Loss, scores: FloatArray, target: FloatArray, limit: FloatArray | float, spacing: float
) -> FloatArray:
    """Return the slopes at these predictions, clipped to ``limit`` and rounded toward zero to whole steps."""
    slopes = loss.slope(scores, target)
    largest = np.minimum(limit, loss.slope_bound)
    if slopes.ndim == 1:
        slopes = np.clip(slopes, -largest, largest)
    else:
        squares = np.zeros(len(slopes))
        for k in range(slopes.shape[1]):  # fixed order: a row's length must not depend on its position
            squares += slopes[:, k] * slopes[:, k]
        # rounded up: each of K products and additions may have been rounded down
        lengths = np.sqrt(squares) * (1.0 + (slopes.shape[1] + 8) * 2.0**-52)
        factor = np.minimum(1.0, largest * _DOWN / np.maximum(lengths, 1e-300))
        slopes = slopes * factor[:, None]
    return toward_zero(slopes, spacing)


@dataclass(frozen=True, eq=False)
class FullGradient(Query):
    """Sum over people of the gradient of their loss, each clipped to L2 norm ``clip``.

    Without ``clip`` the bound is the loss's slope bound times the row bound: nothing is clipped.
    """

    loss: Loss
    weights: Weights
    clip: float | None = None

    name: ClassVar[str] = "gradient"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if not math.isfinite(self.loss.slope_bound):
            raise InvalidInput(
                f"the {self.loss.name} loss has unbounded slopes: give it a residual_clip before a private gradient."
            )
        if self.clip is not None:  # as a double: a float32 would make the sensitivity less precise
            object.__setattr__(self, "clip", positive("clip", self.clip))

    def _n_columns(self, facts: Facts) -> int:
        return facts.d

    def _columns(self) -> NDArray[np.intp] | None:
        return None

    def part(self, block: DesignData) -> FloatArray:
        columns, spacing = self._columns(), slope_spacing(block.design, self.loss)
        norms = None if self.clip is None else self._norms(block.design)
        outputs = () if self.loss.n_outputs == 1 else (self.loss.n_outputs,)
        n_columns = self._n_columns(block.facts)
        total = np.zeros((n_columns, *outputs))
        if isinstance(self.weights, SparseWeights | BoxedWeights):  # their scores are kept for all rows at once
            slopes = clipped_slopes(block, self.loss, self.weights, self._limit(norms))
            total += block.design.sums(slopes, columns)[:n_columns]
            return total * (block.design.spacing * spacing)
        weights = WeightSteps.of(self.weights, block.design)
        if norms is not None and columns is None and type(self.loss) is Logistic:  # not a subclass: other slopes
            assert self.clip is not None
            rows = weights.steps, weights.unit, block.target, norms
            sums = block.design.logistic_sums(*rows, clip=self.clip * _DOWN, label_independence=0.0, spacing=spacing)
            total += sums[:n_columns]
        else:
            for some, design, target in block.strips():
                limit = self._limit(None if norms is None else norms[some])
                slopes = clipped(self.loss, weights.predictions(design), target, limit, spacing)
                total += design.sums(slopes, columns)[:n_columns]
        return total * (block.design.spacing * spacing)

    def _norms(self, design: DesignMatrix) -> FloatArray:
        return design.norms(self._columns())

    def _limit(self, norms: FloatArray | None) -> FloatArray | float:
        """Limit of the slopes: |slope| ||row|| <= clip exactly when |slope| <= clip / ||row||."""
        if norms is None:
            return math.inf
        assert self.clip is not None
        with np.errstate(divide="ignore"):
            limit: FloatArray = self.clip * _DOWN / norms  # norms are rounded up, the limit down
        return limit

    def person_bound(self, facts: Facts) -> float:
        """Bound on the L2 norm of one person's clipped gradient."""
        natural = self.loss.slope_bound * facts.block_bound(self._n_columns(facts)) * (1.0 + 2.0**-50)
        return natural if self.clip is None else min(natural, self.clip)

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self.person_bound(facts)

    def bound(self, facts: Facts) -> float:
        return facts.n * min(self.person_bound(facts), self.loss.slope_bound * facts.value_bound) * (1.0 + 2.0**-50)

    def size(self, facts: Facts) -> int:
        check_weights(self.weights, self.loss, facts)
        return self._n_columns(facts) * self.loss.n_outputs


@dataclass(frozen=True, eq=False)
class FeatureGradient(FullGradient):
    """The same sum without the coordinate of the intercept; ``clip`` bounds the norm of the rest."""

    name: ClassVar[str] = "feature gradient"

    def _n_columns(self, facts: Facts) -> int:
        return facts.n_features

    def _norms(self, design: DesignMatrix) -> FloatArray:
        return design.feature_norms()


@dataclass(frozen=True, eq=False)
class GradientBlock(FullGradient):
    """The same sum for the coordinates in ``columns`` only; ``clip`` bounds the norm of that part."""

    columns: tuple[int, ...] = field(default=())

    name: ClassVar[str] = "gradient block"

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = tuple(map(int, self.columns))
        object.__setattr__(self, "columns", columns)
        if not columns or min(columns) < 0 or (len(columns) > 1 and len(set(columns)) < len(columns)):
            raise InvalidInput("a gradient block needs distinct column indices, at least one, all >= 0.")
        if isinstance(self.weights, BoxedWeights):
            self._within(self.weights.d)

    def _within(self, d: int) -> None:
        if max(self.columns) >= d:
            raise InvalidInput(f"column {max(self.columns)} is outside a design of {d} columns.")

    def _n_columns(self, facts: Facts) -> int:
        self._within(facts.d)
        return len(self.columns)

    def _columns(self) -> NDArray[np.intp] | None:
        return np.asarray(self.columns, np.intp)

    @property
    def family(self) -> Hashable | None:
        if type(self) is not GradientBlock or type(self.weights) is not BoxedWeights:
            return None
        # independent of the weights' values, which are finite, and of which columns are taken
        return self.loss, self.clip, len(self.columns), self.weights.d

    @property
    def reads_columns(self) -> bool:
        return isinstance(self.weights, SparseWeights | BoxedWeights) and len(self.columns) == 1

    def part(self, block: DesignData) -> FloatArray:
        return self._single(block) if self.reads_columns else super().part(block)

    def _single(self, data: DesignData) -> FloatArray:
        """One column, at the cost of that column."""
        assert isinstance(self.weights, SparseWeights | BoxedWeights)
        design, column, loss = data.design, self.columns[0], self.loss
        grid = slope_spacing(design, loss)
        step = design.spacing * grid
        # clipping the product gives the same bound as clipping the slope by the column's magnitude
        limit = math.inf if self.clip is None else float(math.floor(self.clip / step))
        if isinstance(self.weights, BoxedWeights) and design.dense:
            total = data.cache.columns.total(design, data.target, loss, self.weights, column, grid, limit)
        else:
            scores, spacing = data.cache.scores(design, self.weights)
            total = design.column_sum(column, limit, scores, spacing, data.target, loss, grid)
        return np.array([total * step])


@dataclass(frozen=True, eq=False)
class GradientCoordinate(GradientBlock):
    """The same sum for one coordinate: a block of one column, bounded by slope bound times value bound."""

    name: ClassVar[str] = "gradient coordinate"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.columns) != 1:
            raise InvalidInput("a gradient coordinate has exactly one column.")
