"""Dense storage of a design: whole numbers in tiles of some rows, each tile column by column, in single precision.

A tile is contiguous and stays in the processor's cache, so that two passes over it read the memory once, and threads
do not wait for each other's memory. Single precision takes half of the memory of doubles and holds every grid step
exactly: steps have at most 18 bits (see :class:`~dperm.kernels.exact.Grids`), single precision 24.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.types import FloatArray

__all__ = ["TILE_ROWS", "DenseRows"]

#: rows of a tile; measured best at 1024 to 2048 for 100 and 400 columns, and equal from 512 to 4096 for 20
TILE_ROWS = 1024
_KEPT_COLUMNS = 2  # coordinate descent moves one column's weight and then reads the next column
_LARGEST = 2.0**24


class DenseRows:
    """Rows of whole numbers below 2^24.

    Parameters
    ----------
    tiles : float32 array of shape (number of tiles, columns, rows of a tile)
        All tiles but the last are full; the rest of the last one is zero.
    n_rows : int
        Number of rows.
    """

    def __init__(self, tiles: NDArray[np.float32], n_rows: int) -> None:
        self.tiles = tiles
        self.shape = n_rows, int(tiles.shape[1])
        self._full: dict[int, NDArray[np.float32]] = {}

    @classmethod
    def zeros(cls, n_rows: int, n_columns: int) -> DenseRows:
        """Return rows of zeros, to be filled tile by tile."""
        size = max(1, min(TILE_ROWS, n_rows))
        return cls(np.zeros((-(-n_rows // size), n_columns, size), np.float32), n_rows)

    @classmethod
    def of_columns(cls, columns: NDArray[Any]) -> DenseRows:
        """Return rows from an array with one line for each column."""
        made = cls.zeros(columns.shape[1], columns.shape[0])
        for rows, tile in made.parts():
            tile[:, : rows.stop - rows.start] = columns[:, rows]
        return made

    @classmethod
    def of(cls, rows: NDArray[Any]) -> DenseRows:
        """Return rows from an array with one line for each row."""
        given = np.asarray(rows)
        if given.size and float(np.abs(given).max()) > _LARGEST:
            raise ValueError("single precision holds whole numbers up to 2^24 exactly, and an entry is larger.")
        return cls.of_columns(given.T)

    @property
    def tile_rows(self) -> int:
        """Rows of a full tile."""
        return int(self.tiles.shape[2])

    def parts(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield the row numbers of each tile, and the tile."""
        for k, tile in enumerate(self.tiles):
            yield slice(k * self.tile_rows, min((k + 1) * self.tile_rows, self.shape[0])), tile

    def some_tiles(self, first: int, last: int) -> DenseRows:
        """Return a view of some tiles."""
        end = min(last * self.tile_rows, self.shape[0])
        return DenseRows(self.tiles[first:last], end - first * self.tile_rows)

    def take(self, rows: NDArray[np.intp]) -> DenseRows:
        """Return some of the rows; the cost grows with those rows only."""
        which, where = np.divmod(rows, self.tile_rows)
        return DenseRows.of(self.tiles[which, :, where])

    def some_columns(self, columns: NDArray[np.intp]) -> DenseRows:
        """Return some of the columns."""
        return DenseRows(self.tiles[:, columns], self.shape[0])

    def column(self, number: int) -> NDArray[np.float32]:
        """Return one entry per row; the latest columns are kept, as coordinate descent reads a column twice."""
        entries = self._full.get(number)
        if entries is None:
            entries = self.tiles[:, number].reshape(-1)[: self.shape[0]]
            for old in list(self._full)[: len(self._full) + 1 - _KEPT_COLUMNS]:
                self._full.pop(old, None)  # another thread may have removed it
            self._full[number] = entries
        return entries

    def doubles(self, rows: slice, more: int = 0) -> FloatArray:
        """Return consecutive rows as doubles in Fortran order, with room for ``more`` columns behind them."""
        out: FloatArray = self._lines(rows, np.dtype(np.float64), more).T
        return out

    def columns(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return all rows with one line for each column, in a type that holds their numbers."""
        return self._lines(slice(0, self.shape[0]), kind)

    def _lines(self, rows: slice, kind: np.dtype[Any], more: int = 0) -> NDArray[Any]:
        p = self.shape[1]
        lines = np.empty((p + more, rows.stop - rows.start), kind)
        for k in range(rows.start // self.tile_rows, -(-rows.stop // self.tile_rows)):
            begin = k * self.tile_rows
            first, last = max(rows.start, begin), min(rows.stop, begin + self.tile_rows)
            lines[:p, first - rows.start : last - rows.start] = self.tiles[k, :, first - begin : last - begin]
        return lines

    # -------------------------------------------------------------------------------------- operations
    def scores(self, weights: FloatArray, start: Any) -> FloatArray:
        """Return ``start`` plus row times weights; shape (n,) or (n, K)."""
        out = np.empty((self.shape[0], *weights.shape[1:]))
        if weights.ndim == 1:
            from dperm.kernels import tiles  # compiled: only when needed

            tiles.scores(self.tiles, np.ascontiguousarray(weights), float(start), out)
            return out
        for rows, _ in self.parts():
            out[rows] = self.doubles(rows) @ weights
        out += start
        return out

    def sums(self, row_steps: FloatArray) -> FloatArray:
        """Return the sum over rows of row times ``row_steps``; shape (p,) or (p, K)."""
        out = np.zeros((self.shape[1], *row_steps.shape[1:]))
        if row_steps.ndim == 1:
            from dperm.kernels import tiles  # compiled: only when needed

            tiles.sums(self.tiles, np.ascontiguousarray(row_steps), out)
            return out
        for rows, _ in self.parts():
            out += self.doubles(rows).T @ row_steps[rows]
        return out

    def squares(self) -> FloatArray:
        """Return the squared length of every row."""
        from dperm.kernels import tiles  # compiled: only when needed

        out = np.empty(self.shape[0])
        tiles.squares(self.tiles, out)
        return out

    def clipped_sums(self, row_steps: FloatArray, limits: FloatArray, out: FloatArray) -> None:
        """Write the sums over rows of entry times ``row_steps``, each product clipped to its column's limit."""
        from dperm.kernels import tiles  # compiled: only when needed

        tiles.clipped_sums(self.tiles, np.ascontiguousarray(row_steps), limits, out)
