"""Columns as they come out of files and tables, before a schema encodes them: doubles, or texts.

A missing number is NaN and a missing text is None, whatever library the column comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidData

__all__ = ["BOOLEAN", "DATE", "NUMBER", "OTHER", "TEXT", "RawColumn", "arrow_column", "arrow_kind", "table_chunks"]

FloatArray = NDArray[np.float64]
RawColumn = FloatArray | list[Any]

NUMBER, BOOLEAN, TEXT, DATE, OTHER = "number", "boolean", "text", "date", "other"


def arrow_kind(kind: Any) -> str:
    """What a column of this Arrow type holds."""
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_dictionary(kind):
        return arrow_kind(kind.value_type)
    if is_a.is_boolean(kind):
        return BOOLEAN
    if is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind):
        return NUMBER
    if is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return TEXT
    return DATE if is_a.is_temporal(kind) else OTHER


def arrow_column(column: Any) -> RawColumn:
    """Return an Arrow column as doubles or texts; dates and nested values become texts that no number matches."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if arrow_kind(column.type) in (NUMBER, BOOLEAN):
        doubles = column.cast(pa.float64(), safe=False)
        return np.asarray(doubles.to_numpy(zero_copy_only=False), np.float64)
    if arrow_kind(column.type) != TEXT:
        raise InvalidData(NEITHER)
    texts: list[Any] = column.to_pylist()
    return texts


NEITHER = "a column holds neither numbers nor text: leave it out, or make numbers of it by a rule that is public."


def table_chunks(table: Any, names: Sequence[str]) -> Iterator[dict[str, RawColumn]]:
    """Yield the wanted columns of a pandas, polars or Arrow table, or of a dict of columns, as one chunk."""
    yield {name: _column(table, name) for name in names}


def _column(table: Any, name: str) -> RawColumn:
    home = type(table).__module__.partition(".")[0]
    try:
        column = table.column(name) if home == "pyarrow" else table[name]
    except (KeyError, TypeError, IndexError, ValueError):
        column = None
    except Exception as error:
        if type(error).__name__ != "ColumnNotFoundError":  # of polars, which is not imported for this
            raise
        column = None
    if column is None:
        raise InvalidData(f"the table has no column {name!r}.")
    if home == "pyarrow":
        whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        return arrow_column(whole)
    values = column.to_list() if hasattr(column, "to_list") else list(column)
    return _plain(values)


def _plain(values: list[Any]) -> RawColumn:
    """Return numbers as doubles, and anything else as texts."""
    numbers = int | float | bool | np.number | np.bool_
    if all(value is None or isinstance(value, numbers) or _is_missing(value) for value in values):
        return np.array([np.nan if _is_missing(value) else float(value) for value in values], np.float64)
    if any(hasattr(value, "isoformat") for value in values):
        raise InvalidData(NEITHER)
    return [None if _is_missing(value) else _text(value) for value in values]


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)
