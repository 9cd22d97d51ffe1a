"""Sums of single columns of a dense design at weights that move one coordinate at a time.

A step of coordinate descent changes one weight and needs one sum. The scores, and the slopes if they are costly, are
kept between steps, so a step is a single pass over two columns. Everything kept is private. Scores and slopes are whole
numbers, so updated ones equal recomputed ones bit for bit.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.data.design.weights import BoxedWeights
from dperm.kernels.exact import toward_zero
from dperm.objective import Logistic, Loss
from dperm.objective.losses import RESIDUAL_LOSSES
from dperm.types import FloatArray

__all__ = ["ColumnSums"]


_FEW_CHANGES = 4  # up to so many changed columns are added one by one; more are recomputed if a quarter changed
_SHORT_GRID = 2.0**-22  # single precision errs by less than a step of such a grid


@cache
def _kernels() -> ModuleType:
    from dperm.kernels import coordinate  # compiled: only when needed

    return coordinate


class ColumnSums:
    """Keeps the scores and slopes of the last weights; one object per design."""

    def __init__(self) -> None:
        self._last: BoxedWeights | None = None
        self._steps: FloatArray = np.zeros(0)
        self._spacing = 0.0
        self._scores: FloatArray = np.zeros(0)
        self._loss: Loss | None = None
        self._target: FloatArray = np.zeros(0)
        self._slopes: FloatArray = np.zeros(0)
        self._slopes_are_current = False
        self._moving = False  # whether the weights changed before the last sum

    def total(
        self,
        design: DesignMatrix,
        target: FloatArray,
        loss: Loss,
        weights: BoxedWeights,
        column: int,
        grid: float,
        limit: float,
    ) -> float:
        """Return the sum over rows of a column's entry times the slope at ``weights``, each clipped; in grid steps."""
        if loss is not self._loss and loss != self._loss:
            # slopes depend on loss and target too; labels are clipped and put on the grid once
            mapped = np.clip(target, 0.0, 1.0) / grid if type(loss) is Logistic else target
            number = np.float32 if type(loss) is Logistic and grid >= _SHORT_GRID else np.float64
            self._loss, self._slopes_are_current, self._target = loss, False, np.array(mapped, number)
            self._slopes = np.empty(design.n_rows, number)
        pending = self._update_scores(design, weights)
        ready = self._slopes_are_current and pending is None
        # until the sum is complete: after an interruption everything is recomputed
        self._last, self._slopes_are_current = None, False
        total, self._slopes_are_current = self._sum(design, loss, column, pending, ready, grid, limit)
        self._last = weights
        return total

    def _sum(
        self,
        design: DesignMatrix,
        loss: Loss,
        column: int,
        pending: tuple[int, float] | None,
        ready: bool,
        grid: float,
        limit: float,
    ) -> tuple[float, bool]:
        """Return the sum, and whether the kept slopes are those of the current scores."""
        kernels, entries = _kernels(), design.dense_column(column)
        if ready:
            self._moving = False
            return kernels.clipped_column_sum(entries, self._slopes, limit), True
        moved, change = pending or (column, 0.0)
        step = (design.dense_column(moved), change)
        unit, per_grid = design.spacing * self._spacing, 1.0 / grid  # powers of two: multiplying equals dividing
        bound, scores, target, slopes = loss.slope_bound, self._scores, self._target, self._slopes
        often, self._moving = pending is not None and self._moving, pending is not None
        if type(loss) is Logistic:  # not a subclass, which may define other slopes
            if slopes.dtype == np.float64:
                return kernels.moved_logistic_sum(*step, entries, scores, unit, target, per_grid, limit, slopes), True
            # if the weights change at every step, slopes are used once and need not be kept
            kept = slopes[: kernels.STRIP] if often else slopes
            total = kernels.moved_short_logistic_sum(*step, entries, scores, unit, target, per_grid, limit, kept)
            return total, not often
        if type(loss) in RESIDUAL_LOSSES:
            if pending:  # recomputing slopes costs less than storing them, unless they are used again
                return kernels.moved_residual_sum(*step, entries, scores, unit, target, bound, per_grid, limit), False
            kernels.residual_slopes(scores, unit, target, bound, per_grid, slopes)
        else:
            kernels.add_multiple(scores, *step)
            slopes[:] = toward_zero(np.clip(loss.slope(scores * unit, target), -bound, bound), grid)
        return kernels.clipped_column_sum(entries, slopes, limit), True

    def _update_scores(self, design: DesignMatrix, weights: BoxedWeights) -> tuple[int, float] | None:
        """Update steps and scores to ``weights``, except for one column's pending change, which is returned."""
        if weights is self._last:
            return None
        column = weights.changed_column(self._last)
        if column is not None:
            step = weights.steps(column, self._spacing)
            change = step - self._steps.item(column)
            self._last, self._steps[column] = None, step
            return (column, change) if change else None
        steps, spacing = weights.on_grid(design.grids.weight_bits)
        known, self._last = self._last is not None and spacing == self._spacing, None
        changes = steps - self._steps if known else steps
        columns = np.flatnonzero(changes).tolist()
        self._steps, self._spacing = steps, spacing
        if not known or (len(columns) > _FEW_CHANGES and 4 * len(columns) > design.d):
            # a descent starts at zero, where all scores are zero
            self._scores = design.scores(steps) if steps.any() else np.zeros(design.n_rows)
            self._slopes_are_current = False
            return None
        for j in columns[:-1]:
            design.add_column(j, float(changes[j]), self._scores)
            self._slopes_are_current = False
        return (columns[-1], float(changes[columns[-1]])) if columns else None
