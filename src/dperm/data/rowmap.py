"""A public linear map of the rows, on a grid, so that mapped rows are exact.

Solvers that work in the metric of a released curvature need the length of every mapped row and the image of a sum of
rows. Both are worked out from whole numbers: the map's entries have few enough bits that rows times map is exact, so a
person's mapped row does not depend on where the row stands. Proof: ``rowmap.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.design import DesignMatrix
from dperm.errors import InvalidInput
from dperm.kernels.exact import Grids, weights_on_grid

__all__ = ["RowMap"]

FloatArray = NDArray[np.float64]

_LARGEST = 2.0**300  # and no smaller than its inverse: far beyond any use, and no product over- or underflows


@dataclass(frozen=True, eq=False)
class RowMap:
    """The map x -> B' x with B of shape (d, k), rounded to a grid.

    Parameters
    ----------
    matrix : array of shape (d, k)
        Public or already released numbers; kept as rounded.
    grids : Grids
        Exact-arithmetic grids of the design it will be used with.
    """

    matrix: FloatArray
    grids: Grids
    _steps: FloatArray = field(init=False, repr=False)
    _spacing: float = field(init=False, repr=False)
    #: the only entries that are not zero, if they are those of a square map's diagonal
    _diagonal: FloatArray | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        given = np.asarray(self.matrix, np.float64)
        if given.ndim != 2 or given.shape[0] != self.grids.d or not given.shape[1] or not np.isfinite(given).all():
            raise InvalidInput(f"a map of rows needs a finite matrix with {self.grids.d} rows.")
        largest = float(np.abs(given).max())
        if largest and not 1.0 / _LARGEST <= largest <= _LARGEST:
            raise InvalidInput(f"the largest entry of a map of rows must be between 2^-300 and 2^300, not {largest:g}.")
        steps, spacing = weights_on_grid(given, self.grids.weight_bits)
        rounded = steps * spacing
        for array in (steps, rounded):
            array.setflags(write=False)
        square = steps.shape[0] == steps.shape[1]
        diagonal = np.diag(steps) if square and np.count_nonzero(steps) == np.count_nonzero(np.diag(steps)) else None
        for name, value in (("matrix", rounded), ("_steps", steps), ("_spacing", spacing), ("_diagonal", diagonal)):
            object.__setattr__(self, name, value)

    @property
    def _piece(self) -> float:
        return math.ldexp(1.0, self.grids.value_bits)

    @property
    def _n_pieces(self) -> int:
        return math.ceil(53 / self.grids.value_bits)

    @property
    def shape(self) -> tuple[int, int]:
        """Length of a row, and of its image."""
        d, k = self._steps.shape
        return int(d), int(k)

    def check(self, grids: Grids) -> None:
        """Refuse a design of another size: on its grids mapped rows would not be exact."""
        if grids != self.grids:
            raise InvalidInput(
                f"the map is for {self.grids.n} rows of {self.grids.d} columns, the design has {grids.n} of {grids.d}."
            )

    def rows(self, block: FloatArray) -> FloatArray:
        """Map rows given in grid steps; the result is in steps of the design's spacing times :attr:`spacing`."""
        diagonal = self._diagonal
        out: FloatArray = block @ self._steps if diagonal is None else block * diagonal
        return out

    @property
    def spacing(self) -> float:
        """Grid spacing of the map's entries."""
        return self._spacing

    def norms(self, design: DesignMatrix) -> FloatArray:
        """Upper bound of the L2 norm of every mapped row, tight to rounding."""
        self.check(design.grids)
        out = np.empty(design.n_rows)
        k = self.shape[1]
        for part, block in design.row_chunks():
            mapped = np.ascontiguousarray(self.rows(block).T)  # columns are read one by one
            squares = np.zeros(len(block))
            for j in range(k):  # fixed order: a row's length must not depend on where the row stands
                squares += mapped[j] * mapped[j]
            out[part] = np.sqrt(squares)
        result: FloatArray = out * (design.spacing * self._spacing * (1.0 + (k + 8) * 2.0**-52))
        return result

    def image(self, steps: FloatArray) -> Any:
        """Return B' times a vector (or matrix) of whole numbers below 2^53, rounded by at most :meth:`rounding`.

        The whole numbers are split into pieces so short that every product with the map is exact; only the few
        additions of the pieces round.
        """
        total = np.zeros((self.shape[1], *steps.shape[1:]))
        pieces = []
        rest = np.asarray(steps, np.float64)
        for _ in range(self._n_pieces):
            low = np.fmod(rest, self._piece)
            pieces.append(self._steps.T @ low)
            rest = (rest - low) / self._piece
        for piece in reversed(pieces):  # largest first, as in Horner's rule
            total = total * self._piece + piece
        return total * self._spacing

    def rounding(self, norm: float) -> float:
        """Bound on the L2 error of :meth:`image` where the exact image has an L2 norm of at most ``norm``."""
        return (self._n_pieces - 1) * 2.0**-52 * norm
