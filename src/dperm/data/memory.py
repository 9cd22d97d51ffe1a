"""What a holder remembers between queries, so that a small change of the weights costs little.

Everything kept is private and never leaves but through a query's value. All numbers are whole, so what is updated
equals what would be computed afresh, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.design import DesignMatrix
from dperm.data.weights import SparseWeights

__all__ = ["Memory"]

FloatArray = NDArray[np.float64]


class Memory:
    """Scores (rows times weights, in grid steps) of the last sparse weights, and room for incremental queries."""

    def __init__(self) -> None:
        self._steps: dict[int, float] | None = None
        self._spacing = 0.0
        self._scores: FloatArray | None = None
        self.incremental: dict[Any, Any] = {}

    def scores(self, design: DesignMatrix, weights: SparseWeights) -> tuple[FloatArray, float]:
        """Return whole scores and their spacing; the array belongs to the memory and must not be changed."""
        steps, spacing = weights.on_grid(design.grids.weight_bits)
        if self._steps is None or self._scores is None or spacing != self._spacing:
            self._steps, self._spacing, self._scores = {}, spacing, np.zeros(design.n_rows)
        for j in steps.keys() | self._steps.keys():
            change = steps.get(j, 0.0) - self._steps.get(j, 0.0)
            if change:
                design.add_column(j, change, self._scores)
        self._steps = steps
        return self._scores, design.spacing * spacing
