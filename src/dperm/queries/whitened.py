"""Queries in a released metric: row lengths, second moments and gradients of mapped rows. Proof: ``whitened.proof.md``.

A map x -> B' x with B from earlier releases (see :class:`~dperm.data.design.row_map.RowMap`) turns noise that is
equal in all directions of the mapped space into noise that follows the curvature of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.row_map import RowMap
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query, added
from dperm.errors import InvalidInput
from dperm.kernels.exact import toward_zero
from dperm.objective import Logistic, Loss
from dperm.queries.gradients import WeightSteps, check_weights, slope_spacing
from dperm.queries.statistics import SecondMoment
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = ["MappedGradient", "MappedSecondMoment", "RowLengths"]


_UP = 1.0 + 2.0**-50
_DOWN = 1.0 - 2.0**-50


def _norms(data: DesignData, rows: RowMap) -> FloatArray:
    """Return the lengths of the mapped rows, kept for the next query with the same map."""
    return data.cache.mapped_norms(rows, lambda: rows.norms(data.design))


@dataclass(frozen=True, eq=False)
class RowLengths(Query):
    """Sum over people of min(length of the mapped row, clip) - clip / 2, so that an empty record contributes 0.

    Without a map it is the length of the row without the intercept.
    """

    clip: float
    rows: RowMap | None = None

    name: ClassVar[str] = "row lengths"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", positive("clip", self.clip))

    def part(self, block: DesignData) -> FloatArray:
        design = block.design
        if self.rows is None:
            lengths = np.sqrt(design.squared_norms() - design.intercept_steps**2) * design.spacing
        else:
            lengths = _norms(block, self.rows)
        half = 0.5 * self.clip
        spacing = design.grids.count_spacing(half)
        steps = toward_zero(np.clip(np.minimum(lengths, self.clip) - half, -half, half), spacing)
        return np.array([steps.sum() * spacing])

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return 0.5 * self.clip * _UP

    def bound(self, facts: Facts) -> float:
        return facts.n * self.zero_out_sensitivity(facts)

    def size(self, facts: Facts) -> int:
        if self.rows is not None:
            self.rows.check(facts.grids)
        return 1


@dataclass(frozen=True, eq=False)
class MappedSecondMoment(SecondMoment):
    """Sum of mapped row times itself transposed, each mapped row scaled down to L2 norm ``clip`` where it is longer.

    Packed as in :class:`~dperm.queries.statistics.SecondMoment`.
    """

    rows: RowMap | None = None

    name: ClassVar[str] = "mapped second moment"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is None or self.clip is None:
            raise InvalidInput("a mapped second moment needs rows, the map, and clip.")

    @property
    def _map(self) -> RowMap:
        assert self.rows is not None
        return self.rows

    @property
    def _limit(self) -> float:
        assert self.clip is not None
        return self.clip

    def _row_weights(self, data: DesignData) -> FloatArray:
        with np.errstate(all="ignore"):  # a warning would reveal something about a person
            factors: FloatArray = np.minimum(1.0, self._limit / _norms(data, self._map)) * _DOWN * _DOWN
        return factors

    def _sum(self, data: DesignData, weights: FloatArray, spacing: float) -> FloatArray:
        unit = data.design.spacing * self._map.spacing
        if self._map.diagonal is not None:
            return data.design.second_moments(weights, unit, spacing, self._map.diagonal)
        k = self._map.shape[1]
        total = np.zeros((k, k))
        for part, mapped in self._map.rows(data.design):
            steps = mapped * (unit / spacing)  # powers of two: exact in any order
            steps *= weights[part][:, None]
            np.trunc(steps, out=steps)
            total += steps.T @ steps
        return total

    def _entry_bound(self, facts: Facts) -> float:
        return self._limit

    def _n_columns(self, facts: Facts) -> int:
        return self._map.shape[1]

    def _square_bound(self, facts: Facts) -> float:
        return self._limit * self._limit * _UP

    def size(self, facts: Facts) -> int:
        self._map.check(facts.grids)
        return super().size(facts)


@dataclass(frozen=True, eq=False)
class MappedGradient(Query):
    """Sum over people of slope times mapped row, B' x_i, each summand of L2 norm at most ``clip``.

    A row's slope is multiplied by min(1, limit / m) with limit = clip / ||B' x_i|| and

        m = a * (largest slope of any label at this prediction) + (1 - a) * |slope|,    a = label_independence.

    With ``label_independence=1`` the factor of a row does not depend on its label. Ordinary clipping
    (``label_independence=0``) shortens wrongly predicted rows more than others, which moves the point where the
    expected sum is zero away from the true weights.
    """

    loss: Loss
    weights: FloatArray
    rows: RowMap
    clip: float
    label_independence: float = 0.0

    name: ClassVar[str] = "mapped gradient"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if not math.isfinite(self.loss.slope_bound):
            raise InvalidInput(
                f"the {self.loss.name} loss has unbounded slopes: give it a residual_clip before a private gradient."
            )
        object.__setattr__(self, "clip", positive("clip", self.clip))
        if not 0.0 <= self.label_independence <= 1.0:
            raise InvalidInput(f"label_independence must be between 0 and 1, not {self.label_independence!r}.")

    def part(self, block: DesignData) -> FloatArray:
        lengths, spacing = _norms(block, self.rows), slope_spacing(block.design, self.loss)
        sums = np.zeros((block.design.d, *self.weights.shape[1:]))
        weights = WeightSteps.of(self.weights, block.design)
        if type(self.loss) is Logistic:  # not a subclass, which may define other slopes
            rows = weights.steps, weights.unit, block.target, lengths
            independence = float(self.label_independence)
            return block.design.logistic_sums(
                *rows, clip=self.clip * _DOWN, label_independence=independence, spacing=spacing
            )
        for some, design, target in block.strips():
            with np.errstate(all="ignore"):  # a warning would reveal something about a person
                limit = self.clip * _DOWN / lengths[some]
                slopes = toward_zero(self._shortened(weights.predictions(design), target, limit), spacing)
            sums += design.sums(slopes)
        return sums

    def total(self, parts: Iterable[FloatArray], facts: Facts) -> FloatArray:
        spacing = facts.grids.spacing(self.loss.slope_bound, facts.grids.slope_bits)
        image: FloatArray = self.rows.image(added(parts)) * (facts.spacing * spacing)
        return image

    def _shortened(self, scores: FloatArray, target: FloatArray, limit: FloatArray) -> FloatArray:
        slopes = self.loss.slope(scores, target)
        largest = np.minimum(limit, self.loss.slope_bound)
        if slopes.ndim == 1:
            if self.label_independence:
                any_label = self.loss.largest_slope(slopes, target)
                size = self.label_independence * any_label + (1.0 - self.label_independence) * np.abs(slopes)
                slopes = slopes * np.minimum(1.0, limit / np.maximum(size, 1e-300))
            return np.clip(slopes, -largest, largest)
        squares = np.zeros(len(slopes))
        for k in range(slopes.shape[1]):  # fixed order: a row's length must not depend on its position
            squares += slopes[:, k] * slopes[:, k]
        sizes = np.sqrt(squares) * (1.0 + (slopes.shape[1] + 8) * 2.0**-52)  # an upper bound, as for mapped rows
        wanted = sizes
        if self.label_independence:
            any_label = self.loss.largest_slope(slopes, target)
            wanted = np.maximum(sizes, self.label_independence * any_label + (1.0 - self.label_independence) * sizes)
        factor = np.minimum(1.0, largest * _DOWN * _DOWN / np.maximum(wanted, 1e-300))
        out: FloatArray = slopes * factor[:, None]
        return out

    def _rounding_error(self, facts: Facts) -> float:
        return self.rows.rounding_error(facts.n * self.clip)

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return (self.clip + 2.0 * self._rounding_error(facts)) * _UP

    def bound(self, facts: Facts) -> float:
        return (facts.n * self.clip + self._rounding_error(facts)) * _UP

    def part_size(self, facts: Facts) -> int:
        return facts.d * int(np.prod(self.weights.shape[1:], dtype=int))  # mapped only in the total

    def size(self, facts: Facts) -> int:
        check_weights(self.weights, self.loss, facts)
        self.rows.check(facts.grids)
        return self.rows.shape[1] * self.loss.n_outputs
