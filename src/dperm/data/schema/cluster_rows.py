"""Files that are read and encoded by a schema on the workers of a Dask cluster, where rows and targets stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.schema.encoding import encoded_chunks, encoded_targets
from dperm.data.schema.schema import Schema
from dperm.data.tables.dask_rows import DaskRows, filled_partitions
from dperm.data.tables.dask_targets import DaskTarget
from dperm.data.tables.dask_tasks import Cluster
from dperm.data.tables.files import TableFile, TablePiece
from dperm.errors import InvalidData
from dperm.types import FloatArray

__all__ = ["ColumnsOnCluster", "rows_on_cluster"]


def rows_on_cluster(schema: Schema, table: TableFile, cluster: Cluster) -> tuple[DaskRows, DaskTarget]:
    """Return the rows of files and their targets; a partition is a file, or a row group of a Parquet file.

    The workers open the files themselves, under the path by which they are known here.
    """
    pieces = table.pieces()
    here = [(piece,) for piece in pieces]
    names = schema.encoded_names
    targets = cluster.delayed("encode target", _PieceTarget(schema), here)
    lengths = [piece.n_rows for piece in pieces if piece.n_rows is not None]
    if len(lengths) < len(pieces):  # only Parquet states them
        lengths = cluster.each("length", len, [(one,) for one in targets])
    rows = DaskRows(
        cluster.delayed("encode", _EncodedPiece(schema), here), len(names), names, cluster=cluster, lengths=lengths
    )
    if not rows.shape[0]:
        raise InvalidData(f"{table.path.name} has column names but no rows.")
    return rows, DaskTarget(cluster, *filled_partitions(cluster, targets, lengths))


class ColumnsOnCluster:
    """The raw columns of files, read by the workers, to recognise the table."""

    on_cluster = True

    def __init__(self, table: TableFile, cluster: Cluster) -> None:
        self.names = table.names
        self._pieces, self._cluster = [(piece,) for piece in table.pieces()], cluster

    def summed(self, name: str, work: Callable[[Any], Any], finish: Callable[[Any], Any] | None = None) -> Any:
        """Return the sum over the pieces of ``work(chunks)``, computed and added on the workers."""
        return self._cluster.total(name, _OnContents(work), self._pieces, finish)


# -------------------------------------------------------------------------------------------- on the workers
@dataclass(frozen=True)
class _EncodedPiece:
    schema: Schema

    def __call__(self, piece: TablePiece) -> FloatArray:
        parts = [X for X, _ in encoded_chunks(self.schema, piece.open())]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.schema.encoded_names)))


@dataclass(frozen=True)
class _PieceTarget:
    schema: Schema

    def __call__(self, piece: TablePiece) -> NDArray[Any]:
        parts = list(encoded_targets(self.schema, piece.open()))
        return np.concatenate(parts) if parts else np.zeros(0)


@dataclass(frozen=True)
class _OnContents:
    work: Callable[[Any], Any]

    def __call__(self, piece: TablePiece) -> Any:
        return self.work(piece.open().contents())
