"""Released weights on one grid for a whole run, so that a small change of them costs by what changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidInput
from dperm.kernels.exact import power_of_two_above

__all__ = ["BoxedWeights", "SparseWeights"]


@dataclass(frozen=True)
class SparseWeights:
    """``d`` weights, all zero but those in ``entries``; none exceeds the public ``box`` in magnitude.

    >>> SparseWeights(4, {2: 0.5}, box=8.0).dense().tolist()
    [0.0, 0.0, 0.5, 0.0]
    """

    d: int
    entries: Mapping[int, float]
    box: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.box) and self.box > 0.0):
            raise InvalidInput(f"box must be positive, not {self.box!r}.")
        if self.entries and not (
            min(self.entries) >= 0 and max(self.entries) < self.d and math.isfinite(sum(self.entries.values()))
        ):
            raise InvalidInput("weights must be finite and within the design's columns.")

    def dense(self) -> NDArray[np.float64]:
        """Return all weights."""
        out = np.zeros(self.d)
        for j, value in self.entries.items():
            out[j] = value
        return out

    def spacing(self, bits: int) -> float:
        """Spacing of the grid, the same for the whole run."""
        return math.ldexp(power_of_two_above(self.box), -bits)

    def steps(self, column: int, spacing: float) -> float:
        """One weight as a whole number of grid steps."""
        return float(round(min(max(self.entries.get(column, 0.0), -self.box), self.box) / spacing))

    def changed(self, before: Mapping[int, float]) -> list[int]:
        """Columns whose weight differs from that in ``before``."""
        return sorted({j for j, _ in self.entries.items() ^ before.items()})


@dataclass(frozen=True, eq=False)
class BoxedWeights:
    """Weights of which none exceeds the public ``box`` in magnitude, on the grid that the box sets."""

    values: NDArray[np.float64]
    box: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.box) and self.box > 0.0) or not np.isfinite(self.values).all():
            raise InvalidInput("weights and their box must be finite, and the box positive.")
        object.__setattr__(self, "values", np.array(self.values, np.float64))  # a solver may go on changing its own

    @property
    def d(self) -> int:
        """Number of weights."""
        return len(self.values)

    def on_grid(self, bits: int) -> tuple[NDArray[np.float64], float]:
        """Return the weights as whole grid steps and the spacing, the same for the whole run."""
        spacing = math.ldexp(power_of_two_above(self.box), -bits)
        steps: NDArray[np.float64] = np.rint(np.clip(self.values, -self.box, self.box) / spacing)
        return steps, spacing
