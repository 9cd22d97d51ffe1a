"""The design matrix: scaled, clipped, on an exact grid, dense or sparse behind a few operations.

Every operation returns integers held in doubles together with their grid, so results are the same bit for bit for any
thread count, any chunking and any order of the rows. Sparse input stays sparse: a column's entry is its implicit value
(what a stored zero becomes after centring and clipping) plus a sparse difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dperm.errors import InvalidBounds
from dperm.kernels.exact import Grids, toward_zero
from dperm.objective import Loss
from dperm.objective.losses import RESIDUAL_LOSSES

__all__ = ["DesignMatrix", "Scaling", "Shape"]

FloatArray = NDArray[np.float64]
Columns = Sequence[int] | NDArray[np.intp] | None

_UP = 1.0 + 2.0**-50
_DOWN = 1.0 - 2.0**-50
_CHUNK_ROWS = 4096
_MOST_KEPT_NORMS = 64

ROW_NORM_NEEDS_ZEROS = "row_norm with sparse data needs columns whose implicit zeros stay zero: declare centre=0."


@dataclass(frozen=True)
class Scaling:
    """Public constants that turn a user's column into a bounded one: clip((x - centre) / scale, -clip, clip).

    A column with scale 0 (equal bounds) is a constant: it becomes 0 and its coefficient stays 0. ``spread`` is the
    public guess of a scaled entry's root mean square: 1 where a scale was declared, less where only a range was.
    """

    centre: FloatArray
    scale: FloatArray
    clip: float
    row_norm: float | None = None
    spread: float = 1.0

    @property
    def n_features(self) -> int:
        return len(self.centre)

    def coefficients_in_user_units(self, weights: FloatArray, intercept_height: float) -> tuple[FloatArray, FloatArray]:
        """Return (coefficients, intercept) for the user's own columns from weights of the scaled design."""
        slopes = weights[: self.n_features]
        divisor = np.where(self.scale > 0.0, self.scale, np.inf)
        coefficients = (slopes.T / divisor).T
        intercept = weights[self.n_features] * intercept_height if intercept_height else 0.0 * weights[0]
        return coefficients, intercept - self.centre @ coefficients


@dataclass(frozen=True)
class Shape:
    """Public numbers of a design, known before any data: its grid and the bounds that hold on it."""

    n: int
    n_features: int
    spacing: float
    top: int
    intercept_steps: float
    value_bound: float
    row_bound: float
    shrinks_rows: bool
    spread: float

    @property
    def d(self) -> int:
        """Number of columns, the intercept included."""
        return self.n_features + (1 if self.intercept_steps else 0)

    @property
    def grids(self) -> Grids:
        """Exact-arithmetic grids for this size."""
        return Grids(self.n, self.d)

    @classmethod
    def of(
        cls, n: int, n_features: int, clip: float, row_norm: float | None, intercept: float, spread: float = 1.0
    ) -> Shape:
        """Work out the public numbers for ``n`` rows with entries clipped to ``clip``."""
        grids = Grids(n, n_features + (1 if intercept else 0))
        spacing = grids.spacing(max(clip, intercept), grids.value_bits)
        top = math.floor(clip / spacing)
        intercept_steps = float(round(intercept / spacing))
        if top < 1 or (intercept and not intercept_steps):
            raise InvalidBounds(
                f"clip={clip:g} is out of proportion to an intercept of height {intercept:g}: change scale so that "
                "clip is about 1 to 10."
            )
        norm_bound = math.sqrt(n_features) * top * spacing * _UP
        shrinks_rows = row_norm is not None and row_norm < norm_bound
        if row_norm is not None:
            norm_bound = min(norm_bound, row_norm)
        return cls(
            n=n,
            n_features=n_features,
            spacing=spacing,
            top=top,
            intercept_steps=intercept_steps,
            value_bound=max(top, intercept_steps) * spacing,
            row_bound=math.hypot(norm_bound, intercept_steps * spacing) * _UP,
            shrinks_rows=shrinks_rows,
            spread=min(spread, top * spacing),
        )


class DesignMatrix:
    """Scaled design on an integer grid.

    Build it with :meth:`from_array`. The last column is the intercept (a constant of height ``intercept``) if that is
    not zero.

    Attributes
    ----------
    n, d : int
        Rows and columns, the intercept included; public.
    spacing : float
        Grid spacing of the entries.
    value_bound, row_bound : float
        Public bounds on an entry and on the L2 norm of a whole row, intercept included; they hold exactly.
    """

    def __init__(self, values: Any, implicit: FloatArray, shape: Shape) -> None:
        self._values = values
        self._implicit = implicit
        self._sparse = sp.issparse(values)
        self._centred = bool(implicit.any())
        self._norms: dict[tuple[int, ...] | None, FloatArray] = {}
        self._by_row: Any = None
        self._constant: FloatArray | None = None
        self.shape = shape
        self.grids = shape.grids
        self.n, self.n_features, self.d = shape.n, shape.n_features, shape.d
        self.spacing = shape.spacing
        self.intercept_steps = shape.intercept_steps
        self.value_bound, self.row_bound = shape.value_bound, shape.row_bound

    @property
    def n_rows(self) -> int:
        """Rows that contribute: the public ``n``, less those taken out by :meth:`without_row`."""
        return int(self._values.shape[0])

    def without_row(self, row: int) -> DesignMatrix:
        """Return the zero-out neighbour: the same public shape, with one record that contributes nothing."""
        keep = np.delete(np.arange(self.n_rows), row)
        values = sp.csc_array(self._values.tocsr()[keep]) if self._sparse else self._values[keep]
        return DesignMatrix(values, self._implicit, self.shape)

    def take(self, rows: NDArray[np.intp]) -> DesignMatrix:
        """Return the given rows on the same grid, with the same public shape; the cost is that of those rows.

        Sparse values are kept a second time, by row, from the first call on: by column, finding a few rows costs as
        much as reading all.
        """
        if not self._sparse:
            return DesignMatrix(self._values[rows], self._implicit, self.shape)
        if self._by_row is None:
            self._by_row = self._values.tocsr()
        return DesignMatrix(sp.csc_array(self._by_row[rows]), self._implicit, self.shape)

    @property
    def intercept_height(self) -> float:
        """Height of the constant column, 0 without one."""
        return self.intercept_steps * self.spacing

    @classmethod
    def from_array(cls, X: FloatArray | Any, scaling: Scaling, intercept: float = 0.0) -> DesignMatrix:
        """Clip, scale and round ``X`` (dense or scipy sparse) with public constants."""
        n, n_features = X.shape
        shape = Shape.of(n, n_features, scaling.clip, scaling.row_norm, intercept, scaling.spread)
        if sp.issparse(X):
            values, implicit = _sparse_steps(X, scaling, shape.spacing, shape.top)
        else:
            values = _dense_steps(np.asarray(X), scaling, shape.spacing, shape.top)
            implicit = np.zeros(shape.n_features)
        if shape.shrinks_rows:
            assert scaling.row_norm is not None
            if implicit.any():
                raise InvalidBounds(ROW_NORM_NEEDS_ZEROS)
            _shrink_rows(values, scaling.row_norm / shape.spacing)
        return cls(values, implicit, shape)

    # -------------------------------------------------------------------------------------- operations
    def scores(self, weight_steps: FloatArray, columns: Columns = None) -> FloatArray:
        """Rows times weights, both in grid steps; shape (n,) or (n, K)."""
        if columns is None:
            inner = weight_steps[: self.n_features]
            out = self._values @ inner + self._implicit @ inner
            if self.intercept_steps:
                out = out + self.intercept_steps * weight_steps[self.n_features]
        else:
            picked, features, constant = self._split(columns)
            inner = weight_steps[picked]
            out = self._values[:, features] @ inner + self._implicit[features] @ inner
            if constant is not None:
                out = out + self.intercept_steps * weight_steps[constant]
        return np.asarray(out)

    def sums(self, row_steps: FloatArray, columns: Columns = None) -> FloatArray:
        """Sum over rows of row times ``row_steps``, in grid steps; shape (d,) or (d, K)."""
        total = row_steps.sum(axis=0)
        features: Any = slice(None)
        if columns is None:
            whole: FloatArray = self._values.T @ row_steps
            if self._centred:
                whole += _outer(self._implicit, total)
            return np.concatenate([whole, self.intercept_steps * total[None]]) if self.intercept_steps else whole
        picked, features, constant = self._split(columns)
        out = np.empty((len(np.atleast_1d(columns)), *row_steps.shape[1:]))
        out[picked] = self._values[:, features].T @ row_steps + _outer(self._implicit[features], total)
        if constant is not None:
            out[constant] = self.intercept_steps * total
        return out

    @property
    def dense(self) -> bool:
        """Whether :meth:`dense_column` can be asked for."""
        return not self._sparse

    def dense_column(self, column: int) -> FloatArray:
        """Return one column of a dense design in grid steps; it must not be changed."""
        if column == self.n_features:
            if self._constant is None:
                self._constant = np.full(self.n_rows, self.intercept_steps)
            return self._constant
        stored: FloatArray = self._values[:, column]
        return stored

    def add_column(self, column: int, change: float, scores: FloatArray) -> None:
        """Add ``change`` times one column to ``scores``, in place, all in grid steps."""
        if column == self.n_features:
            scores += self.intercept_steps * change
        elif self._sparse:
            part = slice(self._values.indptr[column], self._values.indptr[column + 1])
            scores[self._values.indices[part]] += self._values.data[part] * change
            if self._implicit[column]:
                scores += self._implicit[column] * change
        else:
            from dperm.kernels.coordinate import add_multiple  # compiled: only when needed

            add_multiple(scores, self._values[:, column], change)

    def column_sum(
        self,
        column: int,
        limit: float,
        scores: FloatArray,
        spacing: float,
        target: FloatArray,
        loss: Loss,
        grid: float,
    ) -> float:
        """Sum over rows of one column's entry times the slope at ``scores``, each product clipped; in grid steps.

        Slopes are taken only where the entry is not zero, and in one pass where the loss is a clipped residual.
        """
        from dperm.kernels.coordinate import clipped_column_sum, moved_residual_sum

        bound = loss.slope_bound
        if column == self.n_features:
            entries, rows = np.full(self.n_rows, self.intercept_steps), slice(None)
        elif not self._sparse:
            entries, rows = self._values[:, column], slice(None)
        elif self._implicit[column]:
            entries, rows = np.full(self.n_rows, self._implicit[column]), slice(None)
            part = slice(self._values.indptr[column], self._values.indptr[column + 1])
            entries[self._values.indices[part]] += self._values.data[part]
        else:
            part = slice(self._values.indptr[column], self._values.indptr[column + 1])
            entries, rows = self._values.data[part], self._values.indices[part]
        if type(loss) in RESIDUAL_LOSSES:  # a subclass may have slopes of its own
            numbers = (spacing, target[rows], bound, 1.0 / grid, limit)  # a power of two: as good as dividing
            return float(moved_residual_sum(entries, 0.0, entries, scores[rows], *numbers))
        slopes = toward_zero(np.clip(loss.slope(scores[rows] * spacing, target[rows]), -bound, bound), grid)
        return float(clipped_column_sum(entries, slopes, limit))

    def clipped_sums(self, row_steps: FloatArray, limits: FloatArray) -> FloatArray:
        """Sum over rows of entry times ``row_steps``, each product clipped to its column's limit (whole steps)."""
        from dperm.kernels.clipped import clipped_sums_dense, clipped_sums_sparse  # compiled: only when needed

        inner = limits[: self.n_features]
        if self._sparse:
            whole = clipped_sums_sparse(self._values, self._implicit, row_steps, inner)
        else:
            whole = clipped_sums_dense(self._values, row_steps, inner)
        if not self.intercept_steps:
            return whole
        limit = limits[self.n_features]
        return np.append(whole, np.clip(self.intercept_steps * row_steps, -limit, limit).sum())

    @property
    def compressed_columns(self) -> Any:
        """The stored differences by column if the design is sparse with implicit zeros, else None."""
        return self._values if self._sparse and not self._centred else None

    def squared_norms(self, columns: Columns = None) -> FloatArray:
        """Squared L2 norm of every row in grid steps, exact."""
        if columns is None:
            values, implicit, constant = self._values, self._implicit, self.intercept_steps
        else:
            _, features, position = self._split(columns)
            values, implicit = self._values[:, features], self._implicit[features]
            constant = self.intercept_steps if position is not None else 0.0
        if self._sparse:
            changed = values.copy()
            changed.data = changed.data * (changed.data + 2.0 * np.repeat(implicit, np.diff(changed.indptr)))
            out = np.asarray(changed.sum(axis=1)).ravel() + float(implicit @ implicit)
        else:
            out = np.zeros(self.n_rows)
            for j in range(values.shape[1]):  # whole numbers: the order of the columns does not matter
                out += values[:, j] * values[:, j]
        return out + constant * constant

    def norms(self, columns: Columns = None) -> FloatArray:
        """Upper bound of every row's L2 norm, tight to rounding; kept, as solvers ask for the same blocks again."""
        key = None if columns is None else tuple(int(j) for j in np.atleast_1d(columns))
        found = self._norms.get(key)
        if found is None:
            found = np.sqrt(self.squared_norms(columns)) * (self.spacing * _UP)
            if len(self._norms) < _MOST_KEPT_NORMS:
                self._norms[key] = found
        return found

    def row_chunks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Dense blocks of rows in grid steps, intercept included."""
        rows = self._values.tocsr() if self._sparse else self._values
        for start in range(0, self.n_rows, _CHUNK_ROWS):
            part = slice(start, min(start + _CHUNK_ROWS, self.n_rows))
            block = np.asarray(rows[part].todense() if self._sparse else rows[part]) + self._implicit
            if self.intercept_steps:
                block = np.column_stack([block, np.full(len(block), self.intercept_steps)])
            yield part, block

    def _split(self, columns: Columns) -> tuple[NDArray[np.intp], NDArray[np.intp], int | None]:
        """Positions and indices of feature columns, and the position of the intercept if it is asked for."""
        wanted = np.atleast_1d(np.asarray(columns, dtype=np.intp))
        is_constant = wanted == self.n_features if self.intercept_steps else np.zeros(len(wanted), bool)
        positions = np.flatnonzero(~is_constant)
        constants = np.flatnonzero(is_constant)
        return positions, wanted[positions], int(constants[0]) if len(constants) else None


def _outer(implicit: FloatArray, total: Any) -> Any:
    return implicit * total if np.ndim(total) == 0 else np.outer(implicit, total)


def _scaled(x: FloatArray, centre: Any, scale: Any, clip: float) -> FloatArray:
    """clip((x - centre) / scale), elementwise and correctly rounded, hence the same for a value wherever it stands."""
    divisor = np.where(scale > 0.0, scale, 1.0)
    with np.errstate(all="ignore"):  # a huge value overflows to infinity and is clipped like any other
        scaled: FloatArray = np.clip((x - centre) / divisor, -clip, clip)
    return np.where(scale > 0.0, scaled, 0.0)


def _to_steps(scaled: FloatArray, spacing: float, top: int) -> FloatArray:
    steps: FloatArray = np.clip(np.rint(scaled / spacing), -top, top)
    return steps


def _dense_steps(X: NDArray[Any], scaling: Scaling, spacing: float, top: int) -> FloatArray:
    out = np.empty(X.shape, np.float64, order="F")  # solvers read single columns
    for start in range(0, len(X), _CHUNK_ROWS):  # the only full-size array is the result
        part = slice(start, start + _CHUNK_ROWS)
        block = X[part].astype(np.float64)
        out[part] = _to_steps(_scaled(block, scaling.centre, scaling.scale, scaling.clip), spacing, top)
    return out


def _sparse_steps(X: Any, scaling: Scaling, spacing: float, top: int) -> tuple[Any, FloatArray]:
    out = sp.csc_array(X, dtype=np.float64, copy=True)
    out.sum_duplicates()
    zeros = np.zeros(scaling.n_features)
    implicit = _to_steps(_scaled(zeros, scaling.centre, scaling.scale, scaling.clip), spacing, top)
    column = np.repeat(np.arange(out.shape[1]), np.diff(out.indptr))
    entries = _scaled(out.data, scaling.centre[column], scaling.scale[column], scaling.clip)
    out.data = _to_steps(entries, spacing, top) - implicit[column]
    return out, implicit


def _shrink_rows(values: Any, norm_steps: float) -> None:
    """Scale rows longer than ``norm_steps`` down to it, in place, rounding toward zero."""
    if sp.issparse(values):
        squares = values.copy()
        squares.data = squares.data**2
        lengths = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
        factor = np.minimum(1.0, norm_steps * _DOWN / np.maximum(lengths, 1.0))
        values.data = toward_zero(values.data * factor[values.indices], 1.0)
        return
    for start in range(0, len(values), _CHUNK_ROWS):
        block = values[start : start + _CHUNK_ROWS]
        lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
        factor = np.minimum(1.0, norm_steps * _DOWN / np.maximum(lengths, 1.0))
        block[:] = toward_zero(block * factor[:, None], 1.0)
