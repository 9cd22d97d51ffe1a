"""The range of a regression target: public numbers that centre, scale and clip it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dperm.types import FloatArray

__all__ = ["TargetRange"]


@dataclass(frozen=True)
class TargetRange:
    """Public range of a target, which is mapped to [-1, 1].

    Equal ends (a bought range of a target that hardly varies) map it to the constant 0.

    >>> TargetRange(10.0, 30.0).scaled(np.array([10.0, 25.0, 99.0])).tolist()
    [-1.0, 0.5, 1.0]
    """

    low: float
    high: float

    @property
    def centre(self) -> float:
        """Middle of the range."""
        return self.low / 2.0 + self.high / 2.0  # halves first: the width may exceed the largest double

    @property
    def half_width(self) -> float:
        """Half the width of the range, the unit of the scaled target."""
        return self.high / 2.0 - self.low / 2.0

    def scaled(self, target: FloatArray) -> FloatArray:
        """Return the target centred, scaled and clipped to [-1, 1]; each element depends on its own value only."""
        if self.half_width == 0.0:
            return np.zeros(len(target))
        with np.errstate(all="ignore"):  # an overflow is clipped like any value outside the range
            return np.clip((target - self.centre) / self.half_width, -1.0, 1.0)

    def clip(self, predictions: FloatArray) -> FloatArray:
        """Return predictions clipped to the range, which is post-processing with public numbers."""
        return np.clip(predictions, self.low, self.high)
