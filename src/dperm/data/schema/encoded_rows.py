"""Files that are encoded by a schema while they are read, for tables that do not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.schema.encoding import encoded_chunks
from dperm.data.schema.schema import Schema
from dperm.data.tables.files import TableFile
from dperm.data.tables.row_source import RowSource
from dperm.errors import InvalidData

__all__ = ["EncodedRows", "encoded_rows"]


class EncodedRows(RowSource):
    """The rows of a file, read and encoded again in every pass."""

    def __init__(self, schema: Schema, table: TableFile, n_rows: int) -> None:
        self._schema, self._table = schema, table
        self.names = schema.encoded_names
        self.shape = (n_rows, len(self.names))

    def _parts(self) -> Iterator[NDArray[Any]]:
        for X, _ in encoded_chunks(self._schema, self._table):
            yield X


def encoded_rows(schema: Schema, table: TableFile) -> tuple[EncodedRows, NDArray[Any]]:
    """Return the rows of a file and its target; this reads the file once."""
    targets = [y for _, y in encoded_chunks(schema, table, with_target=True)]
    if not targets:
        raise InvalidData(f"{table.path.name} has column names but no rows.")
    y = np.concatenate(targets)
    return EncodedRows(schema, table, len(y)), y
