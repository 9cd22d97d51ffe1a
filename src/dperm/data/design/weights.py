"""Released weights on one grid for a whole run, so that the cost of an update depends only on what changed."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.errors import InvalidInput
from dperm.kernels.exact import power_of_two_above
from dperm.types import FloatArray

__all__ = ["BoxedWeights", "SparseWeights"]


@dataclass(frozen=True)
class SparseWeights:
    """``d`` weights that are zero except those in ``entries``; none exceeds the public ``box`` in magnitude.

    >>> SparseWeights(4, {2: 0.5}, box=8.0).dense().tolist()
    [0.0, 0.0, 0.5, 0.0]
    """

    d: int
    entries: Mapping[int, float]
    box: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.box) and self.box > 0.0):
            raise InvalidInput(f"box must be above 0, got {self.box!r}.")
        if self.entries and not (
            min(self.entries) >= 0 and max(self.entries) < self.d and math.isfinite(sum(self.entries.values()))
        ):
            raise InvalidInput("weights must be finite and within the design's columns.")

    def dense(self) -> FloatArray:
        """Return all weights."""
        out = np.zeros(self.d)
        for j, value in self.entries.items():
            out[j] = value
        return out

    def spacing(self, bits: int) -> float:
        """Spacing of the grid, the same for the whole run."""
        return math.ldexp(power_of_two_above(self.box), -bits)

    def steps(self, column: int, spacing: float) -> float:
        """Return one weight as a whole number of grid steps."""
        return float(round(min(max(self.entries.get(column, 0.0), -self.box), self.box) / spacing))

    def changed_columns(self, before: Mapping[int, float]) -> list[int]:
        """Return the columns whose weight differs from that in ``before``."""
        different = {j for j, value in self.entries.items() if before.get(j) != value}
        return sorted(different | (before.keys() - self.entries.keys()))


@dataclass(frozen=True, eq=False)
class BoxedWeights:
    """Weights whose magnitudes do not exceed the public ``box``, on the grid that the box sets."""

    values: FloatArray
    box: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.box) and self.box > 0.0) or not np.isfinite(self.values).all():
            raise InvalidInput("weights and their box must be finite, and the box positive.")
        self._keep(np.array(self.values, np.float64), None)  # a copy: the solver may change its own array

    def _keep(self, values: FloatArray, origin: tuple[weakref.ref[BoxedWeights], int] | None) -> None:
        values.flags.writeable = False
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "_origin", origin)

    def with_weight(self, column: int, value: float) -> BoxedWeights:
        """Return the weights with one of them changed.

        >>> BoxedWeights(np.zeros(3), box=8.0).with_weight(1, 0.5).values.tolist()
        [0.0, 0.5, 0.0]
        """
        if not math.isfinite(value):
            raise InvalidInput("weights and their box must be finite, and the box positive.")
        values = self.values.copy()
        values[column] = value
        out = object.__new__(BoxedWeights)  # the unchanged weights were checked before
        object.__setattr__(out, "box", self.box)
        out._keep(values, (weakref.ref(self), column))
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return BoxedWeights, (self.values, self.box)  # what they were made from stays behind

    def changed_column(self, before: BoxedWeights | None) -> int | None:
        """Return the column in which these weights differ from ``before``, if :meth:`with_weight` made them from it."""
        origin: tuple[weakref.ref[BoxedWeights], int] | None = self._origin  # type: ignore[attr-defined]
        return origin[1] if origin is not None and before is not None and origin[0]() is before else None

    @property
    def d(self) -> int:
        """Number of weights."""
        return len(self.values)

    def spacing(self, bits: int) -> float:
        """Spacing of the grid, the same for the whole run."""
        return math.ldexp(power_of_two_above(self.box), -bits)

    def steps(self, column: int, spacing: float) -> float:
        """Return one weight as a whole number of grid steps."""
        return float(round(min(max(self.values.item(column), -self.box), self.box) / spacing))

    def on_grid(self, bits: int) -> tuple[FloatArray, float]:
        """Return the weights as whole grid steps and the spacing, the same for the whole run."""
        spacing = self.spacing(bits)
        steps: FloatArray = np.rint(np.clip(self.values, -self.box, self.box) / spacing)
        return steps, spacing
