"""Public facts about a data set: the only numbers that plans, sensitivities and noise scales may depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dperm.data.design.matrix import Shape
from dperm.kernels.exact import Grids

__all__ = ["Facts"]


@dataclass(frozen=True)
class Facts:
    """Public numbers of a holder's data.

    Attributes
    ----------
    n : int
        Number of records.
    n_features : int
        Number of the user's columns.
    d : int
        Number of columns of the design, the intercept included.
    value_bound, row_bound : float
        Bounds on an entry and on the L2 norm of a row of the scaled design.
    spread : float
        Public guess of an entry's root mean square; it sets step lengths, never a sensitivity.
    spacing : float
        Grid spacing of the scaled design's entries.
    target_low, target_high : float
        Bounds on the target; class codes for classification.
    """

    n: int
    n_features: int
    d: int
    value_bound: float = float("inf")
    row_bound: float = float("inf")
    intercept_height: float = 0.0
    spread: float = 1.0
    spacing: float = 1.0
    target_low: float = 0.0
    target_high: float = 1.0

    @property
    def grids(self) -> Grids:
        """Exact-arithmetic grids for this size."""
        return Grids(self.n, self.d)

    def block_bound(self, n_columns: int) -> float:
        """Bound on the L2 norm of a row restricted to ``n_columns`` columns."""
        return min(self.row_bound, self.value_bound * math.sqrt(n_columns) * (1.0 + 2.0**-50))

    @classmethod
    def of_design(cls, shape: Shape, target_low: float = 0.0, target_high: float = 1.0) -> Facts:
        """Return the facts of a design of this shape."""
        return cls(
            n=shape.n,
            n_features=shape.n_features,
            d=shape.d,
            value_bound=shape.value_bound,
            row_bound=shape.row_bound,
            intercept_height=shape.intercept_steps * shape.spacing,
            spread=shape.spread,
            spacing=shape.spacing,
            target_low=target_low,
            target_high=target_high,
        )
