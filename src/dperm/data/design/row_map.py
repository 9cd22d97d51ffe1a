"""A public linear map of the rows, on a grid, so that mapped rows are exact.

Solvers that work in the metric of a released curvature need the length of every mapped row and the image of a sum of
rows. Both are computed from whole numbers: the map's entries have few enough bits that rows times map is exact, so a
person's mapped row does not depend on its position. Proof: ``row_map.proof.md``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.errors import InvalidInput
from dperm.kernels.exact import Grids, weights_on_grid
from dperm.types import FloatArray

__all__ = ["RowMap"]


# limit on the largest entry and its inverse: far beyond any use, and no product over- or underflows
_LARGEST = 2.0**300


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
    #: diagonal in grid steps if the map is square and all other entries are zero, else None
    diagonal: FloatArray | None = field(init=False, repr=False)

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
        for name, value in (("matrix", rounded), ("_steps", steps), ("_spacing", spacing), ("diagonal", diagonal)):
            object.__setattr__(self, name, value)

    @cached_property
    def digest(self) -> bytes:
        """Identifies the map by its content, also in another process."""
        return hashlib.sha256(self._steps.tobytes() + repr((self._steps.shape, self._spacing)).encode()).digest()

    @property
    def _piece(self) -> float:
        return math.ldexp(1.0, self.grids.value_bits)

    @property
    def _n_pieces(self) -> int:
        return math.ceil(53 / self.grids.value_bits)

    @property
    def shape(self) -> tuple[int, int]:
        """Length of a row and of its image."""
        d, k = self._steps.shape
        return int(d), int(k)

    def check(self, grids: Grids) -> None:
        """Refuse a design of a different size: mapped rows would not be exact on its grids."""
        if grids != self.grids:
            raise InvalidInput(
                f"the map is for {self.grids.n} rows of {self.grids.d} columns, the design has {grids.n} of {grids.d}."
            )

    def rows(self, design: DesignMatrix) -> Iterator[tuple[slice, FloatArray]]:
        """Yield blocks of mapped rows, in steps of the design's spacing times :attr:`spacing`."""
        return design.mapped_chunks(self._steps)

    @property
    def spacing(self) -> float:
        """Grid spacing of the map's entries."""
        return self._spacing

    def norms(self, design: DesignMatrix) -> FloatArray:
        """Return an upper bound of the L2 norm of every mapped row, tight up to rounding."""
        self.check(design.grids)
        lengths = design.mapped_lengths(self._steps if self.diagonal is None else self.diagonal)
        out: FloatArray = lengths * (design.spacing * self._spacing * (1.0 + (self.shape[1] + 8) * 2.0**-52))
        return out

    def image(self, steps: FloatArray) -> Any:
        """Return B' times a vector (or matrix) of whole numbers below 2^53, rounded by at most :meth:`rounding_error`.

        The whole numbers are split into pieces so short that every product with the map is exact; only the few
        additions of the pieces round.
        """
        rest = np.asarray(steps, np.float64).reshape(len(steps), -1)
        pieces = np.empty((self._n_pieces, *rest.shape))
        for piece in pieces:
            np.fmod(rest, self._piece, out=piece)
            rest = (rest - piece) / self._piece
        total, *smaller = (self._steps.T @ pieces)[::-1]
        for image in smaller:  # largest first, as in Horner's rule
            total = total * self._piece + image
        return (total * self._spacing).reshape(-1, *np.shape(steps)[1:])

    def rounding_error(self, norm: float) -> float:
        """Bound on the L2 error of :meth:`image` where the exact image has an L2 norm of at most ``norm``."""
        return (self._n_pieces - 1) * 2.0**-52 * norm
