"""Results that a holder keeps between queries, so that a small change of the weights costs little.

Everything kept is private and leaves only through a query's value. All numbers are whole, so updated scores equal
recomputed ones bit for bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from dperm.data.design.column_sums import ColumnSums
from dperm.data.design.matrix import DesignMatrix
from dperm.data.design.row_map import RowMap
from dperm.data.design.weights import BoxedWeights, SparseWeights
from dperm.types import FloatArray

__all__ = ["ScoreCache"]


_KEPT_MAPS = 2  # a method uses one map for its moments and one for its gradients
_FEW_CHANGES = 4  # up to so many changed columns are added one by one; more are recomputed if a quarter changed


class ScoreCache:
    """Scores (rows times weights, in grid steps) of the last weights, and the state of incremental queries."""

    def __init__(self) -> None:
        self._entries: dict[int, float] = {}
        self._steps: dict[int, float] = {}
        self._array: FloatArray | None = None
        self._spacing = self._box = 0.0
        self._scores: FloatArray | None = None
        self._last: SparseWeights | BoxedWeights | None = None
        self.incremental: dict[Any, Any] = {}
        #: held while a query is evaluated, because kept results are changed in place
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return ScoreCache, ()  # a copy on another machine starts anew: everything kept can be recomputed

    def mapped_norms(self, rows: RowMap, compute: Callable[[], FloatArray]) -> FloatArray:
        """Return the lengths of the rows under a map; those of the last two maps are kept."""
        key = ("norms of mapped rows", rows.digest)
        if key not in self.incremental:
            kept = [one for one in self.incremental if one[0] == key[0]]
            for old in kept[: len(kept) + 1 - _KEPT_MAPS]:
                del self.incremental[old]
            self.incremental[key] = compute()
        found: FloatArray = self.incremental[key]
        return found

    @cached_property
    def columns(self) -> ColumnSums:
        """Scores and slopes of coordinate descent."""
        return ColumnSums()

    def scores(self, design: DesignMatrix, weights: SparseWeights | BoxedWeights) -> tuple[FloatArray, float]:
        """Return whole scores and their spacing; the array belongs to the cache and must not be changed."""
        if weights is self._last and self._scores is not None:  # frozen: the same object means the same weights
            return self._scores, design.spacing * self._spacing
        self._last = None  # until the update is complete: after an interruption the scores are recomputed
        try:
            out = self._sparse(design, weights) if isinstance(weights, SparseWeights) else self._boxed(design, weights)
        except BaseException:
            self._scores = None
            raise
        self._last = weights
        return out

    def _boxed(self, design: DesignMatrix, weights: BoxedWeights) -> tuple[FloatArray, float]:
        steps, spacing = weights.on_grid(design.grids.weight_bits)
        if self._array is None or self._scores is None or spacing != self._spacing:
            self._start(design, spacing)
            self._array = np.zeros(design.d)
        assert self._scores is not None
        assert self._array is not None
        changed = np.flatnonzero(steps != self._array)
        if len(changed) > _FEW_CHANGES and 4 * len(changed) > design.d:
            self._scores = design.scores(steps)
        else:
            for j in changed:
                design.add_column(int(j), float(steps[j] - self._array[j]), self._scores)
        self._array = steps
        return self._scores, design.spacing * spacing

    def _sparse(self, design: DesignMatrix, weights: SparseWeights) -> tuple[FloatArray, float]:
        spacing = weights.spacing(design.grids.weight_bits)
        # weights outside their box are clipped to it: with another box the same entries have other steps
        if self._array is not None or self._scores is None or spacing != self._spacing or weights.box != self._box:
            self._start(design, spacing)
            self._box = weights.box
        assert self._scores is not None
        for j in weights.changed_columns(self._entries):
            new = weights.steps(j, spacing)
            change = new - self._steps.get(j, 0.0)
            self._steps[j] = new
            if change:
                design.add_column(j, change, self._scores)
        self._entries = dict(weights.entries)
        return self._scores, design.spacing * spacing

    def _start(self, design: DesignMatrix, spacing: float) -> None:
        self._entries, self._steps, self._array, self._spacing = {}, {}, None, spacing
        self._scores = np.zeros(design.n_rows)
