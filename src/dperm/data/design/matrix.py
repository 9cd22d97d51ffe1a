"""The design matrix: clipped and scaled columns on an exact grid, dense or sparse, with the operations of all queries.

Every operation returns integers held in doubles together with their grid, so results are the same bit for bit for any
number of threads, any chunking and any order of the rows. Sparse input stays sparse: a column's entry is its implicit
value (a zero after centring and clipping) plus a sparse difference. Dense input of mostly zeros is stored in the same
way, which affects nothing but running time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dperm.data.design.compressed import Compressed
from dperm.data.design.dense_rows import DenseRows
from dperm.data.design.scaling import Scaling, Shape, compressed_rows, dense_steps, shrink_rows, sparse_steps
from dperm.errors import InvalidBounds
from dperm.kernels.exact import toward_zero
from dperm.objective import Loss
from dperm.objective.losses import RESIDUAL_LOSSES
from dperm.types import FloatArray

__all__ = ["DesignMatrix", "Scaling", "Shape"]

Columns = Sequence[int] | NDArray[np.intp] | None

_UP = 1.0 + 2.0**-50
_CHUNK_ROWS, _CHUNK_BYTES = 4096, 1 << 25  # rows that are made dense at a time, and the memory that they may take
_STRIP_BYTES = 1 << 22  # a strip stays in a processor's cache between two passes, and is worth a call of Python
_MOST_KEPT_NORMS = 64

ROW_NORM_NEEDS_ZEROS = (
    "row_norm with sparse data needs columns in which zeros stay zero: declare Bounds(centre=0, scale=..., clip=..., "
    "row_norm=...) instead of features, such as centre=0, scale=1, clip=1 for entries from 0 to 1."
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

    def __init__(self, values: Any, implicit: FloatArray, shape: Shape, dense: bool | None = None) -> None:
        self._sparse = sp.issparse(values) or isinstance(values, Compressed)
        self._values: Any = Compressed(values) if sp.issparse(values) else values
        if isinstance(values, np.ndarray):
            self._values = DenseRows.of(values)
        self._implicit = implicit
        self._has_implicit = bool(implicit.any())
        self._norms: dict[tuple[int, ...] | None, FloatArray] = {}
        self._constant: FloatArray | None = None
        #: whether the user's data were dense: public, unlike the way they are stored
        self.dense = not self._sparse if dense is None else dense
        self.shape = shape
        self.grids = shape.grids
        self.n, self.n_features, self.d = shape.n, shape.n_features, shape.d
        self.spacing = shape.spacing
        self.intercept_steps = shape.intercept_steps
        self.value_bound, self.row_bound = shape.value_bound, shape.row_bound

    @property
    def n_rows(self) -> int:
        """Number of rows that contribute: the public ``n`` minus those removed by :meth:`without_row`."""
        return int(self._values.shape[0])

    def without_row(self, row: int) -> DesignMatrix:
        """Return the zero-out neighbour: the same public shape, with one record that contributes zero."""
        return self.take(np.delete(np.arange(self.n_rows), row))

    def take(self, rows: NDArray[np.intp]) -> DesignMatrix:
        """Return the given rows on the same grid, with the same public shape; the cost grows with those rows only."""
        return DesignMatrix(self._values.take(rows), self._implicit, self.shape, self.dense)

    @property
    def intercept_height(self) -> float:
        """Height of the constant column, 0 without one."""
        return self.intercept_steps * self.spacing

    @classmethod
    def from_array(
        cls, X: FloatArray | Any, scaling: Scaling, intercept: float = 0.0, shape: Shape | None = None
    ) -> DesignMatrix:
        """Clip, scale and round ``X`` (dense or scipy sparse) with public constants.

        ``shape`` is that of the whole design if ``X`` holds only some of its rows.
        """
        whole = shape is None
        if shape is None:
            n, n_features = X.shape
            shape = Shape.of(n, n_features, scaling.clip, scaling.row_norm, intercept, scaling.spread)
        dense, rows = not sp.issparse(X), None
        if not dense:
            rows = sp.csr_array(X, dtype=np.float64, copy=True)
            rows.sum_duplicates()
        elif whole and not (shape.shrinks_rows and scaling.moves_zeros):
            rows = compressed_rows(np.asarray(X))
        if rows is None:
            values, implicit = dense_steps(np.asarray(X), scaling, shape), np.zeros(shape.n_features)
        else:
            values, implicit = sparse_steps(rows, scaling, shape)
        if shape.shrinks_rows:
            assert scaling.row_norm is not None
            if implicit.any():
                raise InvalidBounds(ROW_NORM_NEEDS_ZEROS)
            shrink_rows(values, scaling.row_norm / shape.spacing)
        return cls(values, implicit, shape, dense)

    def strips(self) -> Iterator[tuple[slice, DesignMatrix]]:
        """Yield views of so few dense rows that several passes over them read the memory once; sparse rows at once."""
        if self._sparse:
            yield slice(0, self.n_rows), self
            return
        rows: DenseRows = self._values
        per_strip = max(1, _STRIP_BYTES // max(1, rows.tiles[:1].nbytes))  # tiles
        for first in range(0, len(rows.tiles), per_strip):
            part, begin = rows.some_tiles(first, first + per_strip), first * rows.tile_rows
            yield slice(begin, begin + part.shape[0]), DesignMatrix(part, self._implicit, self.shape, self.dense)

    # -------------------------------------------------------------------------------------- operations
    def scores(self, weight_steps: FloatArray, columns: Columns = None) -> FloatArray:
        """Return rows times weights, both in grid steps; shape (n,) or (n, K)."""
        position: int | None
        if columns is None:
            inner, position, values = weight_steps[: self.n_features], self.n_features, self._values
            start = self._implicit @ inner if self._has_implicit else 0.0
        else:
            picked, features, position = self._split(columns)
            inner, values = weight_steps[picked], self._values.some_columns(features)
            start = self._implicit[features] @ inner
        if self.intercept_steps and position is not None:
            start = start + self.intercept_steps * weight_steps[position]
        scores: FloatArray = values.scores(inner, start)
        return scores

    def logistic_sums(
        self,
        weight_steps: FloatArray,
        unit: float,
        target: FloatArray,
        lengths: FloatArray,
        *,
        clip: float,
        label_independence: float,
        spacing: float,
    ) -> FloatArray:
        """Return the sum over rows of row times its shortened logistic slope, in grid steps.

        The same as :meth:`scores`, the slopes of :func:`~dperm.kernels.grid_steps.shorten_logistic` and :meth:`sums`,
        bit for bit. Dense rows are read from memory once.
        """
        numbers = (unit, np.require(target, np.float64, ["C", "A"]), lengths, clip, label_independence, 1.0 / spacing)
        if self._sparse:
            from dperm.kernels.grid_steps import shorten_logistic  # compiled: only when needed

            slopes = self.scores(weight_steps)
            shorten_logistic(slopes, *numbers)
            return self.sums(slopes)
        from dperm.kernels import tiles

        assert not self._has_implicit  # only sparse columns have implicit values
        p, out = self.n_features, np.zeros(self.d)
        start = self.intercept_steps * float(weight_steps[p]) if self.intercept_steps else 0.0
        total = tiles.logistic_sums(
            self._values.tiles, np.ascontiguousarray(weight_steps[:p]), start, *numbers, out[:p]
        )
        if self.intercept_steps:
            out[p] = self.intercept_steps * total
        return out

    def sums(self, row_steps: FloatArray, columns: Columns = None) -> FloatArray:
        """Return the sum over rows of row times ``row_steps``, in grid steps; shape (d,) or (d, K)."""
        total = row_steps.sum(axis=0)
        if columns is None:
            whole: FloatArray = self._values.sums(row_steps)
            if self._has_implicit:
                whole += _outer(self._implicit, total)
            return np.concatenate([whole, self.intercept_steps * total[None]]) if self.intercept_steps else whole
        picked, features, constant = self._split(columns)
        out = np.empty((len(np.atleast_1d(columns)), *row_steps.shape[1:]))
        out[picked] = self._values.some_columns(features).sums(row_steps) + _outer(self._implicit[features], total)
        if constant is not None:
            out[constant] = self.intercept_steps * total
        return out

    def dense_column(self, column: int) -> FloatArray:
        """Return one column in grid steps; the caller must not change it."""
        if column == self.n_features:
            if self._constant is None:
                self._constant = np.full(self.n_rows, self.intercept_steps)
            return self._constant
        stored: FloatArray = (
            self._values.full_column(column, float(self._implicit[column]))
            if self._sparse
            else self._values.column(column)
        )
        return stored

    def add_column(self, column: int, change: float, scores: FloatArray) -> None:
        """Add ``change`` times one column to ``scores``, in place, all in grid steps."""
        if column == self.n_features:
            scores += self.intercept_steps * change
        elif self._sparse:
            rows, entries = self._values.column(column)
            scores[rows] += entries * change
            if self._implicit[column]:
                scores += self._implicit[column] * change
        else:
            from dperm.kernels.coordinate import add_multiple  # compiled: only when needed

            add_multiple(scores, self.dense_column(column), change)

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
        """Return the sum over rows of one column's entry times the slope at ``scores``, each product clipped.

        The result is in grid steps. Slopes are computed only where the entry is not zero, and in one pass if the loss
        is a clipped residual.
        """
        from dperm.kernels.coordinate import clipped_column_sum, moved_residual_sum

        bound = loss.slope_bound
        rows: Any
        if column == self.n_features:
            entries, rows = np.full(self.n_rows, self.intercept_steps), slice(None)
        elif self._sparse and not self._implicit[column]:
            rows, entries = self._values.column(column)
        else:
            entries, rows = self.dense_column(column), slice(None)
        if type(loss) in RESIDUAL_LOSSES:  # not a subclass, which may define other slopes
            numbers = (spacing, target[rows], bound, 1.0 / grid, limit)  # a power of two: equals dividing
            return float(moved_residual_sum(entries, 0.0, entries, scores[rows], *numbers))
        slopes = toward_zero(np.clip(loss.slope(scores[rows] * spacing, target[rows]), -bound, bound), grid)
        return float(clipped_column_sum(entries, slopes, limit))

    def clipped_sums(self, row_steps: FloatArray, limits: FloatArray) -> FloatArray:
        """Return the sum over rows of entry times ``row_steps``, each product clipped to its column's limit.

        ``limits``, in whole steps, holds one number for each column or one for all.
        """
        inner = limits[: self.n_features] if limits.size > 1 else limits.item()
        out = np.empty(self.d)
        features = out[: self.n_features]
        if self._sparse:
            from dperm.kernels.clipped import clipped_sums_sparse  # compiled: only when needed

            implicit = self._implicit if self._has_implicit else None
            clipped_sums_sparse(self._values.by_column, implicit, row_steps, inner, features)
        else:
            each = np.ascontiguousarray(np.broadcast_to(inner, self.n_features), np.float64)
            self._values.clipped_sums(row_steps, each, features)
        if self.intercept_steps:
            limit = limits[-1]
            out[-1] = np.clip(self.intercept_steps * row_steps, -limit, limit).sum()
        return out

    @property
    def compressed_columns(self) -> Any:
        """Stored entries by column if the user's data were sparse and implicit entries are zero, else None."""
        return None if self.dense or self._has_implicit else self._values.by_column

    def squared_norms(self, columns: Columns = None) -> FloatArray:
        """Return the squared L2 norm of every row in grid steps, exact."""
        if columns is None:
            values, implicit, constant = self._values, self._implicit, self.intercept_steps
        else:
            _, features, position = self._split(columns)
            values, implicit = self._values.some_columns(features), self._implicit[features]
            constant = self.intercept_steps if position is not None else 0.0
        if self._sparse:
            changed = values.any_format.tocsr(copy=True)
            changed.data *= changed.data + 2.0 * implicit[changed.indices]
            out: FloatArray = changed @ np.ones(changed.shape[1]) + float(implicit @ implicit)
        else:
            out = values.squares()
        return out + constant * constant

    def norms(self, columns: Columns = None) -> FloatArray:
        """Return an upper bound of every row's L2 norm, tight up to rounding; kept for the next query."""
        key = None if columns is None else tuple(int(j) for j in np.atleast_1d(columns))
        norms = self._norms.get(key)
        if norms is None:
            norms = np.sqrt(self.squared_norms(columns)) * (self.spacing * _UP)
            if len(self._norms) < _MOST_KEPT_NORMS:
                self._norms[key] = norms
        return norms

    def feature_norms(self) -> FloatArray:
        """Return the same bound for rows without the intercept."""
        key: tuple[int, ...] = ()  # no other query asks for no columns
        norms = self._norms.get(key)
        if norms is None:
            # whole numbers: the difference is exact
            norms = np.sqrt(self.squared_norms() - self.intercept_steps**2) * (self.spacing * _UP)
            self._norms[key] = norms
        return norms

    def stored(self) -> list[NDArray[Any]]:
        """Return the arrays that hold the rows: equal if equal rows were given in the same kind of array."""
        if not self._sparse:
            return [self._values.tiles]
        rows = self._values.by_row
        positions = [array.astype(np.int64) for array in (rows.indptr, rows.indices)]
        return [*positions, rows.data, self._implicit]

    def columns(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return all rows in grid steps, one line for each column but the intercept, in a type that holds them."""
        if self._sparse:
            return np.ascontiguousarray((self._values.by_row.todense() + self._implicit).T, kind)
        lines: NDArray[Any] = self._values.columns(kind)
        return lines

    def row_chunks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield dense blocks of rows in grid steps, intercept included."""
        for part, block in self.feature_chunks(self.d - self.n_features):
            block[:, self.n_features :] = self.intercept_steps
            yield part, block

    def feature_chunks(self, more: int = 0) -> Iterator[tuple[slice, FloatArray]]:
        """Yield dense blocks of rows in grid steps, without the intercept, with room for ``more`` columns."""
        for part in self._chunks():
            if self._sparse:
                block = np.empty((part.stop - part.start, self.n_features + more), order="F")
                block[:, : self.n_features] = self._values.by_row[part].todense() + self._implicit
            else:
                block = self._values.doubles(part, more)
            yield part, block

    def mapped_chunks(self, steps: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yield blocks of rows times a map of shape (d, k), both in grid steps; sparse rows are not made dense."""
        p = self.n_features
        constant = self.intercept_steps * steps[p] if self.intercept_steps else 0.0
        if self._sparse:
            constant = constant + self._implicit @ steps[:p]
        for part in self._chunks():
            rows = self._values.by_row[part] if self._sparse else self._values.doubles(part)
            yield part, np.asarray(rows @ steps[:p]) + constant

    def _chunks(self) -> Iterator[slice]:
        most = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // (8 * self.d)))
        for start in range(0, self.n_rows, most):
            yield slice(start, min(start + most, self.n_rows))

    def mapped_lengths(self, steps: FloatArray) -> FloatArray:
        """Return the L2 norm of every row times a map in grid steps, of shape (d, k), or (d,) for a diagonal map.

        Squares are added in the order of the map's columns, so a row's length depends neither on its position nor on
        how it is stored.
        """
        stretches = steps.ndim == 1
        if self._sparse and self._values.mostly_implicit and not (stretches and self._has_implicit):
            from dperm.kernels.rows import mapped_squares, stretched_squares  # compiled: only when needed

            p, constant = self.n_features, self.intercept_steps
            if stretches:
                height = constant * float(steps[p]) if constant else 0.0
                return np.sqrt(stretched_squares(self._values.by_row, steps, height))
            base = self._implicit @ steps[:p]
            if constant:
                base = base + constant * steps[p]
            return np.sqrt(mapped_squares(self._values.by_row, steps, base))
        out, p = np.empty(self.n_rows), self.n_features
        for part, block in self.feature_chunks():
            columns = block.T
            if stretches:
                mapped: Iterator[FloatArray] = (line * height for line, height in zip(columns, steps[:p], strict=True))
            else:
                mapped = iter(steps[:p].T @ columns)  # one line for each column of the map
            squares = np.zeros(len(block))
            for j, column in enumerate(mapped):
                if self.intercept_steps and not stretches:
                    column += self.intercept_steps * steps[p, j]
                squares += column * column
            if self.intercept_steps and stretches:
                squares += (self.intercept_steps * steps[p]) ** 2
            out[part] = np.sqrt(squares)
        return out

    def second_moments(
        self, factors: FloatArray, unit: float, spacing: float, heights: FloatArray | None = None
    ) -> FloatArray:
        """Return the sum of v v' over rows, where v is the row times ``heights``, ``unit`` and the row's factor.

        v is rounded toward zero to whole steps of ``spacing``, a power of two.
        """
        if self._sparse and self._values.mostly_implicit and not self._has_implicit:
            from dperm.kernels.rows import second_moments  # compiled: only when needed

            stretch = np.ones(self.d) if heights is None else heights
            constant = self.intercept_steps * float(stretch[-1]) if self.intercept_steps else 0.0
            return second_moments(self._values.by_row, stretch, constant, unit, factors, 1.0 / spacing)
        total = np.zeros((self.d, self.d))
        stretches = (np.ones(self.d) if heights is None else heights) * (unit / spacing)  # a power of two: exact
        for part, rows in self.row_chunks():
            rows *= stretches
            rows *= factors[part][:, None]
            np.trunc(rows, out=rows)
            total += rows.T @ rows
        return total

    def _split(self, columns: Columns) -> tuple[NDArray[np.intp], NDArray[np.intp], int | None]:
        """Return positions and indices of feature columns, and the position of the intercept if it is included."""
        wanted = np.atleast_1d(np.asarray(columns, dtype=np.intp))
        is_constant = wanted == self.n_features if self.intercept_steps else np.zeros(len(wanted), bool)
        positions = np.flatnonzero(~is_constant)
        constants = np.flatnonzero(is_constant)
        return positions, wanted[positions], int(constants[0]) if len(constants) else None


def _outer(implicit: FloatArray, total: Any) -> Any:
    return implicit * total if np.ndim(total) == 0 else np.outer(implicit, total)
