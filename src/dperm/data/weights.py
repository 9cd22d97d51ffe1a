"""Released weights that are mostly zero, so that a step costs by what changed and not by the dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidInput
from dperm.kernels.exact import power_of_two_above

__all__ = ["SparseWeights"]


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
        if any(not 0 <= j < self.d or not math.isfinite(v) for j, v in self.entries.items()):
            raise InvalidInput("weights must be finite and within the design's columns.")

    def dense(self) -> NDArray[np.float64]:
        """Return all weights."""
        out = np.zeros(self.d)
        for j, value in self.entries.items():
            out[j] = value
        return out

    def on_grid(self, bits: int) -> tuple[dict[int, float], float]:
        """Return the entries as whole grid steps and the spacing, the same for the whole run."""
        spacing = math.ldexp(power_of_two_above(self.box), -bits)
        clipped = {j: min(max(v, -self.box), self.box) for j, v in self.entries.items()}
        steps = {j: float(round(v / spacing)) for j, v in clipped.items()}
        return {j: s for j, s in steps.items() if s}, spacing
