"""A separable penalty as four numbers, for solvers that move single coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dperm.errors import Unsupported
from dperm.objective.penalties import L1, L2, BoxPenalty, ElasticNet, NoPenalty, Penalty
from dperm.types import FloatArray

__all__ = ["SeparablePenalty"]


@dataclass(frozen=True)
class SeparablePenalty:
    """l1 |w| + l2 w^2 / 2 for every weight, with low <= w <= high."""

    l1: float = 0.0
    l2: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def of(cls, penalty: Penalty) -> SeparablePenalty:
        """Take a penalty apart; penalties that tie weights together are refused."""
        if isinstance(penalty, NoPenalty):
            return cls()
        if isinstance(penalty, L1):
            return cls(l1=penalty.strength)
        if isinstance(penalty, L2):
            return cls(l2=penalty.strength)
        if isinstance(penalty, ElasticNet):
            return cls(l1=penalty.strength * penalty.l1_ratio, l2=penalty.strength * (1.0 - penalty.l1_ratio))
        if isinstance(penalty, BoxPenalty) and np.ndim(penalty.low) == np.ndim(penalty.high) == 0:
            return cls(low=float(penalty.low), high=float(penalty.high))  # type: ignore[arg-type]
        raise Unsupported(
            f"penalty {penalty.name!r} is not one and the same for every weight: solvers that move single "
            "coordinates take none, l1, l2, elastic-net or one box for all."
        )

    @property
    def smooth(self) -> bool:
        """Whether nothing but l2 is left."""
        return self.l1 == 0.0 and math.isinf(self.low) and math.isinf(self.high)

    def prox_one(self, value: float, step: float) -> float:
        """:meth:`prox` of a single weight, without the cost of an array."""
        shrunk = math.copysign(max(abs(value) - step * self.l1, 0.0), value)
        return min(max(shrunk, self.low), self.high)

    def prox(self, value: FloatArray, step: FloatArray | float) -> FloatArray:
        """Prox of the l1 and box part (l2 is taken as a gradient), with one step per weight."""
        shrunk = np.sign(value) * np.maximum(np.abs(value) - np.multiply(step, self.l1), 0.0)
        clipped: FloatArray = np.clip(shrunk, self.low, self.high)
        return clipped
