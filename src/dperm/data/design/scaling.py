"""Public constants of a scaled design, and the clipping, scaling and rounding of entries by them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dperm.data.design.compressed import MOST_STORED
from dperm.data.design.dense_rows import DenseRows
from dperm.errors import InvalidBounds
from dperm.kernels.exact import Grids, toward_zero
from dperm.types import FloatArray

__all__ = ["Scaling", "Shape", "compressed_rows", "dense_steps", "mostly_zeros", "shrink_rows", "sparse_steps"]


_UP = 1.0 + 2.0**-50
_DOWN = 1.0 - 2.0**-50
_CHUNK_ROWS = 4096
_TURNED_ROWS = 256  # rows that are turned into columns at a time: they stay in the processor's cache


@dataclass(frozen=True)
class Scaling:
    """Public constants that turn a user's column into a bounded one: clip((x - centre) / scale, -clip, clip).

    A column with scale 0 (equal bounds) is a constant: it becomes 0 and its coefficient stays 0. ``spread`` is the
    public guess of a scaled entry's root mean square: 1 if a scale was declared, less if only a range was.
    """

    centre: FloatArray
    scale: FloatArray
    clip: float
    row_norm: float | None = None
    spread: float = 1.0

    @property
    def n_features(self) -> int:
        return len(self.centre)

    @property
    def moves_zeros(self) -> bool:
        """Whether a zero may become a non-zero number."""
        return bool(self.centre.any())

    def coefficients_in_user_units(self, weights: FloatArray, intercept_height: float) -> tuple[FloatArray, FloatArray]:
        """Return (coefficients, intercept) for the user's own columns from weights of the scaled design."""
        slopes = weights[: self.n_features]
        divisor = np.where(self.scale > 0.0, self.scale, np.inf)
        coefficients = (slopes.T / divisor).T
        intercept = weights[self.n_features] * intercept_height if intercept_height else 0.0 * weights[0]
        return coefficients, intercept - self.centre @ coefficients


@dataclass(frozen=True)
class Shape:
    """Public numbers of a design, known before any data are read: its grid and the bounds that hold on it."""

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
    def intercept_height(self) -> float:
        """Height of the constant column, 0 without one."""
        return self.intercept_steps * self.spacing

    @property
    def grids(self) -> Grids:
        """Exact-arithmetic grids for this size."""
        return Grids(self.n, self.d)

    @classmethod
    def of(
        cls, n: int, n_features: int, clip: float, row_norm: float | None, intercept: float, spread: float = 1.0
    ) -> Shape:
        """Compute the public numbers for ``n`` rows with entries clipped to ``clip``."""
        grids = Grids(n, n_features + (1 if intercept else 0))
        spacing = grids.spacing(max(clip, intercept), grids.value_bits)
        top = math.floor(clip / spacing)
        intercept_steps = float(round(intercept / spacing))
        if top < 1 or (intercept and not intercept_steps):
            raise InvalidBounds(
                f"clip={clip:g} is out of proportion to an intercept of height {intercept:g}: choose scale so that "
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


def _kernel_arguments(scaling: Scaling, shape: Shape) -> tuple[FloatArray, FloatArray, float, float, float]:
    """Arguments of the kernels; spacings are powers of two, so multiplying by the inverse equals dividing."""
    columns = [np.ascontiguousarray(part, np.float64) for part in (scaling.centre, scaling.scale)]
    return columns[0], columns[1], float(scaling.clip), 1.0 / shape.spacing, float(shape.top)


def dense_steps(X: NDArray[Any], scaling: Scaling, shape: Shape) -> DenseRows:
    """Clip, scale and round a dense array."""
    from dperm.kernels.grid_steps import block_steps  # compiled: only when needed

    out, arguments = DenseRows.zeros(*X.shape), _kernel_arguments(scaling, shape)
    turned = np.empty((_TURNED_ROWS, X.shape[1]), np.float64, order="F")  # one for all: new memory would cost more
    for rows, tile in out.parts():  # the only full-size array is the result
        for start in range(rows.start, rows.stop, _TURNED_ROWS):
            part = X[start : min(start + _TURNED_ROWS, rows.stop)]
            turned[: len(part)] = part
            block_steps(turned[: len(part)], *arguments, tile, start - rows.start)
    return out


def sparse_steps(rows: Any, scaling: Scaling, shape: Shape) -> tuple[Any, FloatArray]:
    """Turn a CSR array of doubles with one entry per cell into grid steps, in place.

    Returns the steps minus those of an implicit zero in their column, and the steps of an implicit zero per column.
    """
    from dperm.kernels.grid_steps import entry_steps  # compiled: only when needed

    implicit = dense_steps(np.zeros((1, scaling.n_features)), scaling, shape).doubles(slice(0, 1))[0]
    entry_steps(rows.data, rows.indices, *_kernel_arguments(scaling, shape), implicit)
    return rows, implicit


def shrink_rows(values: Any, norm_steps: float) -> None:
    """Scale rows longer than ``norm_steps`` down to that length, in place, rounding toward zero."""
    longest = norm_steps * _DOWN
    if sp.issparse(values):
        from dperm.kernels.grid_steps import shorten_compressed  # compiled: only when needed

        shorten_compressed(values.data, values.indptr, longest)
        return
    factors = np.minimum(1.0, longest / np.maximum(np.sqrt(values.squares()), 1.0))
    for rows, tile in values.parts():
        tile[:, : rows.stop - rows.start] = toward_zero(values.doubles(rows).T * factors[rows], 1.0)


def mostly_zeros(X: NDArray[Any]) -> bool:
    """Whether a dense array may be worth compressing, judged by some of its rows; it affects running time only."""
    some = X[:: max(1, len(X) // _CHUNK_ROWS)]
    return bool(np.count_nonzero(some) <= 2.0 * MOST_STORED * some.size)


def compressed_rows(X: NDArray[Any]) -> Any:
    """Return a dense array that is mostly zeros as CSR in doubles; None for any other array."""
    from dperm.kernels.grid_steps import compress  # compiled: only when needed

    n, p = X.shape
    if not mostly_zeros(X):
        return None
    room = int(MOST_STORED * n * p) + p
    entries, columns = np.empty(room), np.empty(room, np.int32)  # pages that are not written take no memory
    ends = np.zeros(n + 1, np.int32 if room < 2**31 else np.int64)
    found = 0
    for start in range(0, n, _CHUNK_ROWS):
        block = np.ascontiguousarray(X[start : start + _CHUNK_ROWS], np.float64)
        found = compress(block, found, ends[start + 1 : start + 1 + len(block)], columns, entries)
        if found < 0:
            return None
    return sp.csr_array((entries[:found].copy(), columns[:found].copy(), ends), shape=(n, p))
